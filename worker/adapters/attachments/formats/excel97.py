"""Excel workbooks before 2007; must never run in the worker's own process (calamine may abort).

Excel 97-2003 goes through calamine, which is fast; what is older, and what calamine gives up on, through xlrd, which
knows the code pages of the old text.
"""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timedelta
from io import StringIO
from typing import Any, BinaryIO

import olefile

from worker.adapters.attachments.formats.ole import stream
from worker.adapters.attachments.formats.sink import FormatError, Sink, check_time
from worker.adapters.attachments.formats.tables import read_sheets, row_text

_FILEPASS = 0x2F
_BOUNDSHEET = 0x85
_EOF = 0x0A
_BIFF8 = 0x0600
_LARGEST_OLD = 64 * 1024 * 1024


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """A workbook of Excel 2 to 4: records without a container."""
    _read_old(file.read(_LARGEST_OLD), sink)


def read(container: olefile.OleFileIO, file: BinaryIO, sink: Sink) -> None:
    """All sheets."""
    name = "Workbook" if container.exists("Workbook") else "Book"
    records = stream(container, name)
    if _is_encrypted(records):
        raise FormatError("PASSWORD_PROTECTED", "encrypted workbook")
    file.seek(0)
    if struct.unpack_from("<HHH", records.ljust(6, b"\0"))[2] < _BIFF8:
        _read_old(file.read(_LARGEST_OLD), sink)
    else:
        _read_new(file, sink)


def _read_new(file: BinaryIO, sink: Sink) -> None:
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        workbook = CalamineWorkbook.from_filelike(file)
    except CalamineError:
        file.seek(0)
        _read_old(file.read(_LARGEST_OLD), sink)
        return

    def read_sheet(index: int, part: Sink) -> None:
        for number, row in enumerate(workbook.get_sheet_by_index(index).iter_rows()):
            if number % 256 == 0:
                check_time()
            _write_row(row, part)

    read_sheets(list(workbook.sheet_names), read_sheet, sink)


def _read_old(data: bytes, sink: Sink) -> None:
    import xlrd

    try:
        workbook = xlrd.open_workbook(file_contents=data, on_demand=True, logfile=StringIO())
        names = workbook.sheet_names()
    except Exception as error:  # xlrd raises whatever its arithmetic meets in a damaged file
        locked = "encrypted" in str(error)
        raise FormatError("PASSWORD_PROTECTED" if locked else "CORRUPT", f"xlrd: {type(error).__name__}") from error

    def read_sheet(index: int, part: Sink) -> None:
        sheet = workbook.sheet_by_index(index)
        for number in range(sheet.nrows):
            if number % 256 == 0:
                check_time()
            _write_row([_old_value(cell, workbook.datemode) for cell in sheet.row(number)], part)

    read_sheets(names, read_sheet, sink)


def _old_value(cell: Any, epoch: int) -> object:
    import xlrd

    if cell.ctype == xlrd.XL_CELL_DATE:
        try:
            return xlrd.xldate_as_datetime(cell.value, epoch)
        except (ValueError, OverflowError):
            return cell.value
    if cell.ctype == xlrd.XL_CELL_ERROR:
        return xlrd.error_text_from_code.get(cell.value, "")
    return bool(cell.value) if cell.ctype == xlrd.XL_CELL_BOOLEAN else cell.value


def _write_row(values: list[Any], sink: Sink) -> None:
    if cells := {column: shown for column, value in enumerate(values) if (shown := _shown(value))}:
        sink.write(row_text(cells))


def _is_encrypted(workbook: bytes) -> bool:
    """A FILEPASS record among the globals, before the sheets ([MS-XLS] 2.4.117)."""
    at = 0
    while at + 4 <= len(workbook):
        kind, length = struct.unpack_from("<HH", workbook, at)
        if kind == _FILEPASS:
            return True
        if kind in (_BOUNDSHEET, _EOF):
            return False
        at += 4 + length
    return False


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.15g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S").removesuffix(" 00:00:00").removesuffix(":00")
    if isinstance(value, (date, time, timedelta)):
        return str(value)
    return str(value)
