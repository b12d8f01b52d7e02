"""xlsb: cells of binary workbooks ([MS-XLSB] 2.1.4), streamed; calamine, which may abort, is not used for them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from worker.adapters.attachments.formats.cell_values import NumberStyles, shown_number
from worker.adapters.attachments.formats.package import Package
from worker.adapters.attachments.formats.sink import FormatError, Sink
from worker.adapters.attachments.formats.tables import read_sheets, row_text
from worker.adapters.attachments.formats.xml_stream import main_part, relations

_ROW, _RK, _BOOL, _REAL, _TEXT, _SHARED, _FORMULA_TEXT, _FORMULA_NUMBER, _FORMULA_BOOL = 0, 2, 4, 5, 6, 7, 8, 9, 10
_STRING_ITEM, _FORMAT, _STYLE, _BEGIN_CELL_STYLES, _END_CELL_STYLES = 19, 44, 47, 617, 618
_END_DATA, _WORKBOOK_PROPERTIES, _SHEET = 146, 153, 156
_MAX_SHARED = 200_000
_MAX_CELL = 8_000


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """All sheets of a workbook."""
    workbook = _Workbook(Package(file))
    read_sheets([name for name, _ in workbook.sheets], workbook.read_sheet, sink)


class _Workbook:
    def __init__(self, package: Package) -> None:
        self._package = package
        part = main_part(package, "xl/")
        by_id = relations(package, part)
        related = dict(by_id.values())
        self.sheets: list[tuple[str, str]] = []
        epoch_1904 = False
        for kind, body in _records(package.blocks(part)):
            if kind == _WORKBOOK_PROPERTIES:
                epoch_1904 = bool(body[:1] and body[0] & 1)
            elif kind == _SHEET:
                relation, at = _wide(body, 8)
                name, _ = _wide(body, at)
                if relation in by_id:
                    self.sheets.append((name, by_id[relation][1]))
        if not self.sheets:
            raise FormatError("CORRUPT", "no sheets")
        self._styles = NumberStyles(epoch_1904=epoch_1904)
        self._read_styles(related.get("styles", ""))
        strings = related.get("sharedStrings", "")
        self._records = _records(package.blocks(strings)) if strings else iter(())
        self._strings: list[str] = []

    def read_sheet(self, index: int, sink: Sink) -> None:
        """Rows of one sheet that hold something."""
        cells: dict[int, str] = {}
        for kind, body in _records(self._package.blocks(self.sheets[index][1])):
            if kind in (_ROW, _END_DATA):
                if cells:
                    sink.write(row_text(cells))
                cells = {}
            elif kind <= _FORMULA_BOOL and len(body) > 8 and (value := self._value(kind, body)):
                cells[struct.unpack_from("<I", body)[0]] = value
        if cells:
            sink.write(row_text(cells))

    def _read_styles(self, part: str) -> None:
        inside = False
        for kind, body in _records(self._package.blocks(part)) if part else ():
            if kind == _FORMAT and len(body) > 6:
                self._styles.add_format(struct.unpack_from("<H", body)[0], _wide(body, 2)[0])
            elif kind in (_BEGIN_CELL_STYLES, _END_CELL_STYLES):
                inside = kind == _BEGIN_CELL_STYLES
            elif kind == _STYLE and inside and len(body) >= 4:
                self._styles.add_style(struct.unpack_from("<H", body, 2)[0])

    def _value(self, kind: int, body: bytes) -> str:
        if kind in (_TEXT, _FORMULA_TEXT):
            return _wide(body, 8)[0][:_MAX_CELL]
        if kind in (_BOOL, _FORMULA_BOOL):
            return "TRUE" if body[8] else "FALSE"
        if kind == _SHARED and len(body) >= 12:
            return self._string(struct.unpack_from("<I", body, 8)[0])
        if kind in (_REAL, _FORMULA_NUMBER) and len(body) >= 16:
            return self._number(body, struct.unpack_from("<d", body, 8)[0])
        if kind == _RK and len(body) >= 12:
            return self._number(body, _rk(struct.unpack_from("<I", body, 8)[0]))
        return ""

    def _number(self, body: bytes, value: float) -> str:
        style = int.from_bytes(body[4:7], "little")
        styled = self._styles.shown(style, repr(value))
        return shown_number(repr(value)) if styled is None else styled

    def _string(self, number: int) -> str:
        while number >= len(self._strings) and len(self._strings) < _MAX_SHARED:
            kind, body = next(self._records, (-1, b""))
            if kind < 0:
                break
            if kind == _STRING_ITEM:
                self._strings.append(_wide(body, 1)[0][:_MAX_CELL])
        return self._strings[number] if number < len(self._strings) else ""


def _records(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """``(type, body)`` of each record; a record cut off at the end is left out."""
    data, at = b"", 0
    for block in blocks:
        data, at = data[at:] + block, 0
        while (head := _head(data, at)) is not None:
            kind, start, size = head
            if start + size > len(data):
                break
            yield kind, data[start : start + size]
            at = start + size


def _head(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Type, start of the body and its size, both numbers of seven bits a byte; ``None``: not all there yet."""
    try:
        kind = data[at]
        at += 1
        if kind & 0x80:
            kind = (kind & 0x7F) | (data[at] & 0x7F) << 7
            at += 1
        size = 0
        for shift in (0, 7, 14, 21):
            size |= (data[at] & 0x7F) << shift
            at += 1
            if data[at - 1] < 0x80:
                break
    except IndexError:
        return None
    return kind, at, size


def _wide(body: bytes, at: int) -> tuple[str, int]:
    """A counted UTF-16 text and where it ends; an absent one is empty."""
    if at + 4 > len(body):
        return "", len(body)
    count = struct.unpack_from("<I", body, at)[0]
    if count == 0xFFFF_FFFF:
        return "", at + 4
    end = min(at + 4 + 2 * count, len(body))
    return body[at + 4 : end].decode("utf-16-le", "ignore"), end


def _rk(raw: int) -> float:
    """A number squeezed into 30 bits ([MS-XLSB] 2.5.122)."""
    if raw & 2:
        value = float((raw >> 2) - (1 << 30 if raw & 0x8000_0000 else 0))
    else:
        value = float(struct.unpack("<d", struct.pack("<Q", (raw & 0xFFFF_FFFC) << 32))[0])
    return value / 100 if raw & 1 else value
