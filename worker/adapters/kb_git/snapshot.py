"""The knowledge base at one commit: visible pages, their facts, texts and ranking; must not write to the repository.

CONTRACT §4.1 "Visible page". Facts and ranking come from the machine's index of exactly this commit, texts from the
mirror.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tasks.contract.pages import PageFacts
from tasks.contract.shape import Note
from tasks.errors import Code, PermanentError, TransientError
from tasks.kb.page import page_body
from tasks.ports import RankedPage, RepoRef
from worker.adapters.kb_git import ranking
from worker.adapters.kb_git.content import decoded, page_text, read_blobs
from worker.adapters.kb_git.dense import ENOUGH, Encoder, Vectors
from worker.adapters.kb_git.file_lock import FileLock
from worker.adapters.kb_git.generation import Generation
from worker.adapters.kb_git.git import NULL_ID, check_hex
from worker.adapters.kb_git.index_store import IndexStore
from worker.adapters.kb_git.mirror import Mirror, Mirrors
from worker.adapters.kb_git.page_index import ANY_VERSION, BrokenIndexError, Found, IndexedPage
from worker.adapters.kb_git.passages import best_passage, page_passages
from worker.adapters.kb_git.terms import Words, is_follow_up

T = TypeVar("T")

PASSAGES = 10
"""So many hits get their best passage read from the page itself."""

_SNAPSHOTS = 4
_FACTS = 2_000


@dataclass(frozen=True)
class Explanation:
    """``terms``: what the question was taken for, with what each tells · ``legs``: how many pages each leg named.

    ``vectors``: how many page files have vectors by now, ``None`` without an encoder.
    """

    terms: Mapping[str, float]
    versions: Sequence[str]
    legs: Mapping[str, int]
    vectors: int | None
    hits: Sequence[Reason]


@dataclass(frozen=True)
class Reason:
    """Why a page stands where it stands.

    ``places``: its place in each leg that named it, from 1 · ``fields``: what each field gave it in the text leg.
    """

    facts: PageFacts
    score: float
    places: Mapping[str, int]
    fields: Mapping[str, float]


@dataclass(frozen=True)
class Legs:
    """The rankings that a question got. ``near`` is empty without an encoder or vectors."""

    query: ranking.Query
    text: list[Found]
    near: list[Found]

    def together(self, limit: int) -> list[Found]:
        """One ranking."""
        return ranking.fused(self.query, self.text, self.near, limit) if self.near else self.text[:limit]


class GitKbReader:
    """``KbReader`` over the mirrors of one git server and the indexes beside them."""

    def __init__(self, mirrors: Mirrors, words: Words | None = None, encoder: Encoder | None = None) -> None:
        """``words``: synonyms · ``encoder``: the second leg of the search, without one there is none."""
        self._mirrors = mirrors
        self._words = words
        self._encoder = encoder
        self._shelves: dict[RepoRef, _Shelf] = {}
        self._guard = threading.Lock()

    def latest(self, repo: RepoRef, *, fresh: bool) -> GitSnapshot:
        """See the port."""
        head = self._mirrors.of(repo).latest(fresh=fresh)
        return self._shelf(repo).snapshot(head.commit or NULL_ID)

    def at(self, repo: RepoRef, commit: str) -> GitSnapshot:
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
            return self._shelves.setdefault(repo, _Shelf(self._mirrors.of(repo), self._words, self._encoder))


class _Shelf:
    """The last few snapshots of one repository."""

    def __init__(self, mirror: Mirror, words: Words | None, encoder: Encoder | None) -> None:
        self._mirror = mirror
        self._store = IndexStore(mirror)
        self._vectors: Vectors | None = None
        if encoder is not None:
            folder = mirror.path.with_name(f"{mirror.path.name}.vectors")
            self._vectors = Vectors(folder, encoder, FileLock(folder / "lock", mirror.clock, 0.0))
        self._words = words
        self._snapshots: OrderedDict[str, GitSnapshot] = OrderedDict()
        self._guard = threading.Lock()

    def snapshot(self, commit: str) -> GitSnapshot:
        with self._guard:
            if commit not in self._snapshots:
                self._snapshots[commit] = GitSnapshot(commit, self._mirror, self._store, self._words, self._vectors)
            self._snapshots.move_to_end(commit)
            while len(self._snapshots) > _SNAPSHOTS:
                self._snapshots.popitem(last=False)
            return self._snapshots[commit]


class GitSnapshot:
    """``Snapshot`` over index and mirror. Safe for threads."""

    def __init__(
        self,
        commit: str,
        mirror: Mirror,
        store: IndexStore,
        words: Words | None = None,
        vectors: Vectors | None = None,
    ) -> None:
        self._commit = commit
        self._mirror = mirror
        self._store = store
        self._words = words
        self._vectors = vectors
        self._generation = store.generation(commit)
        self._known: OrderedDict[str, IndexedPage] = OrderedDict()
        self._has_vectors = False
        self._guard = threading.Lock()

    @property
    def commit(self) -> str:
        """See the port. An empty repository has git's null id."""
        return self._commit

    @property
    def page_count(self) -> int:
        """See the port."""
        return self._generation.manifest.size

    def lookup(self, path: str) -> PageFacts | None:
        """See the port."""
        page = self._pages([path]).get(path)
        return page.facts if page else None

    def listing(self, limit: int, first: Sequence[str]) -> list[PageFacts]:
        """See the port: after ``first``, one page of each type and top folder in turn, until ``limit``."""
        wanted = list(dict.fromkeys(first))
        known = self._pages(wanted)
        chosen = [path for path in wanted if path in known][: max(limit, 0)]
        if len(chosen) < limit:
            chosen += self._spread(limit - len(chosen), chosen)
        pages = self._pages(chosen)
        return [pages[path].facts for path in chosen if path in pages]

    def rank(
        self, question: str, limit: int, history: Sequence[str] = (), passages: int = PASSAGES
    ) -> list[RankedPage]:
        """See the port."""
        legs = self.legs(question, limit, history)
        found = legs.together(limit)
        for hit in found:
            self._remember(hit.page)
        texts = self._passages(found, legs.query, passages)
        return [RankedPage(hit.page.facts, round(hit.score, 4), texts.get(hit.page.facts.path, "")) for hit in found]

    def legs(self, question: str, limit: int, history: Sequence[str] = ()) -> Legs:
        """What each leg finds by itself, ``limit`` pages at most."""
        return self._ask(lambda generation: self._legs(generation, question, limit, history))

    def explain(self, question: str, limit: int, depth: int = 60) -> Explanation:
        """What :meth:`rank` finds among ``depth`` pages of each leg, and why: for operators."""

        def look(generation: Generation) -> Explanation:
            legs = self._legs(generation, question, max(limit, depth), ())
            named = {"text": [hit.path for hit in legs.text], "dense": [hit.path for hit in legs.near]}
            hits = [
                Reason(
                    hit.page.facts,
                    round(hit.score, 3),
                    {leg: paths.index(hit.path) + 1 for leg, paths in named.items() if hit.path in paths},
                    ranking.reasons(generation.index, legs.query, hit),
                )
                for hit in legs.together(limit)
            ]
            terms = dict(sorted(legs.query.worth.items(), key=lambda item: -item[1]))
            counts = {leg: len(paths) for leg, paths in named.items()}
            vectors = self._vectors.count() if self._vectors is not None else None
            return Explanation(terms, list(legs.query.versions), counts, vectors, hits)

        return self._ask(look)

    def wait_for_vectors(self, timeout_s: float) -> None:
        """Until the background has given every page its vectors, or ``timeout_s``; for benches."""
        if self._vectors is not None:
            self._vectors.wait_until_filled(timeout_s)

    def read(self, path: str) -> str | None:
        """See the port. Only visible pages are there; a file over 2 MiB is cut."""
        page = self._pages([path]).get(path)
        if page is None:
            return None
        return page_text(self._mirror.run(lambda repo: next(read_blobs(repo, [page.blob]))))

    def index_text(self, limit: int) -> str:
        """See the port."""
        blob = self._generation.manifest.index_blob
        if not blob or limit <= 0:
            return ""
        data = self._mirror.run(lambda repo: repo.read(blob, 4 * limit + 3))
        return decoded(data, is_cut=len(data) > 4 * limit)[0][:limit]

    def notes(self, paths: Iterable[str]) -> list[Note]:
        """See the port."""
        wanted = list(dict.fromkeys(paths))
        pages = self._pages(wanted)
        notes = [Note.model_validate(note) for note in self._generation.manifest.notes]
        return notes + [note for path in wanted if path in pages for note in pages[path].notes]

    # ------------------------------------------------------------ the index

    def _ask(self, action: Callable[[Generation], T]) -> T:
        """``action`` on the index; one that turns out to be damaged is built anew and asked once more."""
        asked = self._generation
        try:
            return action(asked)
        except BrokenIndexError:
            self._generation = self._store.mend(asked)
        try:
            return action(self._generation)
        except BrokenIndexError as error:
            raise TransientError(
                Code.KB_UNREACHABLE,
                en=f"the index {self._store.folder} stays unusable after a rebuild: {error}",
                zh=f"本机知识库索引损坏且重建后仍不可用（{self._mirror.remote.name}），请检查 KBW_CACHE_DIR 所在磁盘。",
            ) from error

    def _legs(self, generation: Generation, question: str, limit: int, history: Sequence[str]) -> Legs:
        query = ranking.understand(generation.index, question, history, self._words)
        text = ranking.rank(generation.index, query, limit)
        asked = [question]
        if history and is_follow_up(question):
            asked.append(f"{history[-1]}\n{question}")
        return Legs(query, text, self._near(generation, query, asked, limit))

    def _near(self, generation: Generation, query: ranking.Query, asked: Sequence[str], limit: int) -> list[Found]:
        """Pages near the question by meaning; none while too few have vectors: the others get theirs meanwhile."""
        if self._vectors is None or not generation.manifest.size or limit <= 0:
            return []
        if not self._has_vectors:
            self._vectors.fill_later(lambda: self._without_vectors(generation), self._note_vectors)
            if self._vectors.count() >= ENOUGH * generation.manifest.size:
                self._has_vectors = True
            if not self._has_vectors:
                return []
        spare = 8 if generation.index.frequency("version", ANY_VERSION) else 1
        near = self._vectors.nearest(asked, spare * limit)
        return ranking.fitting(generation.index.of_blobs(near), query, limit)

    def _note_vectors(self) -> None:
        self._has_vectors = True

    def _without_vectors(self, generation: Generation) -> list[tuple[str, Callable[[], list[str]]]]:
        known = self._vectors.known() if self._vectors else set()
        missing = {page.blob: page for page in generation.index.all_pages() if page.blob not in known}
        return [(blob, partial(self._page_passages, page)) for blob, page in missing.items()]

    def _page_passages(self, page: IndexedPage) -> list[str]:
        data = self._mirror.run(lambda repo: next(read_blobs(repo, [page.blob])))
        return page_passages(page.facts.title, page_body(page_text(data)))

    def _pages(self, paths: Sequence[str]) -> dict[str, IndexedPage]:
        """The given pages, as far as they are visible; the last ones asked for are kept."""
        with self._guard:
            pages = {path: self._known[path] for path in paths if path in self._known}
        unknown = [path for path in paths if path not in pages]
        if unknown:
            found = self._ask(lambda generation: generation.index.pages(unknown))
            for page in found.values():
                self._remember(page)
            pages |= found
        return pages

    def _remember(self, page: IndexedPage) -> None:
        with self._guard:
            self._known[page.facts.path] = page
            self._known.move_to_end(page.facts.path)
            while len(self._known) > _FACTS:
                self._known.popitem(last=False)

    def _spread(self, limit: int, first: Sequence[str]) -> list[str]:
        known = self._generation.spread(limit, first)
        if known is not None:
            return known
        taken = set(first)
        every = self._ask(lambda generation: [page.facts.path for page in generation.index.all_pages()])
        return [path for path in every if path not in taken][:limit]

    def _passages(self, found: Sequence[Found], query: ranking.Query, count: int) -> dict[str, str]:
        """The best passage of each of the first hits, until ``count`` of them have one."""
        texts: dict[str, str] = {}
        left = [hit.page for hit in found]
        while left and len(texts) < count:
            some, left = left[: count - len(texts)], left[count - len(texts) :]
            blobs = list(dict.fromkeys(page.blob for page in some))
            files = self._mirror.run(lambda repo, blobs=blobs: {b.id: b for b in read_blobs(repo, blobs)})  # type: ignore[misc]
            for page in some:
                if text := best_passage(page_body(page_text(files[page.blob])), query.worth):
                    texts[page.facts.path] = text
        return texts
