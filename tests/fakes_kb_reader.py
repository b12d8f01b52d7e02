"""A knowledge base in memory, by hand: commits are dictionaries of files, ranking counts shared words."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from tasks.contract.pages import PageFacts
from tasks.contract.shape import JsonObject, Note
from tasks.errors import Code, JobError, PermanentError
from tasks.kb.page import Page, decode, page_facts, read_page
from tasks.kb.paths import is_page
from tasks.ports import RankedPage, RepoRef

EMPTY = "0" * 40


class FakeKbReader:
    """``KbReader``: ``publish`` makes a commit, ``failure`` is raised instead of any answer, ``lookups`` are kept."""

    def __init__(self) -> None:
        self.failure: JobError | None = None
        self.lookups: list[bool] = []
        self._history: dict[RepoRef, dict[str, FakeSnapshot]] = {}

    def publish(self, repo: RepoRef, files: Mapping[str, bytes | str]) -> str:
        """A commit that holds exactly ``files`` (none: a repository without commits); its id."""
        data = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        history = self._history.setdefault(repo, {})
        commit = hashlib.sha1(repr((len(history), sorted(data.items()))).encode()).hexdigest() if files else EMPTY
        history[commit] = FakeSnapshot(commit, data)
        return commit

    def latest(self, repo: RepoRef, *, fresh: bool) -> FakeSnapshot:
        self.lookups.append(fresh)
        return next(reversed(self._commits(repo).values()))

    def at(self, repo: RepoRef, commit: str) -> FakeSnapshot:
        found = self._commits(repo).get(commit)
        if found is None:
            raise PermanentError(
                Code.COMMIT_GONE, en=f"{repo}@{commit} is gone", zh=f"知识库版本 {repo}@{commit} 已不存在。"
            )
        return found

    def _commits(self, repo: RepoRef) -> dict[str, FakeSnapshot]:
        if self.failure is not None:
            raise self.failure
        if repo not in self._history:
            raise PermanentError(Code.KB_NOT_FOUND, en=f"no repository {repo}", zh=f"找不到知识库 {repo}。")
        return self._history[repo]


class FakeSnapshot:
    """``Snapshot`` of a dictionary of files."""

    def __init__(self, commit: str, files: Mapping[str, bytes]) -> None:
        self.commit = commit
        self._files = {unicodedata.normalize("NFC", path): data for path, data in files.items()}
        self._notes: list[Note] = []
        self._pages: dict[str, tuple[Page, PageFacts]] = {}
        for path, entry in self._visible():
            page = read_page(decode(self._files[path]).text)
            self._pages[path] = (page, page_facts(path, page, entry))

    @property
    def page_count(self) -> int:
        return len(self._pages)

    def lookup(self, path: str) -> PageFacts | None:
        return self._pages[path][1] if path in self._pages else None

    def listing(self, limit: int, first: Sequence[str]) -> list[PageFacts]:
        order = [path for path in dict.fromkeys(first) if path in self._pages]
        rest = [path for path in self._pages if path not in order]
        seen: dict[object, int] = {}
        turns = []
        for place, path in enumerate(rest):
            group = (self._pages[path][1].type, path.partition("/")[0])
            seen[group] = seen.get(group, -1) + 1
            turns.append((seen[group], place, path))
        return [self._pages[path][1] for path in [*order, *(path for _, _, path in sorted(turns))][:limit]]

    def rank(self, question: str, limit: int, history: Sequence[str] = (), passages: int = 10) -> list[RankedPage]:
        wanted = _signs(question)
        if len(wanted) <= 3 or "它" in question:
            wanted |= _signs(" ".join(history))
        found = []
        for path, (page, facts) in self._pages.items():
            text = f"{facts.title} {' '.join(facts.keywords)} {path} {page.body}"
            score = len(wanted & _signs(text)) + 2 * len(wanted & _signs(facts.title))
            if score:
                found.append(RankedPage(facts, float(score), page.body[:1_200].strip()))
        return sorted(found, key=lambda hit: (-hit.score, hit.facts.path))[:limit]

    def read(self, path: str) -> str | None:
        return decode(self._files[path]).text if path in self._pages else None

    def index_text(self, limit: int) -> str:
        return decode(self._files.get("index.md", b"")).text[:limit]

    def notes(self, paths: Iterable[str]) -> list[Note]:
        notes = list(self._notes)
        for path in paths:
            if path in self._pages:
                notes += self._pages[path][0].notes(path)
                if guess := decode(self._files[path]).guess:
                    notes.append(Note(code="PAGE_ENCODING", path=path, message=guess))
        return notes

    def _visible(self) -> list[tuple[str, JsonObject | None]]:
        try:
            listed = json.loads(self._files["catalog.json"])["pages"]
        except (KeyError, ValueError, TypeError) as error:
            code = "CATALOG_MISSING" if "catalog.json" not in self._files else "CATALOG_INVALID"
            code = "KB_EMPTY" if not self._files else code
            self._notes.append(Note(code=code, path="catalog.json", message=str(error)))
            return [(path, None) for path in sorted(self._files) if is_page(path)]
        entries = {unicodedata.normalize("NFC", entry["path"]): entry for entry in reversed(listed)}
        return [(path, entry) for path, entry in reversed(entries.items()) if is_page(path) and path in self._files]


def _signs(text: str) -> set[str]:
    lowered = text.lower()
    return (
        set(re.findall(r"[a-z0-9]+", lowered))
        | set(re.findall(r"[\u4e00-\u9fff]{2}", lowered))
        | set(re.findall(r"(?<=[\u4e00-\u9fff])[\u4e00-\u9fff]", lowered))
    )
