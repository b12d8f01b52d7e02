"""The catalog of one commit as its index keeps it: a text written once and what changed since; must not know git.

So a commit costs what it changes and not 75 MB: the old text is mapped, edits are widened to whole entries, and only
those are read. What is read of the old text is checked; what cannot be told for sure is ``None``, never a guess.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import unicodedata
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import msgspec

from tasks.kb.catalog import Catalog, as_object, skip_space
from worker.adapters.kb_git.deltas import Edit, Text, differences, edited

TEXT, SPANS, SUMS, EDITS = "catalog", "catalog.spans", "catalog.sums", "catalog.edits"

_PAGES = re.compile(rb'"pages"[ \t\r\n]*:[ \t\r\n]*\[')
_BLOCK = 1 << 16
_MOST_PARTS, _MOST_BYTES = 2_000, 4 << 20


@dataclass(frozen=True)
class CatalogDiff:
    """``gone``: paths whose entry went or differs · ``put``: path → its new entry."""

    gone: frozenset[str] = frozenset()
    put: Mapping[str, bytes] = field(default_factory=dict)

    def then(self, later: CatalogDiff) -> CatalogDiff:
        """Both, one after the other."""
        kept = {path: raw for path, raw in self.put.items() if path not in later.gone}
        return CatalogDiff(self.gone | later.gone, {**kept, **later.put})


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """A piece of the text: of the one written once, or (``text``) put in since, with the places of its entries."""

    start: int
    end: int
    text: bytes | None = None
    spans: list[int] = []

    @property
    def size(self) -> int:
        return self.end - self.start if self.text is None else len(self.text)


class _Edits(msgspec.Struct, frozen=True):
    """``head``: how long the text before the first entry is, its bracket included."""

    head: int
    is_sorted: bool
    parts: list[_Part]


class _Base:
    """The text written once, mapped, with the places of its entries and a checksum for each 64 KiB."""

    def __init__(self, text: Text, spans: memoryview, sums: memoryview | None) -> None:
        """``sums``: ``None`` for a text that was not read from disk."""
        self.text, self.spans, self._sums = text, spans, sums
        self._checked: set[int] = set()

    def read(self, start: int, end: int) -> bytes:
        """Raises ``ValueError`` when the text was damaged there."""
        for block in range(start // _BLOCK, -(-end // _BLOCK) if self._sums is not None else 0):
            if block not in self._checked and zlib.crc32(self._block(block)) != self._sums[block]:  # type: ignore[index]
                raise ValueError("the catalog beside the index is damaged")
            self._checked.add(block)
        return self.text[start:end]

    def sums(self) -> bytes:
        count = -(-len(self.text) // _BLOCK)
        return array("I", (zlib.crc32(self._block(number)) for number in range(count))).tobytes()

    def _block(self, number: int) -> bytes:
        return self.text[number * _BLOCK : (number + 1) * _BLOCK]


class CatalogText:
    """One catalog. Never changes: an edit gives another one over the same base."""

    def __init__(self, base: _Base, edits: _Edits, folder: Path | None = None) -> None:
        self._base, self._edits, self._folder = base, edits, folder
        self._starts = [0, *accumulate(part.size for part in edits.parts)]

    @classmethod
    def of(cls, catalog: Catalog) -> CatalogText | None:
        """A catalog just read; ``None`` when its layout is not that of one list at the end."""
        head = _list_start(catalog.data[: catalog.spans[0][0]]) if catalog.spans else None
        if head is None:
            return None
        spans = memoryview(array("Q", [place for span in catalog.spans for place in span]))
        whole = [_Part(0, len(catalog.data))]
        return cls(_Base(catalog.data, spans, None), _Edits(head, catalog.is_sorted, whole))

    @classmethod
    def open(cls, folder: Path, marks: Mapping[str, int]) -> CatalogText:
        """The one in ``folder``. Raises ``ValueError`` or ``OSError`` for what is missing or damaged."""
        edits = msgspec.msgpack.decode(_checked(folder / EDITS, marks), type=_Edits)
        spans = memoryview(_checked(folder / SPANS, marks)).cast("Q")
        sums = memoryview(_checked(folder / SUMS, marks)).cast("I")
        with (folder / TEXT).open("rb") as file:
            if os.fstat(file.fileno()).st_size != marks.get(TEXT):
                raise ValueError(f"{folder.name}: {TEXT} has another size")
            text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return cls(_Base(text, spans, sums), edits, folder)

    def write(self, folder: Path) -> dict[str, int]:
        """Put it into ``folder``, what is there already by a link; the marks that :meth:`open` wants."""
        if self._folder is None:
            parts = {TEXT: self._base.text, SPANS: self._base.spans.tobytes(), SUMS: self._base.sums()}
            for name, data in parts.items():
                (folder / name).write_bytes(data)
        else:
            for name in (TEXT, SPANS, SUMS):
                _link(self._folder / name, folder / name)
        (folder / EDITS).write_bytes(msgspec.msgpack.encode(self._edits))
        marks = {name: zlib.crc32((folder / name).read_bytes()) for name in (SPANS, SUMS, EDITS)}
        return {TEXT: (folder / TEXT).stat().st_size, **marks}

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return self._starts[-1]

    def settled(self) -> CatalogText:
        """The same, as one text to be written anew once much was put in."""
        put = sum(part.size for part in self._edits.parts if part.text is not None)
        if len(self._edits.parts) <= _MOST_PARTS and put <= _MOST_BYTES:
            return self
        spans = array("Q")
        for part, at in zip(self._edits.parts, self._starts, strict=False):
            if part.text is None:
                known = self._base.spans
                first, last = bisect_left(known, part.start), bisect_right(known, part.end)
                run = known[first + first % 2 : last - last % 2]
                spans.extend([place + at - part.start for place in run])
            else:
                spans.extend([place + at for place in part.spans])
        base = _Base(bytes(self.whole()), memoryview(spans), None)
        return CatalogText(base, _Edits(self._edits.head, self._edits.is_sorted, [_Part(0, self.size)]))

    def read(self, start: int, end: int) -> bytes:
        """A piece of the text. Raises ``ValueError`` when it was damaged."""
        pieces = []
        number = max(bisect_right(self._starts, start) - 1, 0)
        while start < end and number < len(self._edits.parts):
            part, at = self._edits.parts[number], self._starts[number]
            stop = min(end, at + part.size)
            if part.text is None:
                pieces.append(self._base.read(part.start + start - at, part.start + stop - at))
            else:
                pieces.append(part.text[start - at : stop - at])
            start, number = stop, number + 1
        return b"".join(pieces)

    def whole(self) -> Text:
        """All of the text, unchecked: to be compared, which shows damage by itself."""
        parts = self._edits.parts
        if len(parts) == 1 and parts[0].text is None:
            return self._base.text
        text = self._base.text
        return b"".join(text[part.start : part.end] if part.text is None else part.text for part in parts)

    def entry(self, path: str) -> bytes | None:
        """The entry of ``path``; ``None`` when it is not found this way: the catalog is not sorted, perhaps."""
        if path in self._put_entries:
            return self._put_entries[path]
        spans = self._base.spans
        number = bisect_left(range(len(spans) // 2), path, key=self._base_path) if self._edits.is_sorted else -1
        if not 0 <= number < len(spans) // 2 or self._base_path(number) != path:
            return None
        start, end = spans[2 * number], spans[2 * number + 1]
        is_kept = any(part.text is None and part.start <= start and end <= part.end for part in self._edits.parts)
        return self._base.read(start, end) if is_kept else None

    def compared(self, new: bytes) -> tuple[CatalogText, CatalogDiff] | None:
        """The same as :meth:`edited` for a text of which nobody says how it differs."""
        head = _list_start(new)
        if head is None:
            return None
        old = self.whole()
        before = differences(old[: self._edits.head], new[:head])
        after = differences(old, new, self._edits.head, head)
        return self.edited([*before, *after])

    def edited(self, edits: Sequence[Edit]) -> tuple[CatalogText, CatalogDiff] | None:
        """The text after ``edits`` (sorted, not overlapping) and what became of its entries; ``None``: unsure."""
        head = self._edits.head
        lead = [edit for edit in edits if edit.end <= head and edit.start < head]
        groups = self._widened(edits[len(lead) :])
        new_head = edited(self.read(0, head), lead)
        if groups is None or _list_start(new_head) != len(new_head):
            return None
        old: dict[str, bytes] = {}
        new: dict[str, bytes] = {}
        puts = [(0, head, _Part(0, 0, new_head))] if lead else []
        for start, end, inner in groups:
            before = self.read(start, end)
            after = edited(before, inner)
            known, fresh = _entries(before), _entries(after)
            if known is None or fresh is None:
                return None
            count = len(new) + len(fresh)
            old.update((path, raw) for path, raw, _ in known)
            new.update((path, raw) for path, raw, _ in fresh)
            if len(new) < count:  # listed twice
                return None
            places = [place for _, raw, at in fresh for place in (at, at + len(raw))]
            puts.append((start, end, _Part(0, 0, after, places)))
        gone = frozenset(path for path, raw in old.items() if new.get(path) != raw)
        diff = CatalogDiff(gone, {path: raw for path, raw in new.items() if old.get(path) != raw})
        parts = list(self._with(puts))
        changed = _Edits(len(new_head), self._edits.is_sorted, parts)
        return CatalogText(self._base, changed, self._folder), diff

    # ------------------------------------------------------------ places

    def _widened(self, edits: Sequence[Edit]) -> list[tuple[int, int, list[Edit]]] | None:
        """Runs of whole entries around the edits: start, end, and the edits counted from that start."""
        groups: list[tuple[int, int, list[Edit]]] = []
        for edit in edits:
            start, end = self._entry_before(edit.start), self._entry_after(edit.end)
            if start is None or end is None or edit.start < self._edits.head:
                return None
            if groups and start <= groups[-1][1]:
                start, end, inner = groups[-1][0], max(end, groups[-1][1]), groups.pop()[2]
            else:
                inner = []
            inner.append(replace(edit, start=edit.start - start, end=edit.end - start))
            groups.append((start, end, inner))
        return groups

    def _entry_before(self, place: int) -> int | None:
        """Where the last entry that begins at or before ``place`` begins."""
        for number in range(max(bisect_right(self._starts, place) - 1, 0), -1, -1):
            if number < len(self._edits.parts):
                part, at = self._edits.parts[number], self._starts[number]
                spans, low = (self._base.spans, part.start) if part.text is None else (part.spans, 0)
                most = min(place - at, part.size - 1) + low
                found = (bisect_right(spans, most) + 1) // 2 - 1
                if found >= 0 and spans[2 * found] >= low and spans[2 * found] < low + part.size:
                    return at + spans[2 * found] - low
        return None

    def _entry_after(self, place: int) -> int | None:
        """Where the first entry that ends at or after ``place`` ends."""
        for number in range(max(bisect_left(self._starts, place) - 1, 0), len(self._edits.parts)):
            part, at = self._edits.parts[number], self._starts[number]
            spans, low = (self._base.spans, part.start) if part.text is None else (part.spans, 0)
            least = max(place - at, 1) + low
            found = bisect_left(spans, least) // 2
            if 2 * found + 1 < len(spans) and spans[2 * found + 1] <= low + part.size:
                return at + spans[2 * found + 1] - low
        return None

    def _with(self, puts: Sequence[tuple[int, int, _Part]]) -> Iterator[_Part]:
        """The parts when each range of ``puts`` (sorted, apart) is replaced."""
        at = 0
        for start, end, part in puts:
            yield from self._between(at, start)
            yield part
            at = end
        yield from self._between(at, self.size)

    def _between(self, start: int, end: int) -> Iterator[_Part]:
        """The parts of a range whose ends lie in no entry."""
        for part, at in zip(self._edits.parts, self._starts, strict=False):
            low, high = max(start - at, 0), min(end - at, part.size)
            if low >= high:
                continue
            if part.text is None:
                yield _Part(part.start + low, part.start + high)
            else:
                inside = [span for span in _pairs(part.spans) if low <= span[0] and span[1] <= high]
                yield _Part(0, 0, part.text[low:high], [place - low for span in inside for place in span])

    @cached_property
    def _put_entries(self) -> dict[str, bytes]:
        found = {}
        for part in self._edits.parts:
            if part.text is not None:
                for start, end in _pairs(part.spans):
                    raw = part.text[start:end]
                    found[str(as_object(msgspec.Raw(raw)).get("path"))] = raw
        return found

    def _base_path(self, number: int) -> str:
        raw = self._base.read(self._base.spans[2 * number], self._base.spans[2 * number + 1])
        return str(as_object(msgspec.Raw(raw)).get("path"))


def _pairs(spans: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(spans[::2], spans[1::2], strict=True)


# ---------------------------------------------------------------- reading pieces


def _list_start(text: bytes) -> int | None:
    """The place after the bracket that opens the top-level list ``pages``."""
    found = _PAGES.search(text)
    if found is None:
        return None
    try:
        head = msgspec.json.decode(text[: found.end()] + b"]}", type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return None
    return found.end() if list(head)[-1:] == ["pages"] else None


def _entries(text: bytes) -> list[tuple[str, bytes, int]] | None:
    """Path, bytes and place of each entry of a piece of the list; ``None`` when one is no plain entry."""
    try:
        text.decode()
        raws = msgspec.json.decode(b"[" + text + b"]", type=list[msgspec.Raw])
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None
    found, at = [], 0
    for raw in raws:
        data = bytes(raw)
        at = text.index(data, skip_space(text, at))
        path = as_object(raw).get("path")
        if not isinstance(path, str) or not path or not unicodedata.is_normalized("NFC", path):
            return None
        found.append((path, data, at))
        at += len(data)
    return found


# ---------------------------------------------------------------- files


def _checked(file: Path, marks: Mapping[str, int]) -> bytes:
    data = file.read_bytes()
    if zlib.crc32(data) != marks.get(file.name):
        raise ValueError(f"{file.parent.name}: {file.name} was damaged")
    return data


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)
