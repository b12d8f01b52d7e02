"""Plain text, Markdown, CSV, YAML, code and JSON: shown as they are, decoded; must not parse them."""

from __future__ import annotations

import re
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.sink import Sink

_READ = 400_000
_PIECE = 16_384
_ESCAPED = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(?:(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|([0-9a-f]{4}))", re.IGNORECASE
)
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
"""What terminals draw with (ECMA-48 5.4)."""


def extract(file: BinaryIO, sink: Sink, kind: str) -> None:
    """The first 400 kB as text; JSON's ``\\uXXXX`` of letters are shown as the letters they stand for."""
    data = file.read(_READ + 1)
    decoded = decode(data[:_READ], cut=len(data) > _READ)
    sink.meta.update(decoded.facts())
    for start in range(0, len(decoded.text), _PIECE):  # nothing is done with what will not be shown
        piece = decoded.text[start : start + _PIECE]
        sink.write(_ESCAPED.sub(_letter, piece) if kind == "json" else _COLOURS.sub("", piece))


def _letter(match: re.Match[str]) -> str:
    high, low, single = match.group(2), match.group(3), match.group(4)
    char = chr(int(single, 16) if single else 0x10000 + (int(high, 16) % 0x400 << 10) + int(low, 16) % 0x400)
    return match.group(1) + char if char.isprintable() and char > "\x7f" else match.group()
