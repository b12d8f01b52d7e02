"""Where the rows of tables end in a Word 97-2003 document ([MS-DOC] 2.4.6.1 and 2.9.175); reads no text.

The mark at the end of a row is the same character as at the end of a cell: only the paragraph's properties tell.
"""

from __future__ import annotations

import struct

_PLACE = 0x102  # fcPlcfBtePapx in the FIB
_PAGE = 512
_ENTRY = 13
_MAX_PAGES = 2_000
_ROW_END = b"\x17\x24\x01"  # sprmPFTtp, set


def row_ends(main: bytes, table: bytes) -> frozenset[int]:
    """Offsets in ``main`` just behind each mark that ends a row; empty when the file does not say it readably."""
    try:
        start, size = struct.unpack_from("<II", main, _PLACE)
        count = min(max(0, (size - 4) // 8), _MAX_PAGES)
        pages = struct.unpack_from(f"<{count}I", table, start + 4 * (count + 1))
        return frozenset(end for page in pages for end in _row_ends_of(main, (page & 0x3F_FFFF) * _PAGE))
    except (struct.error, IndexError):
        return frozenset()


def _row_ends_of(main: bytes, at: int) -> list[int]:
    """Those of one page of paragraph properties, which stand behind its list of places."""
    page = main[at : at + _PAGE]
    count = page[_PAGE - 1]
    places = struct.unpack_from(f"<{count + 1}I", page)
    ends = []
    for index in range(count):
        offset = 2 * page[4 * (count + 1) + _ENTRY * index]
        if not offset:
            continue
        words = page[offset]
        begin, size = (offset + 1, 2 * words - 1) if words else (offset + 2, 2 * page[offset + 1])
        if _ROW_END in page[begin + 2 : begin + size]:
            ends.append(places[index + 1])
    return ends
