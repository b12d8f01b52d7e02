"""What the properties of a Word 97-2003 document say about its text ([MS-DOC] 2.4.6, 2.9.33, 2.9.175); reads no text.

The mark at the end of a table's row is the same character as at the end of a cell, and what was deleted with changes
tracked still stands in the text: only the properties tell.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_CHARACTERS, _PARAGRAPHS = 0xFA, 0x102  # fcPlcfBteChpx and fcPlcfBtePapx in the FIB
_PAGE = 512
_PARAGRAPH_ENTRY = 13
_MAX_PAGES = 2_000
_ROW_END, _DELETED, _HIDDEN, _TABLE_SHAPE = 0x2417, 0x0800, 0x083C, 0xD608
_OPERAND_SIZES = (1, 1, 2, 4, 2, 2, 0, 3)  # by the three highest bits; 0: the next byte says it


def row_ends(main: bytes, table: bytes) -> frozenset[int]:
    """Offsets in ``main`` just behind each mark that ends a row; empty when the file does not say it readably."""
    return frozenset(
        end for _start, end, sprms in _runs(main, table, _PARAGRAPHS) for code, on in sprms if code == _ROW_END and on
    )


def unshown(main: bytes, table: bytes) -> list[tuple[int, int]]:
    """Ranges in ``main`` of text that is hidden or was deleted, in order."""
    return sorted(
        (start, end)
        for start, end, sprms in _runs(main, table, _CHARACTERS)
        if any(code in (_DELETED, _HIDDEN) and on == 1 for code, on in sprms)
    )


def _runs(main: bytes, table: bytes, place: int) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """``(start, end, properties)`` of the runs that have some, as far as the file can be read."""
    try:
        start, size = struct.unpack_from("<II", main, place)
        count = min(max(0, (size - 4) // 8), _MAX_PAGES)
        for page in struct.unpack_from(f"<{count}I", table, start + 4 * (count + 1)):
            at = (page & 0x3F_FFFF) * _PAGE
            yield from _runs_of(main[at : at + _PAGE], of_paragraphs=place == _PARAGRAPHS)
    except (struct.error, IndexError):
        return


def _runs_of(page: bytes, *, of_paragraphs: bool) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Those of one page: first the places, then where in the page the properties of each run stand."""
    count = page[_PAGE - 1]
    places = struct.unpack_from(f"<{count + 1}I", page)
    for index in range(count):
        entry = 4 * (count + 1) + (_PARAGRAPH_ENTRY if of_paragraphs else 1) * index
        offset = 2 * page[entry]
        if not offset:
            continue
        size, begin = page[offset], offset + 1
        if of_paragraphs:  # counted in words, and a style number stands before the properties
            size, begin = (2 * size - 1, begin) if size else (2 * page[begin], begin + 1)
            size, begin = size - 2, begin + 2
        yield places[index], places[index + 1], _properties(page[begin : begin + max(0, size)])


def _properties(raw: bytes) -> list[tuple[int, int]]:
    """``(code, first byte of the operand)`` of each property."""
    found = []
    at = 0
    while at + 3 <= len(raw):
        code = struct.unpack_from("<H", raw, at)[0]
        found.append((code, raw[at + 2]))
        size = _OPERAND_SIZES[code >> 13]
        if not size:
            size = struct.unpack_from("<H", raw, at + 2)[0] + 1 if code == _TABLE_SHAPE else raw[at + 2] + 1
        at += 2 + size
    return found
