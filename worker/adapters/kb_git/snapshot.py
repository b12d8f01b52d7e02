"""The knowledge base at one commit: visible pages, their facts, texts and ranking; must not write to the repository.

CONTRACT §4.1 "Visible page". Pages are read and analysed when first needed, and kept by blob id: a new commit reads
only the pages that changed in it.
"""

from __future__ import annotations

import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tasks.contract.pages import PageFacts
from tasks.contract.shape import JsonObject, Note
from tasks.errors import Code, PermanentError
from tasks.kb import catalog as catalog_file
from tasks.kb.page import Page, decode, page_facts, read_page
from tasks.kb.paths import is_page
from tasks.ports import RankedPage, RepoRef, Snapshot
from worker.adapters.kb_git.git import NULL_ID, BareRepo, Blob, DamagedError, TreeEntry, check_hex
from worker.adapters.kb_git.mirror import Mirror, Mirrors
from worker.adapters.kb_git.search import Document, SearchIndex, View

MAX_PAGE_BYTES = 2 << 20
"""Of a page file; the rest is neither searched nor shown."""

_SNAPSHOTS = 4
_FILE_MODES = frozenset({"100644", "100755"})
_BINARY_PROBE = 8_000


@dataclass(frozen=True)
class _Content:
    """One blob as a page: what it says, independent of where it lies."""

    blob: str
    page: Page
    odd: tuple[tuple[str, str], ...] = ()
    """Codes and Chinese remarks about the file itself."""


@dataclass(frozen=True)
class _Entry:
    """A visible page: its NFC path, the blob, and what the catalog says about it."""

    path: str
    blob: str
    catalog: JsonObject | None


@dataclass(frozen=True)
class _Listing:
    """The visible pages of one commit in catalog order, and remarks about the catalog as a whole."""

    entries: Mapping[str, _Entry]
    notes: tuple[Note, ...]
    index_blob: str = ""


class GitKbReader:
    """``KbReader`` over the mirrors of one git server."""

    def __init__(self, mirrors: Mirrors) -> None:
        self._mirrors = mirrors
        self._shelves: dict[RepoRef, _Shelf] = {}
        self._guard = threading.Lock()

    def latest(self, repo: RepoRef, *, fresh: bool) -> Snapshot:
        """See the port."""
        head = self._mirrors.of(repo).latest(fresh=fresh)
        return self._shelf(repo).snapshot(head.commit or NULL_ID)

    def at(self, repo: RepoRef, commit: str) -> Snapshot:
        """See the port. The null id is the empty repository."""
        mirror = self._mirrors.of(repo)
        try:
            check_hex(commit)
        except ValueError as error:
            raise PermanentError(
                Code.COMMIT_GONE,
                en=f"{commit[:64]!r} is no commit id of {repo}: kb.commit must be 40 or 64 hex digits",
                zh="kb.commit 不是完整的提交编号，请重新提问。",
            ) from error
        mirror.have(commit)
        return self._shelf(repo).snapshot(commit)

    def close(self) -> None:
        """Give back the readers' processes."""
        self._mirrors.close()

    def _shelf(self, repo: RepoRef) -> _Shelf:
        with self._guard:
            return self._shelves.setdefault(repo, _Shelf(self._mirrors.of(repo)))


class _Shelf:
    """The last few snapshots of one repository, and what they share."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._snapshots: OrderedDict[str, GitSnapshot] = OrderedDict()
        self._guard = threading.Lock()
        self._index = SearchIndex()

    def snapshot(self, commit: str) -> GitSnapshot:
        with self._guard:
            if commit not in self._snapshots:
                listing = self._mirror.run(lambda repo: _list(repo, commit))
                self._snapshots[commit] = GitSnapshot(commit, listing, self._mirror, self._known_content(), self._view)
                if len(self._snapshots) > _SNAPSHOTS:
                    self._snapshots.popitem(last=False)
            self._snapshots.move_to_end(commit)
            return self._snapshots[commit]

    def _known_content(self) -> dict[str, _Content]:
        """By blob, over all snapshots still kept."""
        return {blob: content for kept in self._snapshots.values() for blob, content in list(kept.content.items())}

    def _view(self, documents: Sequence[Document]) -> View:
        """Postings of pages that no kept commit has any more are dropped by starting anew, now and then."""
        with self._guard:
            if self._index.size > 3 * len(documents) + 1_000:
                self._index = SearchIndex()
            return self._index.view(documents)


class GitSnapshot:
    """``Snapshot`` over the mirror. Safe for threads."""

    def __init__(
        self,
        commit: str,
        listing: _Listing,
        mirror: Mirror,
        content: Mapping[str, _Content],
        view: Callable[[Sequence[Document]], View],
    ) -> None:
        self.content = {entry.blob: content[entry.blob] for entry in listing.entries.values() if entry.blob in content}
        self._commit = commit
        self._listing = listing
        self._mirror = mirror
        self._make_view = view
        self._view: View | None = None
        self._facts: dict[str, PageFacts] = {}
        self._guard = threading.RLock()

    @property
    def commit(self) -> str:
        """See the port. An empty repository has git's null id."""
        return self._commit

    @property
    def page_count(self) -> int:
        """See the port."""
        return len(self._listing.entries)

    def lookup(self, path: str) -> PageFacts | None:
        """See the port."""
        return self._facts_of([path])[0] if path in self._listing.entries else None

    def listing(self, limit: int, first: Sequence[str]) -> list[PageFacts]:
        """See the port: after ``first``, one page of each type and top folder in turn, until ``limit``."""
        entries = self._listing.entries
        chosen = [path for path in dict.fromkeys(first) if path in entries][: max(limit, 0)]
        if len(chosen) < limit:
            taken = set(chosen)
            rest = self._facts_of([path for path in entries if path not in taken])
            chosen += [facts.path for facts in _spread(rest)][: limit - len(chosen)]
        return self._facts_of(chosen)

    def rank(self, question: str, limit: int) -> list[RankedPage]:
        """See the port."""
        hits = self._searchable().rank(question, max(limit, 0))
        facts = self._facts_of([hit.path for hit in hits])
        return [RankedPage(known, hit.score, hit.passage) for known, hit in zip(facts, hits, strict=True)]

    def read(self, path: str) -> str | None:
        """See the port. Only visible pages are there; a file over 2 MiB is cut."""
        entry = self._listing.entries.get(path)
        if entry is None:
            return None
        found = self._mirror.run(lambda repo: next(_blobs(repo, [entry.blob])))
        return _decoded(found.data, found.size > len(found.data))[0]

    def index_text(self, limit: int) -> str:
        """See the port."""
        blob = self._listing.index_blob
        if not blob or limit <= 0:
            return ""
        data = self._mirror.run(lambda repo: repo.read(blob, 4 * limit + 3))
        return _decoded(data, len(data) > 4 * limit)[0][:limit]

    def notes(self, paths: Iterable[str]) -> list[Note]:
        """See the port."""
        entries = [self._listing.entries[path] for path in dict.fromkeys(paths) if path in self._listing.entries]
        notes = list(self._listing.notes)
        for entry, content in zip(entries, self._contents(entries), strict=True):
            notes += content.page.notes(entry.path)
            notes += [
                Note(code=code, path=entry.path, message=f"页面 {entry.path} {text}") for code, text in content.odd
            ]
        return notes

    def _searchable(self) -> View:
        with self._guard:
            if self._view is None:
                entries = list(self._listing.entries.values())
                facts = self._facts_of([entry.path for entry in entries])
                self._view = self._make_view(
                    [
                        Document(entry.path, entry.blob, known.title, known.keywords, content.page.body)
                        for entry, known, content in zip(entries, facts, self._contents(entries), strict=True)
                    ]
                )
            return self._view

    def _facts_of(self, paths: Sequence[str]) -> list[PageFacts]:
        with self._guard:
            new = [self._listing.entries[path] for path in paths if path not in self._facts]
            for entry, content in zip(new, self._contents(new), strict=True):
                self._facts[entry.path] = page_facts(entry.path, content.page, entry.catalog)
            return [self._facts[path] for path in paths]

    def _contents(self, entries: Sequence[_Entry]) -> list[_Content]:
        with self._guard:
            new = list(dict.fromkeys(entry.blob for entry in entries if entry.blob not in self.content))
            if new:
                self.content.update(self._mirror.run(lambda repo: dict(_analysed(repo, new))))
            return [self.content[entry.blob] for entry in entries]


# ---------------------------------------------------------------- what is visible at a commit


def _list(repo: BareRepo, commit: str) -> _Listing:
    if commit == NULL_ID:
        note = Note(code="KB_EMPTY", message="知识库仓库还是空的，没有任何提交")
        return _Listing({}, (note,))
    tree = {entry.path: entry for entry in repo.tree(commit) if entry.kind == "blob" and entry.mode in _FILE_MODES}
    pages, notes = _pages(tree)
    index_blob = tree["index.md"].id if "index.md" in tree else ""
    catalog, problem = _catalog(repo, tree.get("catalog.json"))
    if catalog is None:
        fallback = {path: _Entry(path, entry.id, None) for path, entry in sorted(pages.items())}
        return _Listing(fallback, (problem, *notes), index_blob)
    entries, missing = {}, 0
    for raw_path in catalog.positions:
        path = unicodedata.normalize("NFC", raw_path)
        if path in pages and path not in entries:
            entries[path] = _Entry(path, pages[path].id, catalog.entry(raw_path))
        missing += path not in pages and is_page(path)
    notes += catalog.notes()
    if missing:
        message = f"catalog.json 中有 {missing} 个条目的文件不存在，已跳过"
        notes.append(Note(code="CATALOG_FILE_MISSING", path="catalog.json", message=message))
    return _Listing(entries, tuple(notes), index_blob)


def _pages(tree: Mapping[str, TreeEntry]) -> tuple[dict[str, TreeEntry], list[Note]]:
    """Files that can be pages, by NFC path. Of two names that differ only in their Unicode form the NFC one counts."""
    pages: dict[str, TreeEntry] = {}
    notes = []
    for raw_path, entry in tree.items():
        path = unicodedata.normalize("NFC", raw_path)
        if not is_page(path):
            continue
        if path in pages:
            message = f"{path} 在仓库中有两个仅 Unicode 形式不同的文件，只读取其中一个"
            notes.append(Note(code="PATH_AMBIGUOUS", path=path, message=message))
        if path not in pages or raw_path == path:
            pages[path] = entry
    return pages, notes


def _catalog(repo: BareRepo, entry: TreeEntry | None) -> tuple[catalog_file.Catalog | None, Note]:
    """The catalog, or why there is none to go by."""

    def note(code: str, reason: str) -> Note:
        message = f"catalog.json {reason}，改为列出仓库中的全部 Markdown 页面"
        return Note(code=code, path="catalog.json", message=message)

    if entry is None:
        return None, note("CATALOG_MISSING", "不存在")
    try:
        catalog = catalog_file.parse(repo.read(entry.id))
    except catalog_file.CatalogError as error:
        return None, note("CATALOG_INVALID", error.zh)
    if "pages" not in catalog.members:
        return None, note("CATALOG_INVALID", "没有 pages 列表")
    return catalog, note("", "")


# ---------------------------------------------------------------- one page


def _analysed(repo: BareRepo, blobs: Sequence[str]) -> Iterator[tuple[str, _Content]]:
    for found in _blobs(repo, blobs):
        yield found.id, _analyse(found)


def _blobs(repo: BareRepo, blobs: Sequence[str]) -> Iterator[Blob]:
    """The first 2 MiB of each."""
    for blob, found in repo.read_many(blobs, MAX_PAGE_BYTES):
        if found is None:
            raise DamagedError(f"object {blob} is missing")
        yield found


def _analyse(found: Blob) -> _Content:
    odd: list[tuple[str, str]] = []
    cut = found.size > len(found.data)
    if cut:
        odd.append(("PAGE_TOO_LARGE", f"超过 {MAX_PAGE_BYTES >> 20} MiB，只读取开头部分"))
    text, guess = _decoded(found.data, cut)
    if guess is None:
        odd.append(("PAGE_BINARY", "是二进制文件，无法作为文本读取"))
    elif guess:
        odd.append(("PAGE_ENCODING", f"不是 UTF-8 编码，按 {guess} 解读，可能有误"))
    return _Content(found.id, read_page(text), tuple(odd))


def _decoded(data: bytes, cut: bool) -> tuple[str, str | None]:  # noqa: FBT001  # private, named at each call
    """Text and the guessed encoding; ``None`` for bytes that are no text. A character cut in half is dropped."""
    is_utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    if not is_utf16 and b"\0" in data[:_BINARY_PROBE]:
        return "", None
    for _ in range(4 if cut else 1):
        decoded = decode(data)
        if not decoded.guess:
            break
        data = data[:-1]
    return decoded.text, decoded.guess


def _spread(pages: Iterable[PageFacts]) -> list[PageFacts]:
    """One page of each group in turn, a group being a type below a top folder, so that each shows early."""
    groups: dict[tuple[str, str], list[PageFacts]] = {}
    for facts in pages:
        groups.setdefault((facts.type, facts.path.partition("/")[0]), []).append(facts)
    return [facts for row in zip_longest(*groups.values()) for facts in row if facts is not None]
