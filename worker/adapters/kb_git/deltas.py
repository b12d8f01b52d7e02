"""Where two texts differ, as edits and as git's deltas; must not know packs, catalogs or commits.

75 MB of catalog differ in a few entries from one commit to the next. An edit says so in a few bytes, whether it was
found by comparing both texts or read from a delta in a pack. Format: gitformat-pack, "Deltified representation".
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_CHUNK = 1 << 16
_MOST_COPIED = 1 << 16  # of one instruction, as git writes them
_MOST_INSERTED = 127
_ALIKE, _STEP, _REACH = 1 << 10, 64, 1 << 17  # entries of a catalog hardly differ over hundreds of bytes
_STRAY = 64

Text = bytes | mmap.mmap

Piece = tuple[int, int] | bytes
"""Start and end of what is copied from the old text, or new bytes."""


@dataclass(frozen=True)
class Edit:
    """``old[start:end]`` becomes ``text``."""

    start: int
    end: int
    text: bytes


def edited(old: bytes, edits: Sequence[Edit]) -> bytes:
    """``old`` with ``edits``, which are sorted and do not overlap."""
    view, at = memoryview(old), 0
    parts: list[bytes | memoryview] = []
    for edit in edits:
        parts += [view[at : edit.start], edit.text]
        at = edit.end
    return b"".join([*parts, view[at:]])


# ---------------------------------------------------------------- comparing


def differences(old: Text, new: bytes, i: int = 0, j: int = 0) -> list[Edit]:
    """Edits that make ``new`` from ``j`` on of ``old`` from ``i`` on: small where pieces are equal, never wrong."""
    edits: list[Edit] = []
    end = _common_end(old, new)
    while True:
        same = _common_start(old, i, new, j)
        i, j = i + same, j + same
        if i == len(old) and j == len(new):
            return edits
        tail = min(end, len(old) - i, len(new) - j)
        k, m = _meet(old, i, len(old) - tail, new, j, len(new) - tail)
        edits.append(Edit(i, k, new[j:m]))
        i, j = k, m


def _meet(old: Text, i: int, old_end: int, new: bytes, j: int, new_end: int) -> tuple[int, int]:
    """Where ``old`` from ``i`` and ``new`` from ``j`` on are equal again; both ends when that is nowhere near."""
    for at in range(j, min(new_end - _ALIKE, j + _REACH), _STEP):
        found = old.find(new[at : at + _ALIKE], i, min(old_end, i + _REACH))
        if found >= 0:
            back = 0
            while back < min(found - i, at - j) and old[found - back - 1] == new[at - back - 1]:
                back += 1
            return found - back, at - back
    return old_end, new_end


def _common_start(old: Text, i: int, new: bytes, j: int) -> int:
    """How many bytes from ``i`` and ``j`` on are equal."""
    length, most = 0, min(len(old) - i, len(new) - j)
    step = _CHUNK
    while length < most and step:
        step = min(step, most - length)
        if old[i + length : i + length + step] == new[j + length : j + length + step]:
            length += step
        else:
            step //= 2
    return length


def _common_end(old: Text, new: bytes) -> int:
    """How many bytes at the end are equal."""
    length, most = 0, min(len(old), len(new))
    step = _CHUNK
    while length < most and step:
        step = min(step, most - length)
        if old[len(old) - length - step : len(old) - length] == new[len(new) - length - step : len(new) - length]:
            length += step
        else:
            step //= 2
    return length


# ---------------------------------------------------------------- git's deltas


def as_delta(old_size: int, edits: Sequence[Edit]) -> bytes:
    """The delta that does ``edits`` to a text of ``old_size`` bytes."""
    new_size = old_size + sum(len(edit.text) - (edit.end - edit.start) for edit in edits)
    parts, at = [_number(old_size), _number(new_size)], 0
    for edit in edits:
        parts += [*_copies(at, edit.start), *_inserts(edit.text)]
        at = edit.end
    return b"".join([*parts, *_copies(at, old_size)])


def from_delta(delta: bytes, read: Callable[[int, int], bytes], old_size: int) -> list[Edit]:
    """What ``delta`` does to a text of which ``read(start, end)`` gives a piece.

    Copies that follow each other in the old text stay; what is copied from elsewhere is read. ``ValueError`` for what
    is no delta of such a text.
    """
    edits: list[Edit] = []
    fresh: list[bytes] = []
    at = 0

    def close(until: int) -> None:
        if fresh or until > at:
            edits.append(Edit(at, until, b"".join(fresh)))
            fresh.clear()

    for piece in pieces_of(delta, old_size):
        if isinstance(piece, bytes):
            fresh.append(piece)
            continue
        start, end = piece
        if start > at and start - at > max(end - start, _STRAY):  # a short piece from far ahead
            fresh.append(read(start, end))
            continue
        if start < at:
            fresh.append(read(start, min(at, end)))
        if end > at:
            start = max(start, at)
            close(start)
            at = end
    close(old_size)
    return edits


def pieces_of(delta: bytes, old_size: int) -> Iterator[Piece]:
    """The instructions of a delta. ``ValueError`` when it is broken or for a text of another size."""
    size, at = _read_number(delta, 0)
    _, at = _read_number(delta, at)
    if size != old_size:
        raise ValueError("a delta for another text")
    while at < len(delta):
        code = delta[at]
        at += 1
        if code & 0x80:
            values = []
            for bits in (4, 3):
                value = 0
                for place in range(bits):
                    if code & 1:
                        value |= delta[at] << 8 * place
                        at += 1
                    code >>= 1
                values.append(value)
            start, end = values[0], values[0] + (values[1] or 0x10000)
            if end > old_size:
                raise ValueError("a delta copies from behind the end")
            yield start, end
        elif code:
            yield delta[at : at + code]
            at += code
        else:
            raise ValueError("a delta holds an unknown instruction")


def _copies(start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, _MOST_COPIED):
        size = min(_MOST_COPIED, end - at)
        code, numbers = 0x80, bytearray()
        for bit, byte in enumerate([*at.to_bytes(4, "little"), *(size & 0xFFFF).to_bytes(3, "little")]):
            if byte:
                code |= 1 << bit
                numbers.append(byte)
        yield bytes([code]) + numbers


def _inserts(text: bytes) -> Iterator[bytes]:
    for at in range(0, len(text), _MOST_INSERTED):
        piece = text[at : at + _MOST_INSERTED]
        yield bytes([len(piece)]) + piece


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
