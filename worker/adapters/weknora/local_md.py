"""The local source files ``references/素材库/*.md`` to fall back to; reads only, never writes or deletes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.knowledge.found import Found, Hit, Status

FOLDER = Path("references") / "素材库"
MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 2_000

_K1, _B = 1.5, 0.75
_MIN_TERMS = 2
_HEADING = re.compile(r"^#{1,6}\s+\S.*$", re.MULTILINE)
_FRONTMATTER = re.compile(r"\A﻿?---\r?\n.*?\r?\n---\r?\n", re.DOTALL)
_FRAME = re.compile(r"^找一条|\s的(?=\s)|型事件素材$")


Terms = Callable[[str], Counter[str]]


@dataclass(frozen=True)
class _Card:
    text: str
    terms: Counter[str]


@dataclass(frozen=True)
class _File:
    stamp: tuple[int, int]
    cards: tuple[_Card, ...]


class LocalCards:
    """Cards of the Markdown files below ``root``, ranked by BM25. Looks at the files for each search.

    ``terms`` cuts a text into what is compared: the tokens of the knowledge base's index.
    """

    name = "local_md"

    def __init__(self, root: Path, terms: Terms, *, match_count: int = 3) -> None:
        self._folder = root / FOLDER
        self._terms = terms
        self._match_count = match_count
        self._files: dict[Path, _File] = {}

    def find(self, kb_id: str, question: str, *, timeout: float) -> Found:  # noqa: ARG002 - there is one folder
        """The best cards for the question; at least two of its terms must occur in one."""
        try:
            cards = self._cards()
        except OSError as error:
            return Found(Status.UNAVAILABLE, detail=f"{self._folder}: {error.strerror}")
        best = ranked(self._terms(_FRAME.sub("", question)), cards, self._match_count)
        return Found(
            Status.HIT if best else Status.ZERO_HIT, tuple(Hit(card.text, score=score) for card, score in best)
        )

    def _cards(self) -> list[_Card]:
        paths = sorted(self._folder.iterdir())  # raises when there is no such folder: not the same as no card
        found: dict[Path, _File] = {}
        for path in [path for path in paths if path.suffix.lower() == ".md" and path.is_file()][:MAX_FILES]:
            if not path.resolve().is_relative_to(self._folder.resolve()):
                continue  # a link out of the folder
            state = path.stat()
            stamp = (state.st_mtime_ns, state.st_size)
            known = self._files.get(path)
            found[path] = known if known and known.stamp == stamp else _File(stamp, self._read(path, state.st_size))
        self._files = found
        return [card for file in found.values() for card in file.cards]

    def _read(self, path: Path, size: int) -> tuple[_Card, ...]:
        if size > MAX_FILE_BYTES:
            return ()
        text = path.read_text("utf-8", errors="replace")
        return tuple(_Card(card, self._terms(card)) for card in split_cards(text))


def split_cards(text: str) -> list[str]:
    """One card a heading of the deepest level that the file uses; without headings the whole file is one card."""
    body = _FRONTMATTER.sub("", text)
    headings = list(_HEADING.finditer(body))
    deepest = max((_level(match.group()) for match in headings), default=0)
    starts = [match.start() for match in headings if _level(match.group()) == deepest]
    others = [match.start() for match in headings if _level(match.group()) < deepest]
    if not starts:
        return [body.strip()] if body.strip() else []
    cards = []
    for start in starts:
        end = min((place for place in (*starts, *others) if place > start), default=len(body))
        cards.append(body[start:end].strip())
    return [card for card in cards if len(card.splitlines()) > 1]


def _level(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))


def ranked(question: Counter[str], cards: list[_Card], limit: int) -> list[tuple[_Card, float]]:
    """BM25; a card that shares fewer than two terms with the question is no hit."""
    if not cards:
        return []
    average = sum(card.terms.total() for card in cards) / len(cards) or 1.0
    spread = Counter(term for card in cards for term in card.terms.keys() & question.keys())
    scored = []
    for card in cards:
        shared = card.terms.keys() & question.keys()
        if len(shared) < _MIN_TERMS:
            continue
        norm = _K1 * (1 - _B + _B * card.terms.total() / average)
        score = sum(
            math.log(1 + (len(cards) - spread[term] + 0.5) / (spread[term] + 0.5))
            * card.terms[term]
            * (_K1 + 1)
            / (card.terms[term] + norm)
            for term in shared
        )
        scored.append((card, score))
    return sorted(scored, key=lambda pair: (-pair[1], pair[0].text))[:limit]
