"""Outlook messages (msg): subject, people, body and attachment names from their property streams ([MS-OXMSG])."""

from __future__ import annotations

import olefile

from worker.adapters.attachments.formats.decode import codec_of, decode
from worker.adapters.attachments.formats.ole import stream
from worker.adapters.attachments.formats.sink import FormatError, Sink
from worker.adapters.attachments.formats.web_page import read_markup, read_page

_HEADERS = (("0037", "主题"), ("0C1A", "发件人"), ("0E04", "收件人"), ("0E03", "抄送"))
_BODY = "1000"
_HTML = "1013"
_RTF = "1009"
_CODE_PAGE = b"\x03\x00\xde\x3f"
_MAX_ATTACHMENTS = 200


def read(container: olefile.OleFileIO, sink: Sink) -> None:
    """The message as people read it."""
    texts = {tag: _text_property(container, [], tag) for tag in (*(tag for tag, _ in _HEADERS), _BODY)}
    codec = _eight_bit_codec(container, [raw for raw, wide in texts.values() if not wide])
    for tag, shown in _HEADERS:
        if value := _decoded(*texts[tag], codec).strip():
            sink.write(f"{shown}: {value}\n")
    sink.write("\n")
    try:
        _write_body(container, _decoded(*texts[_BODY], codec), codec, sink)
    except FormatError as error:  # an unreadable body does not take subject and people along
        sink.meta["incomplete"] = error.code
    names = _attachment_names(container, codec)
    if names:
        sink.write("\n\n附件：" + "、".join(names) + "\n")
    sink.meta["attachmentCount"] = len(names)


def _write_body(container: olefile.OleFileIO, plain: str, codec: str, sink: Sink) -> None:
    if plain.strip():
        sink.write(plain)
    elif html := stream(container, f"__substg1.0_{_HTML}0102"):
        read_page(html.rstrip(b"\0"), sink)
    elif (page := _decoded(*_text_property(container, [], _HTML), codec)).strip():
        read_markup(page, sink)
    elif packed := stream(container, f"__substg1.0_{_RTF}0102"):
        _read_rtf(packed, sink)


def _text_property(container: olefile.OleFileIO, folder: list[str], tag: str) -> tuple[bytes, bool]:
    """``(bytes, is UTF-16)`` of a text property."""
    wide = stream(container, [*folder, f"__substg1.0_{tag}001F"])
    return (wide, True) if wide else (stream(container, [*folder, f"__substg1.0_{tag}001E"]), False)


def _eight_bit_codec(container: olefile.OleFileIO, raws: list[bytes]) -> str:
    """One code page for all 8-bit texts: the message may state one, but CP1252 there is often only a default."""
    joined = b"\n".join(raw.rstrip(b"\0") for raw in raws if not raw.isascii())
    if not joined:
        return "cp1252"
    stated = None
    properties = stream(container, "__properties_version1.0")
    at = properties.find(_CODE_PAGE)
    if at >= 0:
        stated = codec_of(f"cp{int.from_bytes(properties[at + 8 : at + 12], 'little')}")
    try:
        return decode(joined, None if stated in ("cp1252", "latin-1") else stated).encoding
    except FormatError:
        return stated or "ascii"  # what cannot be told is left out rather than shown wrong


def _decoded(raw: bytes, wide: bool, codec: str) -> str:  # noqa: FBT001 - unpacked from a pair
    return raw.decode("utf-16-le" if wide else codec, "ignore").rstrip("\0")


def _attachment_names(container: olefile.OleFileIO, codec: str) -> list[str]:
    folders = {entry[0] for entry in container.listdir(streams=True) if entry[0].startswith("__attach_version1.0_")}
    names = []
    for folder in sorted(folders)[:_MAX_ATTACHMENTS]:
        for tag in ("3707", "3704", "3001"):
            if name := _decoded(*_text_property(container, [folder], tag), codec).strip():
                names.append(name)
                break
    return names


def _read_rtf(packed: bytes, sink: Sink) -> None:
    from worker.adapters.attachments.formats import rtf

    rtf.read_text(rtf.unpacked(packed), sink)
