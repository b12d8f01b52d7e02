"""The piece of a page that answers best, for previews; must not rank pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

MAX_PASSAGE = 1_200

_MIN_PASSAGE = 400
_TELLING_TERMS = 12
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


def best_passage(body: str, worth: Mapping[str, float]) -> str:
    """The piece between two neighbouring borders that holds most of the terms, by worth; the first of equals.

    ``worth``: how much each term of the question tells. At most ``MAX_PASSAGE`` characters.
    """
    telling = sorted(worth.items(), key=lambda item: -item[1])[:_TELLING_TERMS]
    lowered = body.lower()
    if len(lowered) != len(body):  # else offsets would differ
        lowered = body
    best, best_score = (0, 0), -1.0
    for start, end in pairwise(_borders(body)):
        score = sum(value for term, value in telling if lowered.find(term, start, end) >= 0)
        if score > best_score:
            best, best_score = (start, end), score
    return body[slice(*best)].strip()


def _borders(body: str) -> tuple[int, ...]:
    """Offsets that cut ``body`` into pieces of at most ``MAX_PASSAGE`` characters, at line ends, headings preferred."""
    starts = [0]
    for line in _LINE.finditer(body):
        start, end = line.span()
        used = start - starts[-1]
        if used and (end - starts[-1] > MAX_PASSAGE or (used >= _MIN_PASSAGE and line[0].startswith("#"))):
            starts.append(start)
        while end - starts[-1] > MAX_PASSAGE:  # one line longer than a passage
            starts.append(starts[-1] + MAX_PASSAGE)
    return (*starts, len(body)) if body else (0, 0)
