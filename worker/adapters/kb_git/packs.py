"""Packs of a repository on disk: where an object lies, what it is a delta of, and writing a new pack; must not push.

Git tells neither the delta that it keeps nor takes one that we know, so both are done here. Format: gitformat-pack
(pack version 2, index version 2); tests hold ours against what ``git index-pack`` and ``git fsck`` say.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import sys
import tempfile
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

KINDS = {b"commit": 1, b"tree": 2, b"blob": 3}
_OFFSET_DELTA, _ID_DELTA = 6, 7
_INDEX_HEAD = b"\xfftOc\x00\x00\x00\x02"
_FAN, _NAMES = 8, 8 + 256 * 4
_FAR = 1 << 31
_FAST = 1  # zlib level


@dataclass(frozen=True)
class Entry:
    """An object in a pack. ``base``: the id that it is a delta of, ``""`` for a whole one · ``packed``: zlib stream."""

    id: str
    kind: int
    size: int
    base: str
    packed: bytes

    def unpacked(self) -> bytes:
        """The object's bytes, or the delta. Raises ``ValueError`` for a damaged one."""
        try:
            data = zlib.decompress(self.packed, bufsize=max(self.size, 1))
        except zlib.error as error:
            raise ValueError(f"object {self.id} is damaged in its pack") from error
        if len(data) != self.size:
            raise ValueError(f"object {self.id} is damaged in its pack")
        return data


def chain(folder: Path, object_id: str, until: str = "", most: int = 64) -> list[Entry]:
    """``object_id`` and what it is a delta of, one after the other.

    Down to a whole one, or to the one that is made of ``until``.
    ``[]``: it is in no pack below ``folder``, or the way is longer than ``most``.
    """
    found: list[Entry] = []
    wanted = object_id
    while wanted and wanted != until:
        entry = find(folder, wanted)
        if entry is None or len(found) == most:
            return []
        found.append(entry)
        wanted = entry.base
    return found


def find(folder: Path, object_id: str) -> Entry | None:
    """The object in one of the packs of ``folder``, the newest first; ``None`` when it is in none."""
    raw = bytes.fromhex(object_id)
    for path in _newest_first(folder):
        with suppress(OSError, ValueError, IndexError, struct.error), _Pack(path, len(raw)) as pack:
            number = pack.number(raw)
            if number is not None:
                return pack.entry(number)
    return None


def _newest_first(folder: Path) -> list[Path]:
    with suppress(OSError):
        files = [item for item in os.scandir(folder) if item.name.endswith(".idx")]
        return [Path(item.path) for item in sorted(files, key=lambda item: -item.stat().st_mtime_ns)]
    return []


class _Pack:
    """One pack and its index, mapped."""

    def __init__(self, index: Path, id_bytes: int) -> None:
        self._path = index
        self._id_bytes = id_bytes
        with index.open("rb") as file:
            self._index = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._index[:8] != _INDEX_HEAD:
            raise ValueError(f"{index.name} is no index that we know")
        self.count = self._fan(255)

    def __enter__(self) -> _Pack:
        return self

    def __exit__(self, *_: object) -> None:
        self._index.close()

    def number(self, raw_id: bytes) -> int | None:
        """Which object of the pack it is."""
        low, high = self._fan(raw_id[0] - 1) if raw_id[0] else 0, self._fan(raw_id[0])
        at = bisect_left(range(high), raw_id, low, high, key=self._name)
        return at if at < high and self._name(at) == raw_id else None

    def entry(self, number: int) -> Entry:
        """An object as it lies there."""
        start = self._offsets[number]
        end = min((offset for offset in self._offsets if offset > start), default=None)
        with self._path.with_suffix(".pack").open("rb") as file:
            file.seek(start)
            size = os.fstat(file.fileno()).st_size - self._id_bytes
            data = file.read((end or size) - start)
        if zlib.crc32(data) != self._check(number):
            raise ValueError(f"{self._path.name} and its pack differ")
        kind, length, at = _head(data)
        base = ""
        if kind == _OFFSET_DELTA:
            back, at = _back(data, at)
            base = self._name(self._offsets.index(start - back)).hex()
        elif kind == _ID_DELTA:
            base, at = data[at : at + self._id_bytes].hex(), at + self._id_bytes
        return Entry(self._name(number).hex(), kind, length, base, data[at:])

    def _fan(self, first: int) -> int:
        return int.from_bytes(self._index[_FAN + 4 * first : _FAN + 4 * first + 4], "big")

    def _name(self, number: int) -> bytes:
        start = _NAMES + number * self._id_bytes
        return self._index[start : start + self._id_bytes]

    def _check(self, number: int) -> int:
        start = _NAMES + self.count * self._id_bytes + 4 * number
        return int.from_bytes(self._index[start : start + 4], "big")

    @cached_property
    def _offsets(self) -> array[int]:
        start = _NAMES + self.count * (self._id_bytes + 4)
        near = array("I")
        near.frombytes(self._index[start : start + 4 * self.count])
        if sys.byteorder == "little":
            near.byteswap()
        far = start + 4 * self.count
        if self.count and max(near) >= _FAR:
            places = (far + 8 * (place - _FAR) if place >= _FAR else -place for place in near)
            return array("Q", (int.from_bytes(self._index[p : p + 8], "big") if p > 0 else -p for p in places))
        return near


def _head(data: bytes) -> tuple[int, int, int]:
    """Kind, unpacked size, and where the rest begins."""
    byte = data[0]
    kind, size, shift, at = byte >> 4 & 7, byte & 15, 4, 1
    while byte & 0x80:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return kind, size, at


def _back(data: bytes, at: int) -> tuple[int, int]:
    """How far before an object its base lies."""
    byte = data[at]
    back = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        back = back + 1 << 7 | byte & 0x7F
    return back, at + 1


# ---------------------------------------------------------------- writing


class PackWriter:
    """Collects objects and writes them as one pack: it appears whole or not at all."""

    def __init__(self, folder: Path, id_bytes: int) -> None:
        self._folder = folder
        self._digest = "sha1" if id_bytes == hashlib.sha1(usedforsecurity=False).digest_size else "sha256"
        self._entries: dict[str, tuple[bytes, bytes]] = {}

    def add(self, kind: bytes, data: bytes) -> str:
        """A whole object, unless it is here already; its id."""
        object_id = self.id_of(kind, data)
        if object_id not in self._entries:
            self._entries[object_id] = (_head_bytes(KINDS[kind], len(data)), zlib.compress(data, _FAST))
        return object_id

    def add_delta(self, object_id: str, base: str, delta: bytes) -> None:
        """An object as a delta of one that is in this pack too."""
        head = _head_bytes(_ID_DELTA, len(delta)) + bytes.fromhex(base)
        self._entries.setdefault(object_id, (head, zlib.compress(delta, _FAST)))

    def copy(self, entries: Sequence[Entry]) -> None:
        """Objects as they lie in another pack, each with what it is a delta of."""
        for entry in entries:
            kind = _ID_DELTA if entry.base else entry.kind
            head = _head_bytes(kind, entry.size) + bytes.fromhex(entry.base)
            self._entries.setdefault(entry.id, (head, entry.packed))

    def id_of(self, kind: bytes, data: bytes) -> str:
        """The id of an object."""
        digest = hashlib.new(self._digest, b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
        digest.update(data)
        return digest.hexdigest()

    def write(self) -> Path:
        """Put the pack into the folder, its index last; the pack's path."""
        checks: dict[bytes, tuple[int, int]] = {}
        whole = hashlib.new(self._digest, usedforsecurity=False)
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix="tmp_pack_")  # git's maintenance knows these
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                at = 0
                for raw_id, part in self._parts():
                    file.write(part)
                    whole.update(part)
                    if raw_id:
                        checks[raw_id] = (at, zlib.crc32(part))
                    at += len(part)
                file.write(whole.digest())
                _seal(file)
            target = self._folder / f"pack-{whole.hexdigest()}.pack"
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._write_index(target.with_suffix(".idx"), checks, whole.digest())
        return target

    def _parts(self) -> Iterator[tuple[bytes, bytes]]:
        yield b"", b"PACK" + struct.pack(">II", 2, len(self._entries))
        for object_id, (head, packed) in self._entries.items():
            yield bytes.fromhex(object_id), head + packed

    def _write_index(self, target: Path, checks: dict[bytes, tuple[int, int]], pack: bytes) -> None:
        names = sorted(checks)
        fan = [bisect_left(names, bytes([first + 1])) if first < 255 else len(names) for first in range(256)]
        offsets = [checks[name][0] for name in names]
        far = [offset for offset in offsets if offset >= _FAR]
        near = [_FAR + far.index(offset) if offset >= _FAR else offset for offset in offsets]
        data = b"".join(
            [
                _INDEX_HEAD,
                struct.pack(">256I", *fan),
                *names,
                struct.pack(f">{len(names)}I", *(checks[name][1] for name in names)),
                struct.pack(f">{len(near)}I", *near),
                struct.pack(f">{len(far)}Q", *far),
                pack,
            ]
        )
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix="tmp_idx_")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data + hashlib.new(self._digest, data, usedforsecurity=False).digest())
                _seal(file)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _seal(file: IO[bytes]) -> None:
    os.fchmod(file.fileno(), 0o444)
    file.flush()
    os.fsync(file.fileno())


def _head_bytes(kind: int, size: int) -> bytes:
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)
