"""Fills an index folder for one commit: from nothing, or from a neighbour and what differs; must not publish it."""

from __future__ import annotations

import hashlib
import os
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from tasks.kb.catalog import parse
from tasks.kb.page import page_facts
from tasks.kb.paths import is_page
from worker.adapters.kb_git import packs
from worker.adapters.kb_git.catalog_text import CatalogDiff, CatalogText
from worker.adapters.kb_git.content import Content, read_contents
from worker.adapters.kb_git.deltas import from_delta
from worker.adapters.kb_git.generation import JOINED, MANIFEST, PAGES, SCHEMA, Generation, Heads, Manifest, file_marks
from worker.adapters.kb_git.git import NULL_ID, TreeEntry
from worker.adapters.kb_git.mirror import Mirror
from worker.adapters.kb_git.page_index import IndexedPage, PageIndexWriter, link_files
from worker.adapters.kb_git.visible import CATALOG as CATALOG_FILE
from worker.adapters.kb_git.visible import FILE_MODES, INDEX, Entry, Listing, entry_object, list_pages, missing_note

_CHUNK = 256
_MOST_MISSING = 1_000
_MOST_CHANGES = 3_000
_FEW = 200


class _UnsureError(Exception):
    """The neighbour does not tell enough: look at everything."""


def build(mirror: Mirror, commit: str, base: Generation | None, folder: Path, work: Path) -> PageIndexWriter | None:
    """A whole generation for ``commit`` in the empty ``folder``, the manifest last.

    ``work``: where the pages are written, made here. The writer comes back when segments may still be joined there, of
    which ``folder`` sees nothing.
    """
    if base is not None and base.manifest.size and base.manifest.commit != NULL_ID:
        try:
            return _update(mirror, commit, base, folder, work)
        except _UnsureError:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
    return _build_anew(mirror, commit, base, folder, work)


# ---------------------------------------------------------------- everything looked at


def _build_anew(
    mirror: Mirror, commit: str, base: Generation | None, folder: Path, work: Path
) -> PageIndexWriter | None:
    listing, data = mirror.run(lambda repo: list_pages(repo, commit))
    known = {page.facts.path: page for page in base.index.all_pages()} if base and base.manifest.size else {}
    same = {path for path, entry in listing.entries.items() if path in known and _is_same(known[path], entry)}
    if base and len(same) > len(known) // 2:
        writer = _writer_after(base, work)
    else:
        same, known, base = set(), {}, None
        work.mkdir()
        writer = PageIndexWriter(work, is_new=True)
    for path in known.keys() - listing.entries.keys():
        writer.drop(path)
    facts = {path: known[path].facts for path in same}
    changed = [entry for entry in listing.entries.values() if entry.path not in same]
    for page in _put(mirror, writer, changed):
        facts[page.facts.path] = page.facts
    writer.commit()
    if base is None:  # joined at once: it is the base of all that come
        writer.settle()
    heads = Heads()
    for path in listing.entries:
        heads.add(facts[path], is_sorted=False)
    catalog = CatalogText.of(parse(data)) if listing.is_plain and data else None
    manifest = heads.put_into(_manifest(commit, listing))
    _finish(folder, work, manifest, base.manifest.files if base else {}, catalog)
    return writer if base else None


def _manifest(commit: str, listing: Listing) -> Manifest:
    return Manifest(
        schema=SCHEMA,
        commit=commit,
        size=len(listing.entries),
        index_blob=listing.index_blob,
        catalog_blob=listing.catalog_blob,
        notes=[note.document() for note in listing.notes],
        missing=listing.missing[: _MOST_MISSING + 1],
        is_sorted=listing.is_sorted,
    )


def _is_same(page: IndexedPage, entry: Entry) -> bool:
    return page.blob == entry.blob and page.entry == _digest(entry.catalog)


def _put(mirror: Mirror, writer: PageIndexWriter, entries: Iterable[Entry]) -> Iterable[IndexedPage]:
    """Read, analyse and add pages, some at a time."""
    left = iter(entries)
    while chunk := list(islice(left, _CHUNK)):
        blobs = list(dict.fromkeys(entry.blob for entry in chunk))
        contents = mirror.run(lambda repo, blobs=blobs: read_contents(repo, blobs))  # type: ignore[misc]
        for entry in chunk:
            page = _indexed(entry, contents[entry.blob])
            writer.put(page, contents[entry.blob].page.body)
            yield page


def _indexed(entry: Entry, content: Content) -> IndexedPage:
    facts = page_facts(entry.path, content.page, entry_object(entry.catalog))
    return IndexedPage(facts, entry.blob, _digest(entry.catalog), tuple(content.notes(entry.path)))


def _digest(entry: bytes | None) -> str:
    return "" if entry is None else hashlib.blake2b(entry, digest_size=12).hexdigest()


# ---------------------------------------------------------------- only what differs


@dataclass(frozen=True)
class _Change:
    """What differs from the neighbour: files by path, and entries of the catalog, which is ``catalog`` now."""

    files: Mapping[str, TreeEntry]
    catalog: CatalogText
    diff: CatalogDiff


def _update(mirror: Mirror, commit: str, base: Generation, folder: Path, work: Path) -> PageIndexWriter:
    """The neighbour's files linked, the pages that differ put anew. Raises :class:`_UnsureError`."""
    if not base.manifest.catalog or len(base.manifest.missing) > _MOST_MISSING:
        raise _UnsureError
    change = _look(mirror, commit, base)
    touched = {path for path in {*change.files, *change.diff.gone, *change.diff.put} if is_page(path)}
    if len(touched) > max(_MOST_CHANGES, base.manifest.size // 3):
        raise _UnsureError
    before = base.index.pages(sorted(touched))
    raw = _entries(change, base, touched, before)
    blobs = _blobs(mirror, commit, change, touched, before)
    missing = sorted((set(base.manifest.missing) - touched) | {path for path in raw if path not in blobs})
    now = [Entry(path, blobs[path], raw[path]) for path in sorted(raw) if path in blobs]
    writer, heads = _writer_after(base, work), Heads(base.manifest)
    for path in before.keys() - {entry.path for entry in now}:
        writer.drop(path)
    for page in before.values():
        heads.drop(page.facts)
    for page in _put(mirror, writer, now):
        heads.add(page.facts, is_sorted=base.manifest.is_sorted)
    writer.commit()
    odd = [note for note in base.manifest.notes if note["code"] != "CATALOG_FILE_MISSING"]
    manifest = replace(
        base.manifest,
        commit=commit,
        size=base.manifest.size - len(before) + len(now),
        index_blob=_blob_of(change.files.get(INDEX), base.manifest.index_blob),
        catalog_blob=_blob_of(change.files.get(CATALOG_FILE), base.manifest.catalog_blob),
        missing=missing,
        notes=[*odd, *(note.document() for note in missing_note(len(missing)))],
    )
    _finish(folder, work, heads.put_into(manifest), base.manifest.files, change.catalog)
    return writer


def _writer_after(base: Generation, work: Path) -> PageIndexWriter:
    """A writer in ``work`` that holds the neighbour's pages."""
    joined = base.folder / JOINED
    link_files(joined if joined.is_dir() else base.folder / PAGES, work)
    return PageIndexWriter(work, is_new=False)


def _look(mirror: Mirror, commit: str, base: Generation) -> _Change:
    old = base.manifest.commit
    if not mirror.run(lambda repo: repo.has(old)):
        raise _UnsureError
    changes = mirror.run(lambda repo: repo.changes(old, commit))
    if len(changes) > 2 * max(_MOST_CHANGES, base.manifest.size):
        raise _UnsureError
    files = {entry.path: entry for entry in changes}
    if any(not path.isascii() and not unicodedata.is_normalized("NFC", path) for path in files):
        raise _UnsureError
    try:
        catalog = CatalogText.open(base.folder, base.manifest.catalog)
        changed = files.get(CATALOG_FILE)
        if changed is None:
            return _Change(files, catalog, CatalogDiff())
        if not _is_file(changed):
            raise _UnsureError
        return _Change(files, *_new_catalog(mirror, catalog, base.manifest.catalog_blob, changed.id))
    except (OSError, ValueError) as error:  # what lies beside the pages is damaged
        raise _UnsureError from error


def _new_catalog(mirror: Mirror, old: CatalogText, old_blob: str, new_blob: str) -> tuple[CatalogText, CatalogDiff]:
    """The catalog ``new_blob`` and what became of the entries of ``old``.

    A pack that came by fetch or from our committer tells what differs; else both texts are compared as a whole.
    """
    steps = packs.chain(mirror.path / "objects" / "pack", new_blob, old_blob)
    with suppress(ValueError, IndexError):
        if steps and steps[-1].base and (found := _applied(old, steps)):
            return found
    is_whole = len(steps) == 1 and not steps[0].base
    data = steps[0].unpacked() if is_whole else mirror.run(lambda repo: repo.read(new_blob))
    if found := old.compared(data):
        return found
    raise _UnsureError


def _applied(catalog: CatalogText, steps: Sequence[packs.Entry]) -> tuple[CatalogText, CatalogDiff] | None:
    """What ``steps``, the last one first, make of the catalog."""
    diff = CatalogDiff()
    for step in reversed(steps):
        found = catalog.edited(from_delta(step.unpacked(), catalog.read, catalog.size))
        if found is None:
            return None
        catalog, diff = found[0], diff.then(found[1])
    return catalog, diff


def _entries(
    change: _Change, base: Generation, touched: set[str], before: Mapping[str, IndexedPage]
) -> dict[str, bytes]:
    """The catalog entry of each touched path that has one now."""
    gone, put = change.diff.gone, change.diff.put
    known = before.keys() | set(base.manifest.missing)
    if any(path in known and path not in gone for path in put):
        raise _UnsureError  # listed twice
    raw = {path: entry for path, entry in put.items() if path in touched}
    kept = [path for path in touched if path in known and path not in gone]
    try:
        return raw | _kept_entries(change.catalog, kept)
    except ValueError as error:  # damaged
        raise _UnsureError from error


def _kept_entries(catalog: CatalogText, paths: Sequence[str]) -> dict[str, bytes]:
    """The entries of ``paths``, which have one each."""
    found = {path: entry for path in paths if (entry := catalog.entry(path)) is not None}
    if len(found) == len(paths):
        return found
    whole = parse(catalog.read(0, catalog.size))
    return {path: whole.raw[whole.positions[path]] for path in paths}


def _blobs(
    mirror: Mirror, commit: str, change: _Change, touched: set[str], before: Mapping[str, IndexedPage]
) -> dict[str, str]:
    """The file of each touched path that has one now."""
    blobs = {}
    for path in touched:
        if path in change.files:
            if _is_file(change.files[path]):
                blobs[path] = change.files[path].id
        elif path in before:
            blobs[path] = before[path].blob
    unknown = [path for path in touched if path not in change.files and path not in before]
    if unknown:  # listed only now; the file, if there is one, is older
        plain = len(unknown) <= _FEW and all(path.isascii() for path in unknown)  # else the name's form may differ
        tree = mirror.run(lambda repo: repo.entries(commit, unknown) if plain else repo.tree(commit))
        by_path = {unicodedata.normalize("NFC", entry.path): entry for entry in tree}
        blobs |= {path: by_path[path].id for path in unknown if path in by_path and _is_file(by_path[path])}
    return blobs


def _is_file(entry: TreeEntry) -> bool:
    return entry.kind == "blob" and entry.mode in FILE_MODES


def _blob_of(changed: TreeEntry | None, before: str) -> str:
    if changed is None:
        return before
    return changed.id if _is_file(changed) else ""


# ---------------------------------------------------------------- files


def _finish(
    folder: Path, work: Path, manifest: Manifest, known: Mapping[str, tuple[int, int]], catalog: CatalogText | None
) -> None:
    """The pages out of ``work`` and what stands beside them; the manifest, fsynced, makes the folder a generation."""
    link_files(work, folder / PAGES)
    marks = catalog.settled().write(folder) if catalog else {}
    whole = replace(manifest, files=file_marks(folder / PAGES, known), catalog=marks)
    with (folder / MANIFEST).open("wb") as file:
        file.write(msgspec.json.encode(whole))
        file.flush()
        os.fsync(file.fileno())
