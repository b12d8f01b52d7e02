"""The index of one commit on disk: its manifest, its files, and how both are checked; must not build one.

A folder ``<commit>-v<schema>`` below ``<mirror>.index``: ``generation.json`` (last, so that a folder without it is no
generation), ``pages/`` (tantivy) and the files of ``catalog_text``.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path

import msgspec

from tasks.contract.pages import PageFacts
from tasks.contract.shape import JsonObject
from worker.adapters.kb_git.page_index import BrokenIndexError, PageIndex

SCHEMA = 4
"""To be raised whenever terms, fields or files change: older generations are then built anew."""

MANIFEST, PAGES = "generation.json", "pages"

JOINED = "joined"
"""The same pages in fewer segments, where tantivy joined some afterwards: what the next update goes on from."""

_HEADS = 500
_LISTED = 1_000
"""So many paths of all groups together are enough for a listing (350 of them, some of them taken already)."""

_EDGE = 64 << 10
_WHOLE = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """What a generation is for and made of.

    ``heads``: the first pages of each group, a group being a type below a top folder, in catalog order; ``counts``: how
    many a group has · ``files``: size and checksum of each file of ``pages/`` · ``catalog``: marks of what keeps the
    catalog's text, none when there is none to go on from.
    """

    schema: int
    commit: str
    size: int = 0
    index_blob: str = ""
    catalog_blob: str = ""
    notes: Sequence[JsonObject] = ()
    missing: Sequence[str] = ()
    is_sorted: bool = False
    heads: Mapping[str, list[str]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    catalog: Mapping[str, int] = field(default_factory=dict)


class Generation:
    """One generation, opened."""

    def __init__(self, folder: Path, *, is_just_made: bool = False) -> None:
        """Raises :class:`BrokenIndexError` for what is missing, damaged or of another schema.

        ``is_just_made``: by this process, out of files that it has checked; a second look would find the same.
        """
        self.folder = folder
        try:
            self.manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError) as error:
            raise BrokenIndexError(f"{folder.name}: no usable manifest ({type(error).__name__})") from error
        if self.manifest.schema != SCHEMA:
            raise BrokenIndexError(f"{folder.name}: schema {self.manifest.schema}, wanted {SCHEMA}")
        if not is_just_made and file_marks(folder / PAGES) != self.manifest.files:
            raise BrokenIndexError(f"{folder.name}: files are missing or were changed")
        self.index = PageIndex(folder / PAGES)
        if self.index.size != self.manifest.size:
            raise BrokenIndexError(f"{folder.name}: {self.index.size} pages, wanted {self.manifest.size}")

    def spread(self, limit: int, first: Iterable[str]) -> list[str] | None:
        """One page of each group in turn, without those of ``first``; ``None`` when the manifest does not know enough.

        So every root and type shows early.
        """
        taken, heads = set(first), self.manifest.heads
        left = ((path for path in group if path not in taken) for group in heads.values())
        paths = list(islice((path for row in zip_longest(*left) for path in row if path is not None), max(limit, 0)))
        short = [len(heads[name]) for name, count in self.manifest.counts.items() if count > len(heads[name])]
        return None if len(paths) < limit and short and min(short) < limit + len(taken) else paths


def group_of(facts: PageFacts) -> str:
    """Where a page stands in the listing: its type and top folder."""
    return f"{facts.type}\0{facts.path.partition('/')[0]}"


class Heads:
    """The first pages of each group while a manifest is made."""

    def __init__(self, manifest: Manifest | None = None) -> None:
        self._heads = {name: list(paths) for name, paths in manifest.heads.items()} if manifest else {}
        self._counts = dict(manifest.counts) if manifest else {}

    def add(self, facts: PageFacts, *, is_sorted: bool) -> None:
        """A page more: at its place when the catalog is sorted, else the last."""
        name = group_of(facts)
        paths, count = self._heads.setdefault(name, []), self._counts.get(name, 0)
        self._counts[name] = count + 1
        if count == len(paths) and (not is_sorted or not paths or facts.path > paths[-1]):
            paths.append(facts.path)
        elif is_sorted and paths and facts.path < paths[-1]:
            paths.append(facts.path)
            paths.sort()
        del paths[_HEADS:]

    def drop(self, facts: PageFacts) -> None:
        """A page less."""
        name = group_of(facts)
        self._counts[name] = self._counts.get(name, 1) - 1
        if facts.path in self._heads.get(name, ()):
            self._heads[name].remove(facts.path)
        if self._counts[name] <= 0:
            self._counts.pop(name)
            self._heads.pop(name, None)

    def put_into(self, manifest: Manifest) -> Manifest:
        """``manifest`` with these heads, as many of each group as a listing can need: every reader holds them."""
        rows, longest = 1, max(self._counts.values(), default=0)
        while rows < longest and sum(min(count, rows) for count in self._counts.values()) < _LISTED:
            rows *= 2
        heads = {name: paths[:rows] for name, paths in self._heads.items()}
        return replace(manifest, heads=heads, counts=self._counts)


def file_marks(folder: Path, known: Mapping[str, tuple[int, int]] | None = None) -> dict[str, tuple[int, int]]:
    """Size and checksum of each file; big ones by their ends. ``known``: marks of files that are the same for sure."""
    marks: dict[str, tuple[int, int]] = {}
    try:
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".tantivy"):
                continue
            same = known and path.name in known and not path.name.endswith(".json")
            marks[path.name] = known[path.name] if known and same else _mark(path)
    except OSError as error:
        raise BrokenIndexError(f"{folder.parent.name}: {error}") from error
    return marks


def _mark(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _WHOLE:
            return size, zlib.crc32(file.read())
        check = zlib.crc32(file.read(_EDGE))
        file.seek(size - _EDGE)
        return size, zlib.crc32(file.read(), check)
