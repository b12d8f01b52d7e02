"""Tantivy files that hold the pages of one commit: words by field, and each page's facts; must not know git.

A folder of such files is never changed once others can see it. What ranks before what is decided in ``ranking``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import tantivy

from tasks.contract.pages import PageFacts
from tasks.contract.shape import Note
from tasks.kb.headings import headings
from worker.adapters.kb_git.terms import characters_of, family, terms_of, versions_of

TEXT_FIELDS = ("body", "title", "keywords", "headings", "place")
CHARACTERS = "characters"
ANY_VERSION = "any"

_HEAP_BYTES = 48 << 20
_META = "meta.json"
_MOST_JOINS = 100
_FREQ = "freq"
_BASIC = "basic"


class BrokenIndexError(Exception):
    """The files cannot be read as an index; they are built anew."""


@dataclass(frozen=True)
class IndexedPage:
    """A visible page as the index keeps it. ``entry``: digest of its catalog entry, ``""`` without one."""

    facts: PageFacts
    blob: str
    entry: str = ""
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Found:
    """A page that matched. ``score`` compares only within one answer."""

    score: float
    address: tantivy.DocAddress
    stored: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The page's path."""
        return str(self.stored["facts"]["path"])

    @property
    def family(self) -> tuple[str, tuple[int, ...]]:
        """See ``terms.family``."""
        name, version = self.stored.get("family") or (self.path, ())
        return name, tuple(version)

    @property
    def versions(self) -> frozenset[str]:
        """Versions that the page is for."""
        return frozenset(self.stored.get("versions", ()))

    @cached_property
    def page(self) -> IndexedPage:
        """All that is stored about it."""
        notes = tuple(Note.model_validate(note) for note in self.stored.get("notes", ()))
        facts = PageFacts.model_validate(self.stored["facts"])
        return IndexedPage(facts, self.stored["blob"], self.stored["entry"], notes)

    def weighed(self, factor: float) -> Found:
        """The same page with another score."""
        return Found(self.score * factor, self.address, self.stored)


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("path", tokenizer_name="raw", index_option=_BASIC)
    builder.add_text_field("blob", tokenizer_name="raw", index_option=_BASIC)
    builder.add_text_field("version", tokenizer_name="whitespace", index_option=_BASIC)
    builder.add_text_field(CHARACTERS, tokenizer_name="whitespace", index_option=_BASIC)
    for name in TEXT_FIELDS:
        builder.add_text_field(name, tokenizer_name="whitespace", index_option=_FREQ)
    builder.add_bytes_field("page", stored=True)
    return builder.build()


class PageIndex:
    """Read access to one folder. Safe for threads; the files stay mapped, so they may be deleted meanwhile."""

    def __init__(self, folder: Path) -> None:
        with guarded(folder):
            index = tantivy.Index.open(str(folder))
            index.config_reader("manual")
            index.reload()
            self._searcher = index.searcher()
        self._folder = folder
        self.schema = index.schema

    @property
    def size(self) -> int:
        """Number of pages."""
        return int(self._searcher.num_docs)

    def frequency(self, field: str, term: str) -> int:
        """How many pages hold ``term`` in ``field`` (some of them replaced meanwhile, perhaps)."""
        return int(self._searcher.doc_freq(field, term))

    def term(self, field: str, term: str) -> tantivy.Query:
        """Pages with ``term`` in ``field``."""
        option = _FREQ if field in TEXT_FIELDS else _BASIC
        return tantivy.Query.term_query(self.schema, field, term, option)

    def similar(self, field: str, term: str, distance: int) -> tantivy.Query:
        """Pages with a word in ``field`` that is at most ``distance`` letters away; swapped neighbours count as one."""
        return tantivy.Query.fuzzy_term_query(self.schema, field, term, distance, transposition_cost_one=True)

    def count(self, query: tantivy.Query) -> int:
        """How many pages match."""
        with guarded(self._folder):
            return int(self._searcher.search(query, 1, count=True).count or 0)  # type: ignore[attr-defined]  # the stub lacks it

    def search(self, query: tantivy.Query, limit: int) -> list[Found]:
        """The best pages, best first; equal ones by path."""
        if limit <= 0 or not self.size:
            return []
        with guarded(self._folder):
            hits = self._searcher.search(query, limit, count=False).hits
            found = [Found(score, address, self._stored(address)) for score, address in hits]
        return sorted(found, key=lambda hit: (-hit.score, hit.path))

    def explain(self, query: tantivy.Query, found: Found) -> float:
        """What ``query`` gives this page."""
        with guarded(self._folder):
            try:
                return float(orjson.loads(query.explain(self._searcher, found.address).to_json())["value"])
            except ValueError:  # tantivy's way to say that it does not match
                return 0.0

    def pages(self, paths: Sequence[str]) -> dict[str, IndexedPage]:
        """The given pages, as far as they are visible."""
        if not paths:
            return {}
        query = tantivy.Query.term_set_query(self.schema, "path", list(paths))
        return {found.path: found.page for found in self.search(query, len(paths))}

    def of_blobs(self, blobs: Sequence[str]) -> list[Found]:
        """The pages whose files these are, in the order of ``blobs``."""
        if not blobs:
            return []
        query = tantivy.Query.term_set_query(self.schema, "blob", list(blobs))
        order = {blob: place for place, blob in enumerate(blobs)}
        found = self.search(query, 2 * len(blobs) + 100)
        return sorted(found, key=lambda hit: order[hit.stored["blob"]])

    def all_pages(self) -> Iterator[IndexedPage]:
        """Every page, sorted by path."""
        for found in self.search(tantivy.Query.all_query(), self.size):
            yield found.page

    def _stored(self, address: tantivy.DocAddress) -> Mapping[str, Any]:
        stored: Mapping[str, Any] = orjson.loads(bytes(self._searcher.doc(address).get_first("page") or b""))
        return stored


class PageIndexWriter:
    """Changes one folder that nobody else sees yet."""

    def __init__(self, folder: Path, *, is_new: bool) -> None:
        with guarded(folder):
            index = tantivy.Index(_schema(), str(folder), reuse=False) if is_new else tantivy.Index.open(str(folder))
            self._writer = index.writer(heap_size=_HEAP_BYTES, num_threads=1)
        self.folder = folder
        self._is_new = is_new

    def put(self, page: IndexedPage, body: str) -> None:
        """Add a page, in place of an earlier one at its path."""
        facts = page.facts
        document = tantivy.Document()
        document.add_text("path", facts.path)
        document.add_text("blob", page.blob)
        document.add_text("body", _joined([body]))
        document.add_text("title", _joined([facts.title]))
        document.add_text("keywords", _joined(facts.keywords))
        document.add_text("headings", _joined(heading.text for heading in headings(body)))
        document.add_text("place", _joined([facts.path.removesuffix(".md")]))
        document.add_text(CHARACTERS, " ".join(characters_of("\n".join([facts.title, *facts.keywords, body]))))
        labels = [facts.title, *map(str, facts.project_ids), *facts.keywords]
        if versions := versions_of(facts.path, labels):
            document.add_text("version", " ".join([ANY_VERSION, *sorted(versions)]))
        stored: dict[str, object] = {"facts": facts.document(), "blob": page.blob, "entry": page.entry}
        if versions:
            stored["versions"] = sorted(versions)
        name, version = family(facts.path)
        if version:
            stored["family"] = (name, version)
        if page.notes:
            stored["notes"] = [note.document() for note in page.notes]
        document.add_bytes("page", orjson.dumps(stored))
        with guarded(self.folder):
            if not self._is_new:
                self._writer.delete_documents_by_term("path", facts.path)
            self._writer.add_document(document)

    def drop(self, path: str) -> None:
        """Forget a page."""
        with guarded(self.folder):
            self._writer.delete_documents_by_term("path", path)

    def commit(self) -> None:
        """Write everything out. Tantivy may go on joining segments in the folder, see :func:`link_files`."""
        with guarded(self.folder):
            self._writer.commit()

    def settle(self) -> None:
        """Wait until segments are joined, which takes as long as writing their pages anew; no change comes after it."""
        with guarded(self.folder):
            self._writer.wait_merging_threads()


def segments(folder: Path) -> int:
    """Of how many parts an index consists: each change adds one, and some are joined now and then."""
    return len(_segments_of((folder / _META).read_bytes()))


def link_files(source: Path, target: Path) -> None:
    """The index of one folder in a second one, which is made for it. Files are never written again, only replaced.

    Tantivy may be joining segments in ``source``: it replaces the list before it deletes what the old list named.
    """
    with guarded(source):
        for _ in range(_MOST_JOINS):
            target.mkdir()
            listed = (source / _META).read_bytes()
            for file in _files_of(_segments_of(listed), source):
                _link(file, target / file.name)
            (target / _META).write_bytes(listed)
            if (source / _META).read_bytes() == listed:
                return
            shutil.rmtree(target)
    raise BrokenIndexError(f"{source.name}: its list of segments does not come to rest")


def _segments_of(listed: bytes) -> dict[str, int | None]:
    """The segments by the names of their files, with the number of the file that tells their deleted pages."""
    parts = orjson.loads(listed)["segments"]
    return {part["segment_id"].replace("-", ""): (part.get("deletes") or {}).get("opstamp") for part in parts}


def _files_of(parts: Mapping[str, int | None], folder: Path) -> Iterator[Path]:
    for file in folder.iterdir():
        segment = file.name[:32]
        if segment in parts and (file.suffix != ".del" or file.name == f"{segment}.{parts[segment]}.del"):
            yield file


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:  # joined meanwhile; the list has changed, too
        return
    except OSError:  # a file system without hard links
        with suppress(FileNotFoundError):
            shutil.copyfile(source, target)


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Whatever tantivy says about broken files, as one error; its panics are no ``Exception`` for Python."""
    try:
        yield
    except (ValueError, OSError, KeyError) as error:
        raise BrokenIndexError(f"{folder.name}: {type(error).__name__}: {error}"[:300]) from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise BrokenIndexError(f"{folder.name}: {error}"[:300]) from error
        raise


def _joined(texts: Iterable[str]) -> str:
    return " ".join(terms_of("\n".join(texts)))
