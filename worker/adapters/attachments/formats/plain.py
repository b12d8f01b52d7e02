"""Plain text, Markdown, CSV, YAML, code and JSON: shown as they are, decoded; must not parse them."""

from __future__ import annotations

import re
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.sink import Sink

_READ = 400_000
_PIECE = 16_384
_ESCAPED = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-fA-F]{4})")


def extract(file: BinaryIO, sink: Sink, kind: str) -> None:
    """The first 400 kB as text; JSON's ``\\uXXXX`` of letters are shown as the letters they stand for."""
    data = file.read(_READ + 1)
    decoded = decode(data[:_READ], cut=len(data) > _READ)
    sink.meta.update(decoded.facts())
    for start in range(0, len(decoded.text), _PIECE):  # nothing is done with what will not be shown
        piece = decoded.text[start : start + _PIECE]
        sink.write(_ESCAPED.sub(_letter, piece) if kind == "json" else piece)


def _letter(match: re.Match[str]) -> str:
    char = chr(int(match.group(2), 16))
    return match.group(1) + char if char.isprintable() and char > "\x7f" else match.group()
