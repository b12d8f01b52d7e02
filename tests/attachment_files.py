"""Small files of many formats, written by code: what people send, and what they send broken."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from xml.sax.saxutils import escape

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
_RELS = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def zipped(members: dict[str, str | bytes]) -> bytes:
    """A zip of these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def rels(*entries: tuple[str, str, str]) -> str:
    """A relations part; entries are ``(id, last word of the type, target)``."""
    lines = "".join(f'<Relationship Id="{i}" Type="{_TYPE}/{kind}" Target="{target}"/>' for i, kind, target in entries)
    return f'<?xml version="1.0"?><Relationships xmlns="{_RELS}">{lines}</Relationships>'


def docx(*paragraphs: str, body: str | None = None, more: dict[str, str | bytes] | None = None) -> bytes:
    """A Word document of plain paragraphs, or of the given body XML."""
    inner = body or "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs)
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": rels(("r1", "officeDocument", "word/document.xml")),
            "word/document.xml": f'<?xml version="1.0"?><w:document {W} {R}><w:body>{inner}</w:body></w:document>',
            **(more or {}),
        }
    )


def xlsx(sheets: dict[str, str], more: dict[str, str | bytes] | None = None, workbook: str = "") -> bytes:
    """A workbook; each sheet is the XML of its rows."""
    names = list(sheets)
    listed = "".join(f'<sheet name="{escape(n)}" sheetId="{i}" r:id="r{i}"/>' for i, n in enumerate(names, 1))
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": rels(("r1", "officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f"<workbook {R}>{workbook}<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": rels(
            *((f"r{i}", "worksheet", f"worksheets/sheet{i}.xml") for i in range(1, len(names) + 1)),
            ("s1", "styles", "styles.xml"),
            ("s2", "sharedStrings", "sharedStrings.xml"),
        ),
    }
    for number, rows in enumerate(sheets.values(), 1):
        members[f"xl/worksheets/sheet{number}.xml"] = f"<worksheet><sheetData>{rows}</sheetData></worksheet>"
    return zipped(members | (more or {}))


def inline(reference: str, text: str) -> str:
    """A cell that holds its own text."""
    return f'<c r="{reference}" t="inlineStr"><is><t>{escape(text)}</t></is></c>'


def _record(kind: int, body: bytes) -> bytes:
    head = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
    size, at = b"", len(body)
    while at >= 0x80:
        size, at = size + bytes([at & 0x7F | 0x80]), at >> 7
    return head + size + bytes([at]) + body


def _counted(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def xlsb(name: str, rows: list[list[str | float]], strings: list[str]) -> bytes:
    """A binary workbook of one sheet; a text that is in ``strings`` is stored there, others in the cell.

    The second cell style shows dates; it is used for whole numbers above 40,000.
    """
    sheet = _record(145, b"")
    for number, row in enumerate(rows):
        sheet += _record(0, struct.pack("<I", number) + bytes(20))
        for column, value in enumerate(row):
            style = 1 if isinstance(value, float) and value > 40_000 else 0
            head = struct.pack("<II", column, style)
            if isinstance(value, float):
                sheet += _record(5, head + struct.pack("<d", value))
            elif isinstance(value, int):
                sheet += _record(2, head + struct.pack("<I", (value << 2 | 2) & 0xFFFF_FFFF))
            elif value in strings:
                sheet += _record(7, head + struct.pack("<I", strings.index(value)))
            else:
                sheet += _record(6, head + _counted(value))
    sheet += _record(146, b"")
    styles = (
        _record(617, b"\2\0\0\0") + _record(47, bytes(16)) + _record(47, b"\0\0\x0e\0" + bytes(12)) + _record(618, b"")
    )
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": rels(("r1", "officeDocument", "xl/workbook.bin")),
            "xl/workbook.bin": _record(156, bytes(8) + _counted("rId1") + _counted(name)),
            "xl/_rels/workbook.bin.rels": rels(
                ("rId1", "worksheet", "worksheets/sheet1.bin"),
                ("s", "sharedStrings", "sharedStrings.bin"),
                ("t", "styles", "styles.bin"),
            ),
            "xl/worksheets/sheet1.bin": sheet,
            "xl/sharedStrings.bin": b"".join(_record(19, b"\0" + _counted(text)) for text in strings),
            "xl/styles.bin": styles,
        }
    )


def pptx(*slides: str, more: dict[str, str | bytes] | None = None) -> bytes:
    """A presentation; each slide is the XML inside its shape tree. File names count backwards."""
    count = len(slides)
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": rels(("r1", "officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {R}><p:sldIdLst>"
        + "".join(f'<p:sldId id="{255 + i}" r:id="r{i}"/>' for i in range(count))
        + "</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": rels(
            *((f"r{i}", "slide", f"slides/slide{count - i}.xml") for i in range(count))
        ),
    }
    for number, shapes in enumerate(slides):
        members[f"ppt/slides/slide{count - number}.xml"] = (
            f"<p:sld><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        )
    return zipped(members | (more or {}))


def shape(text: str) -> str:
    """A text box of a slide."""
    return f"<p:sp><p:txBody><a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p></p:txBody></p:sp>"


def opendocument(kind: str, content: str, manifest: str = "<manifest/>") -> bytes:
    """An ODF file of ``content.xml``'s body; ``kind`` is ``text``, ``spreadsheet`` or ``presentation``."""
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": manifest,
            "content.xml": f'<office:document-content xmlns:office="o"><office:body>{content}</office:body>'
            "</office:document-content>",
        }
    )


def pdf(pages: list[str]) -> bytes:
    """A PDF whose pages show one ASCII line each."""
    count = len(pages)
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {count} /Kids [{' '.join(f'{4 + 2 * i} 0 R' for i in range(count))}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        shown = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else "0 0 10 10 re f"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(shown)} >>\nstream\n{shown}\nendstream")
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    return out + f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()


def pdf_with_stream(size: int) -> bytes:
    """A PDF whose one page's content unpacks to ``size`` bytes of blanks and then shows nothing."""
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(b" " * 1_000_000) for _ in range(size // 1_000_000)) + packer.flush()
    head = (
        b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
        b"2 0 obj\n<< /Type /Pages /Count 1 /Kids [3 0 R] >>\nendobj\n"
        b"3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>\nendobj\n"
    )
    stream = (
        b"4 0 obj\n<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(packed) + packed + b"\nendstream\nendobj\n"
    )
    return head + stream + b"trailer << /Root 1 0 R /Size 5 >>\n%%EOF\n"


_SECTOR = 512
_END = 0xFFFF_FFFE
_FREE = 0xFFFF_FFFF


def ole(streams: dict[str, bytes]) -> bytes:
    """An OLE container. Names may hold one folder (``folder/stream``); streams are padded to 4,096 bytes with zeros."""
    folders: list[str] = list(dict.fromkeys(name.split("/")[0] for name in streams if "/" in name))
    entries: list[tuple[str, str, int, bytes]] = [("Root Entry", "", 5, b"")]
    entries += [(name, "", 1, b"") for name in folders]
    entries += [
        (name.split("/")[-1], name.rpartition("/")[0], 2, data.ljust(4096, b"\0")) for name, data in streams.items()
    ]
    chains: list[bytes] = [data for *_, data in entries]
    directory_sectors = -(-len(entries) * 128 // _SECTOR)
    sectors = directory_sectors + sum(-(-len(data) // _SECTOR) for data in chains)
    fat_sectors = -(-sectors // 127) + 1
    fat = [0xFFFF_FFFD] * fat_sectors
    at = fat_sectors
    fat += [*range(at + 1, at + directory_sectors), _END]
    at += directory_sectors
    starts = []
    for data in chains:
        count = -(-len(data) // _SECTOR)
        starts.append(at if count else _END)
        if count:
            fat += [*range(at + 1, at + count), _END]
        at += count
    fat += [_FREE] * (fat_sectors * 128 - len(fat))
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIII", 0, fat_sectors, fat_sectors, 0, 4096, _END, 0, _END, 0)
    header += struct.pack("<109I", *([*range(fat_sectors), *[_FREE] * (109 - fat_sectors)]))
    children: dict[str, list[int]] = {}
    for index, (_name, parent, _kind, _data) in enumerate(entries[1:], 1):
        children.setdefault(parent, []).append(index)
    directory = b""
    for index, (name, parent, kind, data) in enumerate(entries):
        siblings = children.get(parent, [])
        place = siblings.index(index) if index else 0
        right = siblings[place + 1] if index and place + 1 < len(siblings) else _FREE
        inside = children.get("" if index == 0 else name, []) if kind != 2 else []
        raw = name.encode("utf-16-le") + b"\0\0"
        directory += raw.ljust(64, b"\0") + struct.pack("<HBB", len(raw), kind, 1)
        directory += struct.pack("<III", _FREE, right, inside[0] if inside else _FREE) + bytes(36)
        directory += struct.pack("<IQ", starts[index], len(data))
    directory = directory.ljust(directory_sectors * _SECTOR, b"\0")
    body = struct.pack(f"<{len(fat)}I", *fat) + directory
    body += b"".join(data.ljust(-(-len(data) // _SECTOR) * _SECTOR, b"\0") for data in chains)
    return header + body


def doc(text: str, *, encrypted: bool = False, narrow: str = "", pieces: bool = True) -> bytes:
    """A Word 97 document of UTF-16 text, or of 8-bit text in the code page ``narrow``."""
    raw = text.encode(narrow) if narrow else text.encode("utf-16-le")
    main = bytearray(0x400) + raw
    struct.pack_into("<HH", main, 0, 0xA5EC, 0x00C1)
    struct.pack_into("<H", main, 0x0A, 0x0100 if encrypted else 0)
    struct.pack_into("<II", main, 0x18, 0x400, 0x400 + len(raw))
    count = len(raw) if narrow else len(text)
    fc = 0x400 * 2 | 0x4000_0000 if narrow else 0x400
    table = struct.pack("<II", 0, count) + struct.pack("<HIH", 0, fc, 0)
    clx = b"\x02" + struct.pack("<I", len(table)) + table
    if pieces:
        struct.pack_into("<II", main, 0x1A2, 0, len(clx))
    return ole({"WordDocument": bytes(main), "0Table": clx})


def word95(text: str, codec: str) -> bytes:
    """A Word 95 document: text in a code page that the file does not name."""
    raw = text.encode(codec)
    main = bytearray(0x300) + raw
    struct.pack_into("<HH", main, 0, 0xA5DC, 0x0068)
    struct.pack_into("<II", main, 0x18, 0x300, 0x300 + len(raw))
    return ole({"WordDocument": bytes(main)})


def ppt(*texts: str, token: int = 0xE391_C05F) -> bytes:
    """A PowerPoint 97 presentation with one text atom a slide."""
    slides = b""
    for text in texts:
        raw = text.encode("utf-16-le")
        atom = struct.pack("<HHI", 0, 4000, len(raw)) + raw
        slides += struct.pack("<HHI", 0xF, 1006, len(atom)) + atom
    master = b"".join((struct.pack("<HHI", 0, 4008, 6), b"MASTER"))
    document = (
        struct.pack("<HHI", 0xF, 1000, len(slides)) + slides + struct.pack("<HHI", 0xF, 1016, len(master)) + master
    )
    return ole({"PowerPoint Document": document, "Current User": bytes(8) + struct.pack("<II", 0x14, token)})


def msg(subject: str, body: str, codec: str = "", attached: str = "") -> bytes:
    """An Outlook message with UTF-16 properties, or 8-bit ones in ``codec``."""
    kind, name = ("001E", codec) if codec else ("001F", "utf-16-le")
    streams = {
        "__properties_version1.0": bytes(32),
        f"__substg1.0_0037{kind}": subject.encode(name),
        f"__substg1.0_1000{kind}": body.encode(name),
    }
    if attached:
        streams[f"__attach_version1.0_#00000000/__substg1.0_3707{kind}"] = attached.encode(name)
    return ole(streams)
