"""xlsx: rows streamed until there is enough, shared strings read only as far as a cell asks; never a dense grid."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import BinaryIO

from worker.adapters.attachments.formats.cell_values import NumberStyles, shown_number
from worker.adapters.attachments.formats.package import Package
from worker.adapters.attachments.formats.sink import FormatError, Sink
from worker.adapters.attachments.formats.tables import read_sheets, row_text
from worker.adapters.attachments.formats.word import read_part
from worker.adapters.attachments.formats.xml_stream import Attributes, XmlStream, local, main_part, parse, relations

_MAX_SHARED = 200_000
_MAX_CELL = 8_000
_MAX_FORMULA = 500
_ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")
_VALUE_MARKS = (b"v>", b"is>", b"f>", b"Data>")


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """All sheets of a workbook, then texts of comments and shapes."""
    package = Package(file)
    workbook = Workbook(package)
    read_sheets([name for name, _ in workbook.sheets], workbook.read_sheet, sink)
    for name in (
        *package.names("xl/comments"),
        *package.names("xl/threadedcomments/"),
        *package.names("xl/drawings/drawing"),
    ):
        sink.write("\n")
        read_part(package, name, sink)


class Workbook:
    """A package with its sheets in order, its styles, and its shared strings as far as they were needed."""

    def __init__(self, package: Package) -> None:
        self._package = package
        part = main_part(package, "xl/")
        by_id = relations(package, part)
        self.sheets: list[tuple[str, str]] = []
        self.epoch_1904 = False
        names: list[str] = []

        def start(tag: str, attrs: Attributes) -> None:
            if local(tag) == "sheet":
                target = next(
                    (by_id[value][1] for key, value in attrs.items() if local(key) == "id" and value in by_id), ""
                )
                names.append(attrs.get("name", ""))
                if target:
                    self.sheets.append((attrs.get("name", ""), target))
            elif local(tag) == "workbookPr":
                self.epoch_1904 = attrs.get("date1904") in ("1", "true")

        parse(package.blocks(part), start)
        if not self.sheets:  # written without relations by some exporters
            found = [name for name in package.names("xl/worksheets/") if name.count("/") == 2]
            shown = names if len(names) == len(found) else [f"Sheet{number}" for number in range(1, len(found) + 1)]
            self.sheets = list(zip(shown, found, strict=True))
        if not self.sheets:
            raise FormatError("CORRUPT", "no sheets")
        related = dict(by_id.values())
        self._strings = _SharedStrings(package, related.get("sharedStrings", "xl/sharedStrings.xml"))
        self.styles = NumberStyles(epoch_1904=self.epoch_1904)
        styles = related.get("styles", "xl/styles.xml")
        if styles in package:
            with contextlib.suppress(FormatError):  # without styles dates show as numbers, the rest is right
                parse(package.blocks(styles), self.styles.start, self.styles.end)

    def read_sheet(self, index: int, sink: Sink) -> None:
        """Rows of one sheet that hold something."""
        rows = _Rows(sink, self)
        stream = XmlStream(rows.start, rows.end, rows.data)
        for block in _without_empty_rows(self._package.blocks(self.sheets[index][1])):
            stream.feed(block)
        stream.feed(b"", final=True)

    def value(self, kind: str, style: str, raw: str) -> str:
        """A cell as people see it, near enough."""
        if kind == "s":
            return self._strings.get(int(raw)) if raw.isdigit() else ""
        if kind in ("str", "inlineStr"):
            return _unescaped(raw)
        if kind == "b":
            return "TRUE" if raw.strip() == "1" else "FALSE"
        if kind in ("e", "d"):
            return raw
        styled = self.styles.shown(style, raw)
        return shown_number(raw) if styled is None else styled


class _Rows:
    def __init__(self, sink: Sink, workbook: Workbook) -> None:
        self._sink = sink
        self._workbook = workbook
        self._cells: dict[int, str] = {}
        self._column = -1
        self._kind = "n"
        self._style = ""
        self._taking = False
        self._in_formula = False
        self._formula = ""
        self._skip = 0
        self._text: list[str] = []
        self._length = 0

    def start(self, tag: str, attrs: Attributes) -> None:
        name = local(tag)
        if name == "c":
            self._column = _column(attrs.get("r", "")) if "r" in attrs else self._column + 1
            self._kind = attrs.get("t", "n")
            self._style = attrs.get("s", "")
            self._text = []
            self._length = 0
            self._formula = ""
        elif name == "f":
            self._in_formula = True
        elif name == "v" or name == "t":
            self._taking = not self._skip
        elif name == "rPh":  # how a Japanese word is read: not part of the cell
            self._skip += 1
        elif name == "row":
            self._flush()

    def end(self, tag: str) -> None:
        name = local(tag)
        if name == "v" or name == "t":
            self._taking = False
        elif name == "f":
            self._in_formula = False
        elif name == "rPh":
            self._skip -= 1
        elif name == "c":
            if self._text and (value := self._workbook.value(self._kind, self._style, "".join(self._text)).strip()):
                self._cells[self._column] = value
            elif self._formula and not self._text:  # saved by a program that does not calculate
                self._cells[self._column] = f"={self._formula}"
        elif name == "row" or name == "sheetData":
            self._flush()

    def data(self, text: str) -> None:
        if self._taking and self._length < _MAX_CELL:
            self._text.append(text)
            self._length += len(text)
        elif self._in_formula and len(self._formula) < _MAX_FORMULA:
            self._formula += text

    def _flush(self) -> None:
        self._column = -1
        if self._cells:
            cells, self._cells = self._cells, {}
            self._sink.write(row_text(cells))


class _SharedStrings:
    """Strings by number, parsed no further than the highest number that was asked for."""

    def __init__(self, package: Package, part: str) -> None:
        self._strings: list[str] = []
        self._text: list[str] = []
        self._taking = False
        self._skip = 0
        self._blocks: Iterator[bytes] = package.blocks(part) if part in package else iter(())
        self._stream = XmlStream(self._start, self._end, self._data)

    def get(self, number: int) -> str:
        while number >= len(self._strings) and len(self._strings) < _MAX_SHARED:
            block = next(self._blocks, b"")
            if not block:
                break
            self._stream.feed(block)
        return self._strings[number] if number < len(self._strings) else ""

    def _start(self, tag: str, _attrs: Attributes) -> None:
        name = local(tag)
        if name == "t":
            self._taking = not self._skip
        elif name == "rPh":
            self._skip += 1

    def _end(self, tag: str) -> None:
        name = local(tag)
        if name == "t":
            self._taking = False
        elif name == "rPh":
            self._skip -= 1
        elif name == "si":
            self._strings.append(_unescaped("".join(self._text)[:_MAX_CELL]))
            self._text = []

    def _data(self, text: str) -> None:
        if self._taking:
            self._text.append(text)


def _unescaped(text: str) -> str:
    """``_x000D_`` is how a cell holds what XML cannot (ECMA-376 part 1, 22.9.2.19)."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), text) if "_x" in text else text


def _column(reference: str) -> int:
    column = 0
    for char in reference:
        if not char.isalpha():
            break
        column = column * 26 + (ord(char.upper()) - 64)
    return min(column, 20_000) - 1


def _without_empty_rows(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same XML without stretches of rows that hold no value.

    A million formatted but empty rows are ordinary, and a call of ours for each of them is slow. The bytes are cut
    before a row begins, so each stretch is whole rows; one without any value mark is dropped unparsed, and what the
    parser sees stays well-formed. Markup that is not plain (UTF-16, comments) reaches the parser untouched.
    """
    carry = b""
    inside = False
    for block in blocks:
        data = carry + block
        end = data.rfind(b"<row ")
        if end <= 0:
            carry, inside = b"", False
            yield data
            continue
        data, carry = data[:end], data[end:]
        if not (inside and data.startswith(b"<row ") and _holds_no_value(data)):
            yield data
        inside = True
    yield carry


def _holds_no_value(rows: bytes) -> bool:
    """Few scans decide: without an end tag there is no value; else a value's end tag is looked for."""
    if b"<!" in rows:
        return False
    return b"</" not in rows or not any(mark in rows for mark in _VALUE_MARKS)
