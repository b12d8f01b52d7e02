"""E-mail files (eml, mht): headers, the readable body, the names of what is attached; must not open attachments."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.header import decode_header
from email.message import Message
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import codec_of, decode
from worker.adapters.attachments.formats.sink import FormatError, Sink
from worker.adapters.attachments.formats.web_page import read_page

_READ = 8 * 1024 * 1024
_HEADERS = (("Subject", "主题"), ("From", "发件人"), ("To", "收件人"), ("Cc", "抄送"), ("Date", "日期"))
_MAX_PARTS = 200
_MAX_HEADER = 4_000


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """A mail of which at most the first 8 MB are read: text parts come first, attachments after."""
    data = file.read(_READ + 1)
    read_message(data[:_READ], sink, cut=len(data) > _READ)


def read_message(data: bytes, sink: Sink, *, cut: bool) -> None:
    """The whole of a message, nested ones included."""
    if data.startswith(b"From "):
        data = data.partition(b"\n")[2]
    message = message_from_bytes(data, policy=policy.compat32)
    if cut:
        sink.meta["incomplete"] = "TOO_LARGE"
    _read(message, sink)


def _read(message: Message, sink: Sink) -> None:
    _write_headers(message, sink)
    attached: list[str] = []
    parts = [part for number, part in enumerate(message.walk()) if number < _MAX_PARTS]
    plain = [part for part in parts if part.get_content_type() == "text/plain" and _payload(part).strip()]
    for part in parts:
        if part.get_content_type() == "message/rfc822":
            for nested in part.get_payload():  # its parts come in their turn, only its headers are missing
                _write_headers(nested, sink)  # type: ignore[arg-type]
        if not _is_body(part):
            if name := _file_name(part):
                attached.append(name)
        elif part in plain or (part.get_content_type() == "text/html" and not _has_plain_sibling(part, parts)):
            _write_body(part, sink)
    if attached:
        sink.write("\n\n附件：" + "、".join(attached) + "\n")
    sink.meta["attachmentCount"] = len(attached)


def _write_headers(message: Message, sink: Sink) -> None:
    found = {name.lower(): str(value)[:_MAX_HEADER] for name, value in reversed(list(message.raw_items()))}
    for name, shown in _HEADERS:
        if value := found.get(name.lower()):
            sink.write(f"{shown}: {_header_text(value)}\n")
    sink.write("\n")


def _header_text(raw: str) -> str:
    """A header as people read it: encoded words with wrong or missing charsets, and raw 8-bit headers too."""
    if not raw.isascii():
        return _one_line(_piece_text(raw.encode("utf-8", "surrogateescape"), None))
    try:
        pieces = decode_header(raw)
    except (ValueError, LookupError):
        pieces = [(raw, None)]
    return _one_line("".join(_piece_text(piece, charset) for piece, charset in pieces))


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", " ").strip()


def _piece_text(piece: str | bytes, charset: str | None) -> str:
    data = piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogateescape")
    try:
        return decode(data, charset).text
    except FormatError:
        return data.decode("ascii", "ignore")


def _is_body(part: Message) -> bool:
    kind = part.get_content_type()
    return kind in ("text/plain", "text/html") and part.get_content_disposition() != "attachment"


def _has_plain_sibling(part: Message, parts: list[Message]) -> bool:
    """Whether ``part`` is one choice of a ``multipart/alternative`` that has its text as plain text too."""
    for parent in parts:
        children = parent.get_payload() if parent.is_multipart() else []
        if parent.get_content_type() != "multipart/alternative" or not isinstance(children, list):
            continue
        if any(part is inner for child in children for inner in child.walk()):  # type: ignore[union-attr]
            return any(
                inner.get_content_type() == "text/plain" and _payload(inner).strip()
                for child in children
                for inner in child.walk()  # type: ignore[union-attr]
            )
    return False


def _payload(part: Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _write_body(part: Message, sink: Sink) -> None:
    data = _payload(part)
    declared = part.get_content_charset()
    try:
        if part.get_content_type() == "text/html":
            read_page(data, sink, declared if codec_of(declared) else None)
        else:
            decoded = decode(data, declared)
            sink.meta.update(decoded.facts() | sink.meta)
            sink.write(decoded.text)
    except FormatError as error:  # one unreadable part does not take the others along
        sink.meta["incomplete"] = error.code
    sink.write("\n")


def _file_name(part: Message) -> str:
    name = part.get_filename()
    return _header_text(name[:_MAX_HEADER]) if name else ""
