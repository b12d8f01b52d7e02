"""Markdown headings as plain text; must not render Markdown: only what a title and a section border need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_MARKDOWN = 500
"""So much of a heading is read: no title is longer, and a line of megabytes must not hold up the patterns below."""

_MARKS = frozenset("#=-`~")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?\Z")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\Z")
_NOT_TEXT = re.compile(r" {4}|\t| {0,3}(?:>|[-*+][ \t]|\d{1,9}[.)][ \t]|<|\||(?:[-*_][ \t]*){3,}\Z)")
_ANCHOR = re.compile(r"\s*\{[#.:][^{}]*\}\s*\Z")
_CODE = re.compile(r"(?<!`)(`++)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->")
_STRONG = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_LINE_END = re.compile(r"\r\n|\n|\r")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Heading:
    """``line`` counts from 0 in the text that was read; ``level`` is 1-6; ``text`` is one plain line, never blank."""

    level: int
    text: str
    line: int


def headings(body: str) -> Iterator[Heading]:
    """ATX and setext headings in order, outside code fences (CommonMark 0.31 §§4.2-4.5)."""
    fence = ""
    paragraph: list[str] = []
    for number, line in enumerate(_LINE_END.split(body)):
        if fence:
            fence = "" if _closes(line, fence) else fence
            continue
        if line.lstrip(" ")[:1] not in _MARKS:  # most lines: neither heading, underline nor fence
            paragraph = _continued(paragraph, line)
            continue
        if opening := _FENCE.match(line):
            if opening[1][0] == "~" or "`" not in opening[2]:
                fence, paragraph = opening[1], []
                continue
        elif found := _heading(line, number, paragraph):
            paragraph = []
            if found.text:
                yield found
            continue
        paragraph = _continued(paragraph, line)


def first_heading(body: str) -> str:
    """The text of the first heading, ``""`` when there is none."""
    return next((heading.text for heading in headings(body)), "")


def atx_heading(line: str) -> tuple[int, str] | None:
    """Level and Markdown text of a line ``## text ##``, else ``None``; ``line`` without its line end."""
    atx = _ATX.match(line)
    if atx is None:
        return None
    text = (atx[2] or "").rstrip(" \t")
    open_end = text.rstrip("#")
    is_closed = open_end[-1:] in ("", " ", "\t")
    return len(atx[1]), (open_end.rstrip(" \t") if is_closed else text)


def _heading(line: str, number: int, paragraph: list[str]) -> Heading | None:
    if atx := atx_heading(line):
        level, text = atx
        return Heading(level, _plain(text), number)
    if paragraph and (underline := _UNDERLINE.match(line)):
        return Heading(1 if underline[1][0] == "=" else 2, _plain(" ".join(paragraph)), number - len(paragraph))
    return None


def _closes(line: str, fence: str) -> bool:
    closing = _FENCE.match(line)
    return bool(closing and closing[1].startswith(fence) and not closing[2].strip())


def _continued(paragraph: list[str], line: str) -> list[str]:
    """The paragraph that an underline would turn into a heading."""
    if not line.strip() or (not paragraph and _NOT_TEXT.match(line)) or len(paragraph) >= 3:
        return []
    return [*paragraph, line.strip()]


def _plain(text: str) -> str:
    """Heading text without anchor and inline marks; code spans keep their content as it is."""
    text = _ANCHOR.sub("", text[:_MAX_MARKDOWN].strip())
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [_unmarked(text[at : code.start()]), code[2].strip()]
        at = code.end()
    parts.append(_unmarked(text[at:]))
    return _SPACE.sub(" ", "".join(parts)).strip()


def _unmarked(text: str) -> str:
    text = _LINK.sub(r"\1", _TAG.sub("", text))
    return _ESCAPE.sub(r"\1", _STRONG.sub(r"\2", text))
