"""XML files: data and configuration as written, document formats as their text; must not resolve an entity."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.flat_office import read_flat
from worker.adapters.attachments.formats.sink import FormatError, Sink
from worker.adapters.attachments.formats.xml_stream import Attributes, local, parse

_READ = 8 * 1024 * 1024
_SHOWN = 400_000
_PIECE = 16_384
_ENCODING = re.compile(rb"^\s*<\?xml[^>]{0,100}?encoding\s*=\s*[\"']([A-Za-z0-9_:.-]{2,30})[\"']")
_DECLARATION = re.compile(r"^\s*<\?xml.*?\?>", re.DOTALL)
_ENTITY = re.compile(r"<!ENTITY\b", re.IGNORECASE)
_QUOTED_MARKUP = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>", re.DOTALL)
_OFFICE_HEAD = 16_384  # LibreOffice declares thirty namespaces before it says what the file is
_DOCUMENT_ROOT = re.compile(r"<(?:[\w.-]+:)?(document|TEI|book|article|FictionBook|svg)[\s>]")
_SKIPPED = frozenset({"binData", "binaryData", "binary", "style", "script", "instrText", "delText"})
_LINES = frozenset({"p", "h", "Row", "tr", "title", "para", "row", "item", "v", "text"})


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The first part of the file as it is; of Office's flat XML and book formats the character data."""
    data = file.read(_READ)
    found = _ENCODING.search(data[:300])
    decoded = decode(data, found.group(1).decode("ascii") if found else None, cut=len(data) >= _READ)
    sink.meta.update(decoded.facts())
    if _ENTITY.search(_QUOTED_MARKUP.sub("", decoded.text[:_SHOWN])):
        raise FormatError("FORBIDDEN_XML", "declares entities")
    if read_flat(decoded.text[:_OFFICE_HEAD], _blocks(decoded.text), sink):
        return
    if _DOCUMENT_ROOT.search(decoded.text[:4096]):
        _read_document(decoded.text, sink)
    else:
        for start in range(0, min(len(decoded.text), _SHOWN), _PIECE):
            sink.write(decoded.text[start : start + _PIECE])


def _read_document(text: str, sink: Sink) -> None:
    skip = 0

    def start(tag: str, _attrs: Attributes) -> None:
        nonlocal skip
        if skip or local(tag) in _SKIPPED:
            skip += 1

    def end(tag: str) -> None:
        nonlocal skip
        if skip:
            skip -= 1
        elif local(tag) in _LINES:
            sink.write("\n")
        elif local(tag) in ("Cell", "cell", "td", "table-cell"):
            sink.write("\t")

    def data(characters: str) -> None:
        if not skip:
            sink.write(characters)

    parse(_blocks(text), start, end, data)


def _blocks(text: str) -> Iterator[bytes]:
    body = _DECLARATION.sub("", text, count=1).encode("utf-8", "replace")  # decoded here, so no longer as declared
    for at in range(0, len(body), 65_536):
        yield body[at : at + 65_536]
