"""zip archives: a listing of what is inside, with readable names; must not unpack anything."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from worker.adapters.attachments.formats.decode import decode
from worker.adapters.attachments.formats.package import Package
from worker.adapters.attachments.formats.sink import FormatError, Sink

_UTF8_FLAG = 0x800
_MAX_LISTED = 2_000


def extract(file: BinaryIO, sink: Sink, _kind: str) -> None:
    """The names and sizes of an archive's members."""
    members = Package(file).members
    files = [info for info in members if not info.is_dir()]
    if files and all(info.flag_bits & 1 for info in files):
        raise FormatError("PASSWORD_PROTECTED", "all members are encrypted")
    if not members:
        raise FormatError("EMPTY_FILE", "an archive without members")
    sink.meta["entryCount"] = len(files)
    encoding = _names_encoding(members)
    sink.write(f"压缩包内共 {len(files)} 个文件：\n")
    for info in members[:_MAX_LISTED]:
        size = "" if info.is_dir() else f" ({info.file_size} 字节)"
        sink.write(f"- {_name(info, encoding)}{size}\n")


def _raw(info: zipfile.ZipInfo) -> bytes | None:
    """The name's bytes when the archive does not say that they are UTF-8: the library has read them as cp437."""
    if info.flag_bits & _UTF8_FLAG:
        return None
    try:
        return info.orig_filename.encode("cp437")
    except UnicodeEncodeError:
        return None


def _names_encoding(members: list[zipfile.ZipInfo]) -> str:
    """One encoding for all names: together they are long enough to tell."""
    joined = b"\n".join(raw for info in members[:_MAX_LISTED] if (raw := _raw(info)) and not raw.isascii())
    try:
        return decode(joined).encoding if joined else "utf-8"
    except FormatError:
        return "cp437"


def _name(info: zipfile.ZipInfo, encoding: str) -> str:
    raw = _raw(info)
    if raw is None:
        return info.filename
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        return info.filename
