"""Which lines of a Markdown text are code, tables, definitions or running text; must not change anything.

Block structure comes from markdown-it-py, which follows CommonMark and knows the lines of every block. Raw HTML is
switched off in it: our output holds none, so the structure meant is the one after escaping.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

Kind = Literal["code", "table", "definition", "text"]

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+\Z")


@dataclass(frozen=True)
class Block:
    """Lines ``start`` to ``end`` (not included) of one kind. A ``text`` block is one run of inline Markdown."""

    kind: Kind
    start: int
    end: int


@dataclass(frozen=True)
class Definition:
    """A link reference definition, ``[label]: target``; ``label`` as references are compared, ``target`` unescaped."""

    label: str
    target: str
    start: int
    end: int


@dataclass(frozen=True)
class OpenFence:
    """A fenced code block without closing fence: ``fence`` is what it opened with, its content ends before ``end``."""

    fence: str
    start: int
    end: int


@dataclass(frozen=True)
class Markdown:
    """A parsed text: ``"".join(lines)`` is the text itself, line ends included; ``blocks`` cover all lines once."""

    lines: list[str]
    tokens: list[Token]
    blocks: list[Block] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    open_fences: list[OpenFence] = field(default_factory=list)


def split_lines(text: str) -> list[str]:
    """Lines with their line ends, split only where CommonMark does (not at U+2028, form feed, …)."""
    return _LINE.findall(text)


def parse(text: str) -> Markdown:
    """The block structure of ``text``. Never raises; deeper nesting than 20 counts as running text, line by line."""
    env: dict[str, Any] = {}
    tokens = _parser().parse(text, env)
    definitions = _definitions(env)
    lines = split_lines(text)
    return Markdown(
        lines=lines,
        tokens=tokens,
        blocks=_blocks(tokens, definitions, len(lines)),
        definitions=definitions,
        open_fences=[fence for token in tokens if token.type == "fence" and (fence := _open_fence(token))],
    )


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005 - see every target, judge later
    return parser


def _definitions(env: dict[str, Any]) -> list[Definition]:
    named = list(env.get("references", {}).items())
    named += [(item["label"], item) for item in env.get("duplicate_refs", [])]
    found = [Definition(label, item["href"], item["map"][0], item["map"][1]) for label, item in named]
    return sorted(found, key=lambda definition: definition.start)


def _blocks(tokens: list[Token], definitions: list[Definition], count: int) -> list[Block]:
    kinds: dict[str, Kind] = {"fence": "code", "code_block": "code", "table_open": "table", "inline": "text"}
    found = [Block("definition", item.start, item.end) for item in definitions]
    found += [Block(kinds[item.type], item.map[0], item.map[1]) for item in tokens if item.map and item.type in kinds]
    # An indented line right below a table is code, but running text for a renderer without tables: not sure to be code.
    table_ends = {block.end for block in found if block.kind == "table"}
    indented = {item.map[0] for item in tokens if item.map and item.type == "code_block"}
    found = [block for block in found if block.start not in indented & table_ends]
    covered: list[Block] = []
    line = 0
    # at one line the table comes before the cells that lie in it
    for block in sorted(found, key=lambda item: (item.start, item.kind == "text")):
        start, end = max(block.start, line), min(block.end, count)
        if start >= end:
            continue
        covered += [Block("text", at, at + 1) for at in range(line, start)]
        covered.append(Block(block.kind, start, end))
        line = end
    return covered + [Block("text", at, at + 1) for at in range(line, count)]


def _open_fence(token: Token) -> OpenFence | None:
    assert token.map is not None
    start, end = token.map
    content_lines = token.content.count("\n") + (token.content != "" and not token.content.endswith("\n"))
    if content_lines <= end - start - 2:
        return None
    return OpenFence(token.markup, start, end)
