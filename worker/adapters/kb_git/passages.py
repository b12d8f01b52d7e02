"""Pieces of a page: the one that answers best, for previews, and those that get a vector; must not rank pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

MAX_PASSAGE = 1_200

_MIN_PASSAGE = 400
_TELLING_TERMS = 12
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")

_WINDOW = 350
_MOST_WINDOWS = 16
_MOST_READ = 40_000
_FENCE = re.compile(r"`{3,}|~{3,}")
_HEADING = re.compile(r"#{1,6}[ \t]+(.*)")
_MARKS = re.compile(r"<[^<>]{1,200}>|\{#[^{}]*\}|[`*#>|]+|\]\([^()\s]*\)")
_SPACE = re.compile(r"\s+")


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


def page_passages(title: str, body: str) -> list[str]:
    """The prose of a page in windows of about 350 characters, each behind the title: one vector each.

    At most 16, from the beginning; code is left out. Measured at 10: 0.82 of the questions, one vector a page 0.71.
    """
    windows = [""]
    for text in _prose(body[:_MOST_READ]):
        for at in range(0, len(text), _WINDOW):
            piece = text[at : at + _WINDOW]
            if windows[-1] and len(windows[-1]) + len(piece) > _WINDOW:
                windows.append("")
            windows[-1] = f"{windows[-1]} {piece}".lstrip()
        if len(windows) > _MOST_WINDOWS:
            break
    return [f"{title}。{window}" for window in windows[:_MOST_WINDOWS]]


def _prose(body: str) -> Iterator[str]:
    """Lines without code and marks; a heading ends in a colon."""
    fence = ""
    for line in body.splitlines():
        stripped = line.strip()
        if mark := _FENCE.match(stripped):
            fence = "" if fence and stripped.startswith(fence) else fence or mark[0]
        elif not fence:
            heading = _HEADING.match(stripped)
            text = _SPACE.sub(" ", _MARKS.sub(" ", heading[1] if heading else stripped)).strip()
            if text:
                yield f"{text}：" if heading else text
