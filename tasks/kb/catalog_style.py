"""How a ``catalog.json`` is laid out, found in its bytes and used for what is added; must not know what entries mean.

Seen in the wild: two or four spaces, tabs, one entry a line, no white space at all, Jackson's ``"path" : "x"`` and
``[ {``, CRLF, escaped non-ASCII.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject

_SPACE = re.compile(rb"[ \t\r\n]*")
_FIRST_MEMBER = re.compile(rb'\{([ \t\r\n]*)"(?:[^"\\]|\\.)*"([ \t\r\n]*:[ \t\r\n]*)', re.DOTALL)
_FILLED_LIST = re.compile(rb":[ \t\r\n]*\[([ \t\r\n]*)[^\s\]]")


@dataclass(frozen=True)
class Style:
    """White space of one catalog, as bytes.

    ``top_lead``: before a top-level key · ``page_lead``: before an entry · ``separator``: comma and white space between
    two entries · ``page_tail``: before the list's end · ``member_lead``/``member_tail``: around an entry's members
    (a line break in it: one member a line) · ``unit``: one step of indentation · ``list_pad``: inside the brackets of a
    list that stands on one line · ``lists_open``: one list item a line.
    """

    top_lead: bytes = b"\n  "
    page_lead: bytes = b"\n    "
    separator: bytes = b",\n    "
    page_tail: bytes = b"\n  "
    member_lead: bytes = b"\n      "
    member_tail: bytes = b"\n    "
    unit: bytes = b"  "
    colon: bytes = b": "
    comma: bytes = b", "
    list_pad: bytes = b""
    lists_open: bool = True
    ascii_only: bool = False

    def value(self, value: object) -> bytes:
        """A value without any layout of its own."""
        return json.dumps(strict_json.clean(value), ensure_ascii=self.ascii_only, allow_nan=False).encode()

    def member(self, name: str, value: bytes) -> bytes:
        """``"name": value`` for a value already rendered."""
        return self.value(name) + self.colon + value

    def entry(self, entry: JsonObject) -> bytes:
        """One entry of ``pages``, laid out like its neighbours."""
        return self._object(entry, self.member_lead, self.member_tail)

    def entries(self, entries: Sequence[JsonObject]) -> bytes:
        """The whole list ``pages``."""
        body = self.separator.join(self.entry(entry) for entry in entries)
        return b"[" + self.page_lead + body + self.page_tail + b"]"

    def _object(self, value: JsonObject, lead: bytes, tail: bytes) -> bytes:
        if not value:
            return b"{}"
        comma = b"," + lead if b"\n" in lead else self.comma
        return b"{" + lead + comma.join(self.member(k, self._any(v, lead)) for k, v in value.items()) + tail + b"}"

    def _any(self, value: Any, tail: bytes) -> bytes:
        lead = tail + self.unit if b"\n" in tail else tail
        if isinstance(value, dict):
            return self._object(value, lead, tail)
        if not isinstance(value, list):
            return self.value(value)
        items = [self._any(item, lead) for item in value]
        if self.lists_open and items and b"\n" in lead:
            return b"[" + lead + (b"," + lead).join(items) + tail + b"]"
        return b"[" + self.list_pad + self.comma.join(items) + (self.list_pad if items else b"") + b"]"


def found_style(text: bytes, pages: tuple[int, int] | None, entries: Sequence[bytes], gap: bytes) -> Style:
    """The layout of the catalog ``text``.

    ``pages``: start and end of the list in it · ``entries``: its first few · ``gap``: the bytes between the first two,
    ``b""`` when there are fewer.
    """
    top = _FIRST_MEMBER.match(text.lstrip()[:1000])
    top_lead, colon = (top[1], top[2]) if top else (b"", b": ")
    ascii_only = text.isascii() and b"\\u" in text
    sample = next((entry for entry in entries if _FIRST_MEMBER.match(entry)), None)
    if sample is None or pages is None:
        return _style_of_top_level(top_lead, colon, ascii_only=ascii_only)
    first = _FIRST_MEMBER.match(sample)
    member_lead, colon = (first[1], first[2]) if first else (b"", colon)
    member_tail = _space_before(sample, len(sample) - 1)
    page_lead = _space_after(text, pages[0] + 1)
    filled = next((found for entry in entries if (found := _FILLED_LIST.search(entry))), None)
    list_lead = filled[1] if filled else member_lead
    return Style(
        top_lead=top_lead,
        page_lead=page_lead,
        separator=gap or (b"," + page_lead if b"\n" in page_lead else _comma(colon)),
        page_tail=_space_before(text, pages[1] - 1),
        member_lead=member_lead,
        member_tail=member_tail,
        unit=_step(member_tail, member_lead),
        colon=colon,
        comma=_comma(colon),
        list_pad=b"" if b"\n" in list_lead else list_lead,
        lists_open=b"\n" in list_lead,
        ascii_only=ascii_only,
    )


def _style_of_top_level(top_lead: bytes, colon: bytes, *, ascii_only: bool) -> Style:
    """No entry shows how entries look: go on from the top level's own indentation."""
    line, unit = _line_and_indent(top_lead)
    step = [line + unit * depth if line else b"" for depth in range(4)]
    return Style(
        top_lead=top_lead,
        page_lead=step[2],
        separator=b"," + step[2] if line else _comma(colon),
        page_tail=step[1],
        member_lead=step[3],
        member_tail=step[2],
        unit=unit,
        colon=colon,
        comma=_comma(colon),
        ascii_only=ascii_only,
    )


def _comma(colon: bytes) -> bytes:
    return b", " if colon[-1:].isspace() else b","


def _step(outer: bytes, inner: bytes) -> bytes:
    """How much deeper ``inner`` is indented than ``outer``."""
    return _line_and_indent(inner)[1].removeprefix(_line_and_indent(outer)[1])


def _line_and_indent(lead: bytes) -> tuple[bytes, bytes]:
    """``b"\\r\\n  "`` → ``(b"\\r\\n", b"  ")``; without a line break the first part is empty."""
    before, line, indent = lead.rpartition(b"\n")
    return (b"\r\n" if before.endswith(b"\r") else line, indent)


def _space_after(text: bytes, at: int) -> bytes:
    found = _SPACE.match(text, at)
    return found[0] if found else b""


def _space_before(text: bytes, at: int) -> bytes:
    head = text[max(0, at - 200) : at]
    return head[len(head.rstrip()) :]
