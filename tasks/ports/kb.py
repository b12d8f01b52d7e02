"""Reading and writing the team's repository; must not know that it is git."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tasks.contract.outcome import QaPage, Receipt
    from tasks.contract.pages import PageFacts
    from tasks.contract.shape import Note


@dataclass(frozen=True)
class RepoRef:
    """One repository: ``owner/name``. The base URL and the token belong to the adapter, never to a job."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True)
class RankedPage:
    """A page found for a question. ``score`` is only comparable within one answer; ``passage`` is its best text."""

    facts: PageFacts
    score: float
    passage: str


class Snapshot(Protocol):
    """The repository at one commit. Everything read through one snapshot belongs to exactly that commit.

    Visibility, metadata precedence and warnings follow CONTRACT §4.1 "Visible page".
    """

    @property
    def commit(self) -> str:
        """Full hex id (40 or 64 digits)."""

    @property
    def page_count(self) -> int:
        """Number of visible pages."""

    def lookup(self, path: str) -> PageFacts | None:
        """Facts of a visible page by its exact NFC path, else ``None``."""

    def listing(self, limit: int, first: Sequence[str]) -> list[PageFacts]:
        """At most ``limit`` pages for ``catalogPages``: ``first`` in order, then spread over all types."""

    def rank(self, question: str, limit: int, history: Sequence[str] = (), passages: int = 10) -> list[RankedPage]:
        """The best pages for the question over all visible pages, best first.

        ``history``: earlier questions and titles of cited pages, the newest last; they weigh in when the question leans
        on them. The first ``passages`` hits with text have one, of at most 1,200 characters; the others ``""``.
        """

    def read(self, path: str) -> str | None:
        """The page file's text (frontmatter included) at this commit, decoded leniently; ``None``: not there."""

    def index_text(self, limit: int) -> str:
        """The first ``limit`` characters of ``index.md``, ``""`` without one."""

    def notes(self, paths: Iterable[str]) -> list[Note]:
        """Warnings of the catalog itself and of the given pages (broken frontmatter, …)."""


class KbReader(Protocol):
    """Reads a repository. Raises ``KB_UNREACHABLE`` (transient), ``KB_AUTH``, ``KB_NOT_FOUND`` (permanent)."""

    def latest(self, repo: RepoRef, *, fresh: bool) -> Snapshot:
        """The remote's head: looked up now when ``fresh``, else at most 2 s ago."""

    def at(self, repo: RepoRef, commit: str) -> Snapshot:
        """The snapshot a job is pinned to. Raises ``COMMIT_GONE`` (permanent) when it cannot be had any more."""


@dataclass(frozen=True)
class Change:
    """One job's wish to have its QA page in the repository."""

    task_id: str
    page: QaPage


class KbWriter(Protocol):
    """Writes QA pages: the only way into the repository."""

    def commit(self, repo: RepoRef, changes: Sequence[Change]) -> list[Receipt]:
        """One commit and one push for all ``changes``; receipts in the same order.

        A change whose ``Task-Id`` is already in the history gets that commit's receipt and writes nothing. What is
        refused for good (protected branch, hook, catalog that is no JSON) comes back as a receipt with a Chinese
        sentence in ``errors`` and an empty ``commit_id``. Raises only ``TransientError`` (the batch may be tried again
        as it is), ``KB_AUTH`` and ``KB_NOT_FOUND``.
        """
