"""What a file is, told by its content; its name only decides between kinds of plain text. Must not read text out."""

from __future__ import annotations

import re
from typing import BinaryIO

from worker.adapters.attachments.formats.sink import FormatError

_HEAD = 4096
_TEXT_NAMES = {
    "csv": "csv", "tsv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "yaml": "yaml",
    "yml": "yaml", "md": "markdown", "markdown": "markdown", "html": "html", "htm": "html", "xhtml": "html",
    "xml": "xml", "eml": "eml", "mht": "eml", "mhtml": "eml", "txt": "text", "log": "text",
}  # fmt: skip
_CODE = frozenset({
    "py", "java", "js", "ts", "tsx", "jsx", "vue", "c", "h", "cpp", "hpp", "cc", "cs", "go", "rs", "rb", "php",
    "sh", "bash", "ps1", "bat", "sql", "kt", "kts", "scala", "swift", "lua", "pl", "r", "m", "gradle", "groovy",
    "css", "scss", "less", "toml", "ini", "cfg", "conf", "properties", "env", "dockerfile", "makefile", "proto",
    "graphql", "tex", "rst", "adoc", "diff", "patch",
})  # fmt: skip
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"),
    (b"II*\0", "tiff"), (b"MM\0*", "tiff"), (b"8BPS", "psd"), (b"\0\0\0\x0cjP  ", "jp2"),
    (b"\x01\0\0\0\x58\0\0\0", "emf"), (b"\xd7\xcd\xc6\x9a", "wmf"), (b"AT&TFORM", "djvu"), (b"\0\0\x01\0", "ico"),
    (b"II\xbc\x01", "jxr"), (b"II+\0", "tiff"), (b"MM\0+", "tiff"), (b"\0\0\0\x0cJXL ", "jxl"),
)  # fmt: skip
_OTHERS = (
    (b"\x1f\x8b", "gzip"), (b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!\x1a\x07", "rar"), (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\x7fELF", "elf"), (b"MZ", "exe"),
    (b"\xca\xfe\xba\xbe", "class"), (b"\0asm", "wasm"), (b"SQLite format 3\0", "sqlite"), (b"ID3", "mp3"),
    (b"\xff\xfb", "mp3"), (b"\xff\xf3", "mp3"), (b"OggS", "ogg"), (b"fLaC", "flac"),
    (b"\x1a\x45\xdf\xa3", "matroska"), (b"\x30\x26\xb2\x75", "asf"), (b"FLV\x01", "flv"), (b"\xdb\xa5", "word2"),
    (b"wOFF", "font"), (b"wOF2", "font"), (b"\0\x01\0\0\0", "font"), (b"OTTO", "font"), (b"MSCF", "cab"),
    (b"LZIP", "lzip"), (b"\xed\xab\xee\xdb", "rpm"), (b"!<arch>\n", "ar"), (b"\0\0\x1a\0", "lotus"),
    (b"\xac\xed\0\x05", "java-serialized"), (b"PAR1", "parquet"), (b"\x93NUMPY", "numpy"), (b"AC10", "dwg"),
    (b"FWS", "flash"), (b"CWS", "flash"), (b"ZWS", "flash"),
)  # fmt: skip
_OLD_SHEETS = (b"\x09\x00\x04\x00", b"\x09\x02\x06\x00", b"\x09\x04\x06\x00", b"\x09\x08\x08\x00")
"""Excel 2 to 4, and 5 written without a container."""
_STILL_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1", b"avif", b"avis")
_OOXML_MARKS = ("[Content_Types].xml", "_rels/.rels", "word/document.xml", "ppt/presentation.xml", "xl/workbook.xml")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MAIL_HEADER = re.compile(
    rb"^(from|to|cc|subject|date|received|mime-version|return-path|message-id|delivered-to|reply-to|content-type"
    rb"|content-transfer-encoding|x-[a-z-]+):",
    re.IGNORECASE | re.MULTILINE,
)
_MAIL_NEEDED = re.compile(
    rb"^(from|received|mime-version|return-path|message-id|subject):", re.IGNORECASE | re.MULTILINE
)
_MULTIPART = re.compile(rb"^content-type:\s*multipart/(related|alternative|mixed)\b", re.IGNORECASE | re.MULTILINE)
"""Few headers, but this: a page with its pictures in one file. Word and Confluence write it under the name ``.doc``."""
_PAGE = re.compile(rb"<(!doctype\s+html|html|head|body|meta|title|table|div|p)[\s>]", re.IGNORECASE)


def sniff(file: BinaryIO, name: str) -> tuple[str, str]:
    """``(group, kind)``: the group picks the extractor, the kind is told as ``detectedType``; the file is rewound.

    ``name`` is the file's name, perhaps with a wrong ending. Raises ``EMPTY_FILE``.
    """
    head = file.read(_HEAD)
    file.seek(0)
    if not head:
        raise FormatError("EMPTY_FILE", "no bytes")
    ending = name.rpartition(".")[2].lower() if "." in name else name.lower()
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _zip_kind(file)
    if head.startswith(_OLE):
        return "ole", "ole"
    if head.startswith(_OLD_SHEETS):
        return "xls", "xls"
    if b"%PDF-" in head[:1024] and not (ending in _TEXT_NAMES and not head.startswith(b"%PDF-")):
        return "pdf", "pdf"
    if (kind := _by_magic(head)) is not None:
        return kind
    if b"PK\x03\x04" in head[:1024] and _holds_binary(head[head.index(b"PK\x03\x04") :]):
        return _zip_kind(file)  # something before it: a download that kept its headers
    return _text_kind(head, ending)


def _by_magic(head: bytes) -> tuple[str, str] | None:
    for magic, kind in _IMAGES:
        if head.startswith(magic):
            return "image", kind
    if head[:4] == b"RIFF":
        return ("image", "webp") if head[8:12] == b"WEBP" else ("other", "riff")
    if head[4:8] == b"ftyp":
        return ("image", "heif") if head[8:12] in _STILL_BRANDS else ("other", "mp4")
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return "image", "bmp"
    if head.lstrip(b"\xef\xbb\xbf \r\n\t\0").startswith(b"{\\rt"):
        return "rtf", "rtf"
    for magic, kind in _OTHERS:
        if head.startswith(magic) and (len(magic) > 3 or _holds_binary(head)):
            return "other", kind
    if head[257:262] == b"ustar":
        return "other", "tar"
    return None


def _holds_binary(head: bytes) -> bool:
    """Two-byte magics may begin a text too (``MZ``…): believed only when control bytes follow."""
    return any(byte < 9 or 13 < byte < 27 for byte in head[:64])


def _zip_kind(file: BinaryIO) -> tuple[str, str]:
    from worker.adapters.attachments.formats.package import Package

    package = Package(file)
    file.seek(0)
    if any(name in package for name in _OOXML_MARKS):
        for prefix, group in (("word/", "docx"), ("ppt/", "pptx"), ("xl/", "xlsx")):
            if package.names(prefix) or package.names(prefix, ".bin"):
                binary = group == "xlsx" and "xl/workbook.bin" in package
                return ("xlsb", "xlsb") if binary else (group, group)
    declared = package.read("mimetype", 200).decode("ascii", "replace").strip()
    if declared.startswith("application/vnd.oasis.opendocument."):
        return "opendocument", _odf_name(declared.rpartition(".")[2])
    if declared.startswith("application/vnd.sun.xml."):
        return "opendocument", "sxw"
    if declared == "application/epub+zip" or "META-INF/container.xml" in package:
        return "epub", "epub"
    if "OFD.xml" in package:
        return "ofd", "ofd"
    if "content.xml" in package and "META-INF/manifest.xml" in package:
        return "opendocument", "odf"
    return "zip", "zip"


def _odf_name(word: str) -> str:
    base = word.partition("-")[0]  # text-template, text-web
    return {"text": "odt", "spreadsheet": "ods", "presentation": "odp", "graphics": "odg"}.get(base, f"odf-{base[:30]}")


def _text_kind(head: bytes, ending: str) -> tuple[str, str]:
    if ending == "ipynb":
        return "notebook", "notebook"
    plain = _narrow(head).lstrip(b"\xef\xbb\xbf \r\n\t")
    start = plain[:1024].lower()
    named = _TEXT_NAMES.get(ending)
    if named in ("eml", None, "text") and _is_mail(plain):
        return "eml", "eml"
    if start.startswith((b"<!doctype html", b"<html")) or (named == "html" and b"<" in plain):
        return "html", "html"
    if start.startswith(b"<?xml"):
        return ("html", "html") if b"<html" in plain.lower() else ("xml", "xml")
    if start.startswith(b"<") and named in (None, "text") and ending not in _CODE and len(_PAGE.findall(plain)) >= 2:
        return "html", "html"
    if (
        named in (None, "text")
        and ending not in _CODE
        and start[:1] == b"<"
        and re.match(rb"<[a-z_][\w.:-]*[\s>/]", start)
    ):
        return "xml", "xml"
    if named == "xml":
        return "xml", "xml"
    kind = named if named not in ("eml", "html") else None
    return "plain", kind or (
        "code" if ending in _CODE else "json" if start[:1] in (b"{", b"[") and named is None else "text"
    )


def _is_mail(plain: bytes) -> bool:
    lines = plain.partition(b"\n\n")[0].partition(b"\r\n\r\n")[0]
    first = re.match(rb"(From [^\r\n]+\r?\n)?[A-Za-z][A-Za-z0-9-]*:", lines)
    if first and _MULTIPART.search(lines):
        return True
    return bool(first and len(_MAIL_HEADER.findall(lines)) >= 3 and _MAIL_NEEDED.search(lines))


def _narrow(head: bytes) -> bytes:
    """UTF-16 markup read as its ASCII part, so that the tests above see it."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or head[:40].count(0) > 10:
        return head.lstrip(b"\xff\xfe").replace(b"\0", b"")
    return head
