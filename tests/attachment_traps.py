"""Files that readers trip over, written by code: old sheets, PDFs with odd fonts, fields and notes."""

from __future__ import annotations

import struct

from tests.attachment_files import ole


def record(kind: int, body: bytes) -> bytes:
    """One record of an old Excel file."""
    return struct.pack("<HH", kind, len(body)) + body


def excel95(name: str, rows: list[list[str]], code_page: int, codec: str, *, locked: bool = False) -> bytes:
    """An Excel 5/95 workbook: 8-bit text in a code page that the file names. The last row holds 42.5."""
    raw_name = name.encode(codec)
    sheet = record(0x809, struct.pack("<HHHH", 0x500, 0x10, 0, 0))
    for row, cells in enumerate(rows):
        for column, text in enumerate(cells):
            raw = text.encode(codec)
            sheet += record(0x204, struct.pack("<HHHH", row, column, 0, len(raw)) + raw)
    sheet += record(0x203, struct.pack("<HHHd", len(rows), 0, 0, 42.5)) + record(0x0A, b"")
    head = record(0x809, struct.pack("<HHHH", 0x500, 5, 0, 0))
    head += record(0x2F, b"\x34\x12\x78\x56") if locked else b""
    head += record(0x42, struct.pack("<H", code_page))
    start = len(head) + 4 + 7 + len(raw_name) + 4
    head += record(0x85, struct.pack("<IBBB", start, 0, 0, len(raw_name)) + raw_name) + record(0x0A, b"")
    return ole({"Book": head + sheet})


def excel4(rows: list[str], code_page: int, codec: str) -> bytes:
    """An Excel 4 sheet: the same records without a container."""
    out = record(0x409, struct.pack("<HHH", 0, 0x10, 0)) + record(0x42, struct.pack("<H", code_page))
    for number, text in enumerate(rows):
        raw = text.encode(codec)
        out += record(0x204, struct.pack("<HHHH", number, 0, 0, len(raw)) + raw)
    return out + record(0x0A, b"")


def pdf_of(page: str, shown: bytes, *more: str, catalog: str = "") -> bytes:
    """A PDF of one page; ``page`` is what its dictionary says besides, ``more`` are objects from number 5 on."""
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>".encode(),
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R {page} >>".encode(),
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(shown), shown),
        *(body.encode("latin-1") for body in more),
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return out + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)


def pdf_in_font(font: str, raw: bytes, *more: str) -> bytes:
    """A page that shows these bytes in a font given as its dictionary's inside; object 6 is the first of ``more``."""
    shown = b"BT /F1 12 Tf 72 700 Td <%b> Tj ET" % raw.hex().encode()
    return pdf_of("/Resources << /Font << /F1 5 0 R >> >>", shown, f"<< /Type /Font {font} >>", *more)


def doc_with_rows(rows: list[list[str]], after: str, *, narrow: str = "") -> bytes:
    """A Word 97 document of one table and a paragraph; only paragraph properties tell which marks end a row."""
    text, row_ends = "", []
    for row in rows:
        text += "".join(cell + "\x07" for cell in row) + "\x07"
        row_ends.append(len(text))
    text += after + "\r"
    raw = text.encode(narrow or "utf-16-le")
    start = 0x400
    main = bytearray(start) + raw
    struct.pack_into("<HH", main, 0, 0xA5EC, 0x00C1)

    def place(characters: int) -> int:
        return start + len(text[:characters].encode(narrow or "utf-16-le"))

    # one page of properties at 0x200: a run up to before each row mark, and one for the mark itself
    places = sorted({0, len(text), *row_ends, *(end - 1 for end in row_ends)})
    runs = len(places) - 1
    struct.pack_into(f"<{runs + 1}I", main, 0x200, *map(place, places))
    main[0x200 + 0x1F0 : 0x200 + 0x1F8] = b"\x03\0\0\x17\x24\x01\0\0"  # 5 bytes: style, sprmPFTtp = 1
    for index in range(runs):
        main[0x200 + 4 * (runs + 1) + 13 * index] = 0x1F0 // 2 if places[index + 1] in row_ends else 0
    main[0x3FF] = runs
    count = len(raw) if narrow else len(text)
    piece = struct.pack("<II", 0, count) + struct.pack("<HIH", 0, start * 2 | 0x4000_0000 if narrow else start, 0)
    clx = b"\x02" + struct.pack("<I", len(piece)) + piece
    properties = struct.pack("<III", start, place(len(text)), 1)
    struct.pack_into("<II", main, 0x1A2, 0, len(clx))
    struct.pack_into("<II", main, 0x102, len(clx), len(properties))
    return ole({"WordDocument": bytes(main), "0Table": clx + properties})


def doc_with_unshown(*parts: tuple[str, int]) -> bytes:
    """A Word 97 document of runs, each with the code of a property that is set for it, or 0."""
    start = 0x400
    raw = "".join(text for text, _ in parts).encode("utf-16-le")
    main = bytearray(start) + raw
    struct.pack_into("<HH", main, 0, 0xA5EC, 0x00C1)
    ends = [start]
    for text, _ in parts:
        ends.append(ends[-1] + 2 * len(text))
    struct.pack_into(f"<{len(ends)}I", main, 0x200, *ends)
    for index, (_, code) in enumerate(parts):
        at = 0x100 + 16 * index
        if code:  # a colour (2 bytes) and a font list (counted) before it must be stepped over
            properties = struct.pack("<HHHBBHB", 0x4A43, 22, 0xCA89, 1, 9, code, 1)
            main[0x200 + 4 * len(ends) + index] = at // 2
            main[0x200 + at : 0x200 + at + 1 + len(properties)] = bytes([len(properties)]) + properties
    main[0x3FF] = len(parts)
    piece = struct.pack("<II", 0, len(raw) // 2) + struct.pack("<HIH", 0, start, 0)
    clx = b"\x02" + struct.pack("<I", len(piece)) + piece
    plc = struct.pack("<III", start, ends[-1], 1)
    struct.pack_into("<II", main, 0x1A2, 0, len(clx))
    struct.pack_into("<II", main, 0xFA, len(clx), len(plc))
    return ole({"WordDocument": bytes(main), "0Table": clx + plc})
