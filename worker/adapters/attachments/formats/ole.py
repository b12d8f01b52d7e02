"""OLE containers: tells which old Office format it is and whether it is encrypted; must not read text itself."""

from __future__ import annotations

from typing import BinaryIO

import olefile

from worker.adapters.attachments.formats.sink import FormatError, Sink

MAX_STREAM = 64 * 1024 * 1024


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """Text of a doc, xls, ppt or msg."""
    try:
        container = olefile.OleFileIO(file)
    except Exception as error:  # olefile raises whatever its arithmetic meets in a damaged file
        raise FormatError("CORRUPT", f"OLE container: {type(error).__name__}") from error
    if container.exists("EncryptedPackage") or container.exists("EncryptionInfo"):
        sink.meta["detectedType"] = "encrypted-office"
        raise FormatError("PASSWORD_PROTECTED", "encrypted package")
    if container.exists("WordDocument"):
        from worker.adapters.attachments.formats import word97

        sink.meta["detectedType"] = "doc"
        word97.read(container, sink)
    elif container.exists("PowerPoint Document") or container.exists("PP40"):
        from worker.adapters.attachments.formats import powerpoint97

        sink.meta["detectedType"] = "ppt"
        powerpoint97.read(container, sink)
    elif container.exists("Workbook") or container.exists("Book"):
        from worker.adapters.attachments.formats import excel97

        sink.meta["detectedType"] = "xls"
        excel97.read(container, file, sink)
    elif container.exists("__properties_version1.0"):
        from worker.adapters.attachments.formats import outlook

        sink.meta["detectedType"] = "msg"
        outlook.read(container, sink)
    else:
        raise FormatError("UNSUPPORTED_TYPE", "an OLE container of another program")


def stream(container: olefile.OleFileIO, name: str | list[str]) -> bytes:
    """A stream's bytes, ``b""`` when it is not there; at most 64 MiB."""
    if not container.exists(name):
        return b""
    return bytes(container.openstream(name).read(MAX_STREAM))
