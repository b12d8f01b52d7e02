"""Zip containers of office files, read in bounded blocks; must not trust a size that a header states."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from worker.adapters.attachments.formats.sink import FormatError, check_time

BLOCK = 65_536
MAX_UNPACKED = 256 * 1024 * 1024
_MAX_ENTRIES = 100_000


class Package:
    """The members of a zip by name. Names are looked up without regard to case, leading slash or backslashes."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
            raise FormatError("CORRUPT", f"zip directory: {type(error).__name__}") from error
        self.members = self._zip.infolist()
        if len(self.members) > _MAX_ENTRIES:
            raise FormatError("TOO_LARGE", "too many members in the zip")
        self._by_name = {_folded(info.filename): info for info in reversed(self.members)}
        self._left = MAX_UNPACKED

    def __contains__(self, name: str) -> bool:
        return _folded(name) in self._by_name

    def names(self, prefix: str, suffix: str = ".xml") -> list[str]:
        """Folded names below ``prefix`` in natural order: ``slide2`` before ``slide10``."""
        found = [name for name in self._by_name if name.startswith(prefix) and name.endswith(suffix)]
        return sorted(found, key=_natural)

    def read(self, name: str, limit: int = 8 * 1024 * 1024) -> bytes:
        """At most ``limit`` bytes of a member, ``b""`` when it is not there."""
        data = bytearray()
        if name in self:
            for block in self.blocks(name):
                data += block
                if len(data) >= limit:
                    break
        return bytes(data[:limit])

    def blocks(self, name: str) -> Iterator[bytes]:
        """A member's bytes. Raises ``TOO_LARGE`` past 256 MiB over all members, ``CORRUPT``, ``PASSWORD_PROTECTED``."""
        info = self._by_name.get(_folded(name))
        if info is None:
            raise FormatError("CORRUPT", "a part of the package is missing")
        if info.flag_bits & 1:
            raise FormatError("PASSWORD_PROTECTED", "encrypted zip member")
        try:
            with self._zip.open(info) as member:
                while block := member.read(BLOCK):
                    self._left -= len(block)
                    if self._left < 0:
                        raise FormatError("TOO_LARGE", "unpacks to more than 256 MiB")
                    check_time()
                    yield block
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            ValueError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise FormatError("CORRUPT", f"zip member: {type(error).__name__}") from error


def resolve(base: str, target: str) -> str:
    """The member that a relation of part ``base`` points to."""
    if target.startswith("/"):
        return posixpath.normpath(target).lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), target)).lstrip("/")


def _folded(name: str) -> str:
    return name.replace("\\", "/").lstrip("/").lower()


def _natural(name: str) -> tuple[str, int, str]:
    stem = name.rpartition(".")[0]
    digits = len(stem) - len(stem.rstrip("0123456789"))
    number = stem[len(stem) - digits :]
    return stem[: len(stem) - digits], int(number[:9] or 0), name
