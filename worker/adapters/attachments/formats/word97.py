"""Word 97-2003 and 6/95 documents: text by the piece table ([MS-DOC] 2.4.1), field codes left out; no formatting."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import olefile

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.ole import stream
from worker.adapters.attachments.formats.sink import FormatError, Sink, check_time
from worker.adapters.attachments.formats.word97_marks import row_ends, unshown

_ENCRYPTED = 0x0100
_TABLE_1 = 0x0200
_COMPLEX = 0x0004
_WIDE_CHARS = 0x1000
_WORD_97 = 0x00C0
_MAX_PIECES = 100_000
_CELL_END, _WIDE_CELL_END = b"\x07", b"\x07\0"
_FIELD = re.compile("\x13[^\x13\x14\x15]*(?:\x14([^\x13\x14\x15]*))?\x15")
_READABLE = re.compile("[ -~\t\r\x07\u2010-\u2026\u3000-\u303f\u3041-\u30ff\u4e00-\u9fff\uff00-\uffef]{6,}")
_MAX_NESTED_FIELDS = 5
_MARKS = str.maketrans({
    "\r": "\n", "\x07": "\t", "\x0b": "\n", "\x0c": "\n", "\x0e": "\n", "\x1e": "-", "\x1f": "", "\xa0": " ",
    "\x01": "", "\x02": "", "\x03": "", "\x04": "", "\x05": "", "\x08": "", "\x13": "", "\x14": "", "\x15": "",
})  # fmt: skip


def read(container: olefile.OleFileIO, sink: Sink) -> None:
    """The text of a document: body, then notes, headers and text boxes as they are stored."""
    main = stream(container, "WordDocument")
    if len(main) < 0x40:
        raise FormatError("CORRUPT", "WordDocument stream too short")
    version, flags = struct.unpack_from("<H", main, 2)[0], struct.unpack_from("<H", main, 0x0A)[0]
    if flags & _ENCRYPTED:
        raise FormatError("PASSWORD_PROTECTED", "encrypted document")
    if version >= _WORD_97 and len(main) >= 0x1AA:
        names = ("1Table", "0Table") if flags & _TABLE_1 else ("0Table", "1Table")
        table = stream(container, names[0]) or stream(container, names[1])
        pieces = _pieces_97(main, table)
    else:
        pieces = _pieces_95(main, flags)
    text = "".join(_limited(pieces, sink.limit * 4))
    if not text.strip():  # some programs write a piece table that points nowhere, and the text where the header says
        text = _plain_range(main)
    sink.write(shown(text))


def shown(text: str) -> str:
    """Word's marks as line ends and tabs; of a field its result only."""
    for _ in range(_MAX_NESTED_FIELDS):
        text, found = _FIELD.subn(lambda match: match.group(1) or "", text)
        if not found:
            break
    return text.translate(_MARKS)


def _limited(pieces: Iterator[str], limit: int) -> Iterator[str]:
    total = 0
    for piece in pieces:
        check_time()
        yield piece[: limit - total]
        total += len(piece)
        if total >= limit:
            return


def _pieces_97(main: bytes, table: bytes) -> Iterator[str]:
    rows, gaps = row_ends(main, table), unshown(main, table)
    start, length = struct.unpack_from("<II", main, 0x1A2)
    clx = table[start : start + length]
    pieces = list(_piece_table(clx))
    narrow = b"".join(main[fc // 2 : fc // 2 + count] for fc, count, is_narrow in pieces if is_narrow)
    codec = _narrow_codec(narrow)
    for fc, count, is_narrow in pieces:
        start, size = (fc // 2, count) if is_narrow else (fc, 2 * count)
        raw = _with_rows(main[start : start + size], start, _CELL_END if is_narrow else _WIDE_CELL_END, rows)
        yield _without(raw, start, gaps).decode(codec if is_narrow else "utf-16-le", "ignore")


def _with_rows(raw: bytes, start: int, mark: bytes, rows: frozenset[int]) -> bytes:
    """The text with the marks that end a row as line ends: they are written like those that end a cell."""
    if not rows or mark not in raw:
        return raw
    text = bytearray(raw)
    for end in rows:
        at = end - start - len(mark)
        if at >= 0 and text[at : at + len(mark)] == mark:
            text[at] = 0x0D
    return bytes(text)


def _without(raw: bytes, start: int, gaps: list[tuple[int, int]]) -> bytes:
    kept, at = b"", 0
    for begin, end in gaps:
        if begin - start >= at:
            kept += raw[at : begin - start]
            at = end - start
    return kept + raw[at:] if at else raw


def _piece_table(clx: bytes) -> Iterator[tuple[int, int, bool]]:
    """``(offset, characters, 8-bit?)`` of each piece; the offset of 8-bit pieces is still doubled."""
    at = 0
    while at + 5 <= len(clx) and clx[at] == 1:  # formatting that does not concern us
        at += 3 + struct.unpack_from("<H", clx, at + 1)[0]
    if at + 5 > len(clx) or clx[at] != 2:
        return
    size = struct.unpack_from("<I", clx, at + 1)[0]
    plc = clx[at + 5 : at + 5 + size]
    count = min((len(plc) - 4) // 12, _MAX_PIECES)
    for index in range(count):
        first, after = struct.unpack_from("<II", plc, 4 * index)
        fc = struct.unpack_from("<I", plc, 4 * (count + 1) + 8 * index + 2)[0]
        if after > first:
            yield fc & 0x3FFF_FFFF, after - first, bool(fc & 0x4000_0000)


def _pieces_95(main: bytes, flags: int) -> Iterator[str]:
    if flags & _COMPLEX and len(main) >= 0x168:
        start, length = struct.unpack_from("<II", main, 0x160)
        raw = b"".join(main[fc : fc + count] for fc, count, _ in _piece_table(main[start : start + length]))
    else:
        first, after = struct.unpack_from("<II", main, 0x18)
        raw = main[first:after]
    wide = bool(flags & _WIDE_CHARS) and raw[1::2].count(0) > len(raw) // 8
    yield raw.decode("utf-16-le", "ignore") if wide else raw.decode(_narrow_codec(raw), "ignore")


def _plain_range(main: bytes) -> str:
    """The range that the header states, else all runs of readable UTF-16 in the stream."""
    first, after = struct.unpack_from("<II", main, 0x18)
    raw = main[first:after] if 0x200 <= first < after <= len(main) else main[0x200:]
    try:
        return decode(raw).text
    except FormatError:
        return "\n".join(_READABLE.findall(raw.decode("utf-16-le", "ignore")))


def _narrow_codec(raw: bytes) -> str:
    """8-bit text is CP1252 by the book; old East Asian versions wrote their own code page there."""
    sample = raw.translate(None, bytes(range(9)) + bytes(range(0x0B, 0x20)))
    if sample.isascii():
        return "cp1252"
    try:
        found = decode(sample).encoding
    except FormatError:
        return "cp1252"
    return found if not found.startswith("utf") else "cp1252"
