"""PowerPoint 97-2003: text atoms of slides and notes ([MS-PPT] 2.9), masters left out; no layout."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import olefile

from worker.adapters.attachments.formats.ole import stream
from worker.adapters.attachments.formats.sink import FormatError, Sink, check_time

_MAIN_MASTER = 1016
_SLIDE = 1006
_NOTES = 1008
_CRYPT_SESSION = 0x2F14
_TEXT_CHARS = 4000
_TEXT_BYTES = 4008
_CONTAINER = 0xF
_ENCRYPTED_TOKEN = 0xF3D1_C4DF
_MAX_RECORDS = 500_000


def read(container: olefile.OleFileIO, sink: Sink) -> None:
    """All text of a presentation; what an incremental save left twice is shown once."""
    user = stream(container, "Current User")
    if len(user) >= 16 and struct.unpack_from("<I", user, 12)[0] == _ENCRYPTED_TOKEN:
        raise FormatError("PASSWORD_PROTECTED", "encrypted presentation")
    if container.exists("EncryptedSummary"):
        raise FormatError("PASSWORD_PROTECTED", "encrypted presentation")
    document = stream(container, "PowerPoint Document")
    if not document:
        raise FormatError("UNSUPPORTED_TYPE", "PowerPoint before 97")
    seen: set[str] = set()
    slides = 0
    for kind, body in _records(document):
        if kind == _CRYPT_SESSION:
            raise FormatError("PASSWORD_PROTECTED", "encrypted presentation")
        if kind == _SLIDE:
            slides += 1
            sink.meta["slideCount"] = slides
        text = _text(kind, body)
        if text.strip() and text not in seen:
            seen.add(text)
            sink.write(text + "\n")


def _text(kind: int, body: bytes) -> str:
    if kind == _TEXT_CHARS:
        text = body.decode("utf-16-le", "ignore")
    elif kind == _TEXT_BYTES:
        text = body.decode("latin-1")  # the low bytes of UTF-16, not a code page
    else:
        return ""
    text = text.replace("\r", "\n").replace("\x0b", "\n")
    return "" if text.strip() == "*" else text  # the place of a date or page number


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Records in stored order, containers first, then what they hold; masters are passed over."""
    at = 0
    for number in range(_MAX_RECORDS):
        if at + 8 > len(data):
            return
        if number % 4096 == 0:
            check_time()
        version, kind, length = struct.unpack_from("<HHI", data, at)
        at += 8
        if version & 0xF == _CONTAINER and kind != _MAIN_MASTER:
            yield kind, b""
        else:
            yield kind, data[at : at + length]
            at += length
