"""Office documents saved as one XML file (Word and Excel 2003, flat OPC, flat ODF); must not meet a package."""

from __future__ import annotations

import re
from collections.abc import Iterable

from worker.adapters.attachments.formats.opendocument import read_content
from worker.adapters.attachments.formats.sink import Sink
from worker.adapters.attachments.formats.tables import row_text
from worker.adapters.attachments.formats.word import OfficeText
from worker.adapters.attachments.formats.xml_stream import Attributes, local, parse

_ROOT = re.compile(r"<(?:[\w.-]+:)?(wordDocument|package|Workbook|document)[\s>]")
_OPEN_DOCUMENT = re.compile(r"mimetype\s*=\s*[\"']application/vnd\.oasis\.opendocument\.(\w+)")
_MARKS = {
    "wordDocument": "",  # no other format has it
    "package": "schemas.microsoft.com/office/2006/xmlPackage",
    "Workbook": "urn:schemas-microsoft-com:office:spreadsheet",
    "document": "urn:oasis:names:tc:opendocument",
}
"""What the root's namespace holds: other files have a ``<document>`` too."""


def read_flat(head: str, blocks: Iterable[bytes], sink: Sink) -> bool:
    """Whether ``blocks`` are such a document, which is then read. ``head`` is their beginning, decoded."""
    root = _ROOT.search(head)
    if root is None or _MARKS[root.group(1)] not in head:
        return False
    if root.group(1) == "document":
        found = _OPEN_DOCUMENT.search(head)
        read_content(blocks, sink, "ods" if found and found.group(1) == "spreadsheet" else "odt")
    elif root.group(1) == "Workbook":
        rows = _Rows(sink)
        parse(blocks, rows.start, rows.end, rows.data)
    else:
        text = OfficeText(sink)
        parse(blocks, text.start, text.end, text.data)
    return True


class _Rows:
    """Rows of a SpreadsheetML 2003 workbook, sheet by sheet."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._sheets: list[str] = []
        sink.meta["sheets"] = self._sheets
        self._cells: dict[int, str] = {}
        self._column = -1
        self._taking = False

    def start(self, tag: str, attrs: Attributes) -> None:
        name = local(tag)
        named = {local(key): value for key, value in attrs.items()}
        if name == "Worksheet":
            self._sheets.append(named.get("Name", ""))
            self._sink.write(f"\n[{self._sheets[-1]}]\n")
        elif name == "Row":
            self._cells, self._column = {}, -1
        elif name == "Cell":
            index = named.get("Index", "")
            self._column = int(index[:5]) - 1 if index.isdigit() else self._column + 1
        elif name == "Data":
            self._taking = True

    def end(self, tag: str) -> None:
        name = local(tag)
        if name == "Data":
            self._taking = False
        elif name == "Row" and self._cells:
            self._sink.write(row_text(self._cells))

    def data(self, text: str) -> None:
        if self._taking:
            self._cells[self._column] = self._cells.get(self._column, "") + text.removesuffix("T00:00:00.000")
