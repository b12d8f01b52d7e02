"""Excel 97-2003 workbooks through calamine; must never run in the worker's own process (it may abort)."""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timedelta
from typing import BinaryIO

import olefile
from python_calamine import CalamineWorkbook

from worker.adapters.attachments.formats.ole import stream
from worker.adapters.attachments.formats.sink import FormatError, Sink, check_time
from worker.adapters.attachments.formats.tables import read_sheets, row_text

_FILEPASS = 0x2F
_BOUNDSHEET = 0x85
_EOF = 0x0A


def read(container: olefile.OleFileIO, file: BinaryIO, sink: Sink) -> None:
    """All sheets."""
    name = "Workbook" if container.exists("Workbook") else "Book"
    if _is_encrypted(stream(container, name)):
        raise FormatError("PASSWORD_PROTECTED", "encrypted workbook")
    file.seek(0)
    read_workbook(file, sink)


def read_workbook(file: BinaryIO, sink: Sink) -> None:
    """The cells of any workbook that calamine reads."""
    try:
        workbook = CalamineWorkbook.from_filelike(file)
    except Exception as error:  # calamine has one error class for each of its formats
        raise FormatError("CORRUPT", f"calamine: {type(error).__name__}") from error

    def read_sheet(index: int, part: Sink) -> None:
        sheet = workbook.get_sheet_by_index(index)
        for number, row in enumerate(sheet.iter_rows()):
            if number % 256 == 0:
                check_time()
            cells = {column: shown for column, value in enumerate(row) if (shown := _shown(value))}
            if cells:
                part.write(row_text(cells))

    read_sheets(list(workbook.sheet_names), read_sheet, sink)


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
