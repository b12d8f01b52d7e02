"""The form of an answer that the knowledge base cannot give (CONTRACT §4.5): opening line, what is missing, supplement.

It finds and mends that form; it must not judge whether the evidence is sufficient, nor write an answer of its own.

What a supplement is: the first block (with the heading above it) that is neither the opening, nor about the knowledge
base or what it lacks, nor a list that such a block introduces. A block that names an evidence page is no supplement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from tasks.rules.markdown_blocks import parse, split_lines
from tasks.rules.wordings import CHINESE, WORDINGS, Wording

_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_HEAD = 5_000  # a first line that begins later is none
_LEADING_MARKS = re.compile(r"[\s>*_~`-]+")


@dataclass(frozen=True)
class Supplement:
    """Lines from ``start`` on are not from the knowledge base; ``labelled``: and say so."""

    start: int
    labelled: bool


def has_opening(text: str, wording: Wording) -> bool:
    """Whether the first line that is no heading says that the knowledge base cannot answer."""
    line = _first_line(text)
    return any(item.cannot.search(line) for item in (wording, WORDINGS[CHINESE]))


def names_what_is_missing(text: str, wording: Wording) -> bool:
    """Whether anything besides the opening words says which evidence is missing."""
    return any(item.missing.search(item.cannot.sub("", text, count=1)) for item in (wording, WORDINGS[CHINESE]))


def find_supplement(text: str, wording: Wording, page_names: Sequence[str]) -> Supplement | None:
    """Where the supplement begins, if there is one."""
    markdown = parse(text)
    blocks = list(_blocks(markdown.tokens, markdown.lines))
    for block in blocks:
        if block.kind not in ("fence", "code_block") and wording.labelled.search(block.text):
            return Supplement(block.start, labelled=True)
    start = _unlabelled(blocks, wording, page_names)
    return None if start is None else Supplement(start, labelled=False)


def labelled(text: str, supplement: Supplement, label: str) -> str:
    """``text`` with ``label`` as a line of its own above the supplement."""
    lines = split_lines(text)
    before, after = "".join(lines[: supplement.start]), "".join(lines[supplement.start :])
    return "\n\n".join(part for part in (before.rstrip(), f"**{label}**", after) if part)


def without_supplement(text: str, supplement: Supplement, wording: Wording) -> str:
    """``text`` up to the supplement, and what a later heading about the missing evidence brings."""
    markdown = parse(text)
    kept = ["".join(markdown.lines[: supplement.start]).rstrip()]
    keeping = False
    for block in _blocks(markdown.tokens, markdown.lines):
        if block.start <= supplement.start:
            continue
        if block.kind == "heading_open":
            keeping = _is_own(block.text, wording, ())
        if keeping:
            kept.append(block.text.rstrip())
    return "\n\n".join(part for part in kept if part)


@dataclass(frozen=True)
class _Block:
    kind: str
    start: int
    text: str


def _blocks(tokens: Sequence[Token], lines: Sequence[str]) -> Iterator[_Block]:
    for token in tokens:
        if token.level == 0 and token.map and token.nesting >= 0:
            kind = token.type
            yield _Block(kind, token.map[0], "".join(lines[token.map[0] : token.map[1]]))


def _unlabelled(blocks: Sequence[_Block], wording: Wording, page_names: Sequence[str]) -> int | None:
    heading: int | None = None
    own_section = introduced = opened = False
    for block in blocks:
        if block.kind == "heading_open":
            heading, own_section, introduced = block.start, _is_own(block.text, wording, ()), False
            continue
        if block.kind == "hr":
            continue
        is_own = not opened or own_section or introduced or _is_own(block.text, wording, page_names)
        if not is_own:
            return block.start if heading is None else heading
        opened, heading = True, None
        introduced = block.text.rstrip().endswith(("：", ":"))
    return None


def _is_own(text: str, wording: Wording, page_names: Sequence[str]) -> bool:
    words = (wording, WORDINGS[CHINESE])
    return any(item.own.search(text) or item.missing.search(text) for item in words) or any(
        name in text for name in page_names
    )


def _first_line(text: str) -> str:
    markdown = parse(text[:_HEAD])
    for block in _blocks(markdown.tokens, markdown.lines):
        if block.kind == "heading_open":
            continue
        lines = (line for line in block.text.splitlines() if line.strip() and not _HEADING.match(line))
        if line := next(lines, ""):
            return _LEADING_MARKS.sub(" ", line)
    return ""
