"""The only way into the repository: one commit and one push for a batch of QA pages; must not decide what is worth it.

The fast-forward push is the lock (DESIGN §1.4): whoever is late fetches, works its own pages into the new head and
pushes again. Nothing is merged as text and nothing is forced, so a batch can lose nothing of another writer's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from tasks.contract.outcome import Receipt
from tasks.errors import Code, PermanentError, TransientError
from tasks.kb.catalog import Catalog, CatalogError, parse
from tasks.kb.page import decode, read_page
from tasks.ports import Change, Clock, RepoRef
from worker.adapters.kb_git.commit_history import TaskTable
from worker.adapters.kb_git.commit_objects import BIG_BYTES, GitHead, write_commit
from worker.adapters.kb_git.commit_plan import CATALOG, FOLDER, plan_batch
from worker.adapters.kb_git.file_lock import FileLock
from worker.adapters.kb_git.git import BareRepo, RemoteHead, Signature
from worker.adapters.kb_git.mirror import Mirror, Mirrors
from worker.adapters.kb_git.remote import PushReport

MAX_TRIES = 8

_FIRST_BRANCH = "main"
_TURN_S = 60.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_RETRY_AFTER_S = 5.0
_MENDING = "kb-repair"


@dataclass(frozen=True)
class _Built:
    """A commit that was made here but not pushed yet (``commit`` is ``""`` when there is nothing to push)."""

    parent: str
    commit: str
    receipts: list[Receipt]
    written: list[str]
    is_big: bool = False


_Builder = Callable[[BareRepo, RemoteHead], _Built]


class Committer:
    """``KbWriter`` over the machine's mirrors. Safe for threads and processes; any number may run at once."""

    def __init__(
        self,
        mirrors: Mirrors,
        clock: Clock,
        author: str,
        email: str = "",
        *,
        max_tries: int = MAX_TRIES,
        landed: Callable[[int], None] = lambda _pages: None,
    ) -> None:
        """``author``: the bot's name; ``email``: by default the address by which Gitea finds the bot's account.

        ``landed`` is told of each commit that a push of ours brought in, with the number of its pages.
        """
        self._mirrors = mirrors
        self._clock = clock
        self._author = author or "kbw"
        self._email = email or f"{self._author}@noreply.localhost"
        self._max_tries = max_tries
        self._texts: Mapping[str, bytes] = {}  # catalog and index as written last: the next batch begins with them
        self._catalog: Catalog | None = None
        self._tell_landed = landed

    def commit(self, repo: RepoRef, changes: Sequence[Change]) -> list[Receipt]:
        """One receipt a change, in order (``tasks.ports.KbWriter``)."""
        unique: dict[str, Change] = {}
        for change in changes:
            unique.setdefault(change.task_id, change)
        if not unique:
            return []
        asked = list(unique.values())
        receipts = self._told(repo, lambda table: partial(self._build, table=table, changes=asked))
        by_task = {receipt.task_id: receipt for receipt in receipts}
        return [by_task[change.task_id] for change in changes]

    def mend(self, repo: RepoRef, work: Callable[[GitHead, str], Mapping[str, bytes]], title: str) -> Receipt:
        """One commit of files that ``work`` makes out of the newest head; asked again whenever the head has moved.

        ``work``: the head and the time now → path → new bytes, empty when nothing is to be done. The receipt has no
        ``commit_id`` then, and ``errors`` when the server refuses.
        """

        def build(git: BareRepo, remote: RemoteHead) -> _Built:
            head, now = GitHead(git, remote.commit), int(self._clock.now())
            files = work(head, _stamp(now))
            author = Signature(self._author, self._email, now)
            commit = write_commit(head, files, f"{title}\n", author) if files else ""
            is_big = len(files.get(CATALOG, b"")) >= BIG_BYTES
            return _Built(remote.commit, commit, [Receipt(task_id=_MENDING, commit_id=commit)], [_MENDING], is_big)

        return self._told(repo, lambda _table: build)[0]

    def _told(self, repo: RepoRef, prepare: Callable[[TaskTable], _Builder]) -> list[Receipt]:
        """The receipts of one delivery; errors as the port names them."""
        try:
            mirror = self._mirrors.of(repo)
            table = TaskTable(mirror.path.with_name(f"{mirror.path.name}.tasks.sqlite3"))
            return self._in_turn(mirror, table, prepare(table))
        except PermanentError as error:
            if error.code in (Code.KB_AUTH, Code.KB_NOT_FOUND):
                raise
            raise TransientError(Code.KB_UNREACHABLE, en=error.en, zh=error.zh) from error
        except (OSError, sqlite3.Error) as error:
            reason = f"{type(error).__name__}: {error}"
            raise TransientError(
                Code.KB_UNREACHABLE,
                en=f"the mirror of {repo} in KBW_CACHE_DIR cannot be written ({reason})",
                zh=f"本机知识库镜像无法写入（{repo}），请检查 KBW_CACHE_DIR 所在磁盘。",
            ) from error

    def _in_turn(self, mirror: Mirror, table: TaskTable, build: _Builder) -> list[Receipt]:
        """Writers of one machine queue up instead of racing. Who waits too long goes on: the push is the lock."""
        lock = FileLock(mirror.path.with_name(f"{mirror.path.name}.commit.lock"), self._clock, _TURN_S)
        with lock.held():
            receipts = self._deliver(mirror, table, build)
            mirror.tidy()
            return receipts

    def _deliver(self, mirror: Mirror, table: TaskTable, build: _Builder) -> list[Receipt]:
        uncertain: list[_Built] = []
        denied: PermanentError | None = None
        for attempt in range(self._max_tries):
            head = mirror.latest(fresh=True)
            if landed := _landed(mirror, head, uncertain):
                self._tell_landed(len(landed.written))
                return landed.receipts
            if denied:
                raise denied
            built = mirror.run(lambda repo, head=head: build(repo, head))  # type: ignore[misc]
            if not built.commit:
                return built.receipts
            branch, began = head.branch or mirror.run(_first_branch), self._clock.now()
            try:
                report = mirror.run(lambda repo, branch=branch, built=built: _push(repo, branch, built))  # type: ignore[misc]
            except PermanentError as error:  # at the door, or by a proxy after the pack was taken: only a look can tell
                denied, report = error, PushReport("unknown", error.en)
            if report.status == "accepted":
                mirror.pushed(branch, built.commit, began)
                table.add(built.parent, built.commit, built.written)
                self._tell_landed(len(built.written))
                return built.receipts
            if report.status == "refused":
                return _refused(built, mirror.remote.name, report.reason)
            if report.status == "unknown":
                uncertain.append(built)
            self._pause(attempt)
        raise TransientError(
            Code.KB_UNREACHABLE,
            en=f"{mirror.remote.name} took none of {self._max_tries} pushes: other writers were always faster, "
            "or the server gave no answer",
            zh=f"知识库 {mirror.remote.name} 正忙，连续 {self._max_tries} 次写入均未成功，稍后重试。",
            retry_after=_RETRY_AFTER_S,
        )

    def _build(self, repo: BareRepo, remote: RemoteHead, *, table: TaskTable, changes: Sequence[Change]) -> _Built:
        """The commit for those of ``changes`` that the history does not hold yet, on top of ``remote``."""
        done: dict[str, Receipt] = {}
        if remote.commit:
            table.catch_up(repo, remote.commit)
            commits = table.find([change.task_id for change in changes])
            done = {
                change.task_id: _receipt_of(repo, change, commits[change.task_id])
                for change in changes
                if change.task_id in commits
            }
        head = GitHead(repo, remote.commit, dict(self._texts))
        now = int(self._clock.now())
        left = [change for change in changes if change.task_id not in done]
        plan = plan_batch(head, left, _stamp(now), self._catalog)
        commit = ""
        if plan.files:
            author = Signature(self._author, self._email, now)
            commit = write_commit(head, plan.files, _message(plan.written), author)
            self._catalog = plan.catalog
            self._texts = {
                key: text for key, text in head.texts.items() if any(text is data for data in plan.files.values())
            }
        new = {
            receipt.task_id: receipt.model_copy(update={"commit_id": commit})
            if receipt.task_id in plan.written
            else receipt
            for receipt in plan.receipts
        }
        receipts = [done.get(change.task_id) or new[change.task_id] for change in changes]
        is_big = len(plan.files.get(CATALOG, b"")) >= BIG_BYTES
        return _Built(remote.commit, commit, receipts, plan.written, is_big)

    def _pause(self, attempt: int) -> None:
        """Longer each time, and of chance length: two writers must not meet again at the next try."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)
        self._clock.sleep(longest * int(self._clock.token(2), 16) / 0xFFFF)


def _stamp(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _push(repo: BareRepo, branch: str, built: _Built) -> PushReport:
    """With a big catalog git looks for no deltas of its own: ours are there, and looking costs more than it saves."""
    return repo.push(built.commit, branch, small_window=built.is_big)


def _first_branch(repo: BareRepo) -> str:
    """The branch that an empty remote was made for, as far as its clone shows it.

    ``master`` is what git's clone writes when the server names none.
    """
    head = (repo.path / "HEAD").read_text(encoding="utf-8").strip()
    branch = head.removeprefix("ref: refs/heads/")
    return _FIRST_BRANCH if branch in (head, "master") else branch


def _message(task_ids: Sequence[str]) -> str:
    trailers = "".join(f"Task-Id: {task_id}\n" for task_id in task_ids)
    return f"kbw: {len(task_ids)} QA page(s)\n\n{trailers}"


def _landed(mirror: Mirror, head: RemoteHead, uncertain: Sequence[_Built]) -> _Built | None:
    """The commit whose push gave no answer and that is in the history after all."""
    if not head.commit:
        return None
    for built in uncertain:
        if mirror.run(lambda repo, built=built: repo.is_ancestor(built.commit, head.commit)):  # type: ignore[misc]
            return built
    return None


def _refused(built: _Built, name: str, reason: str) -> list[Receipt]:
    text = f"知识库 {name} 拒绝了写入（分支受保护或被服务器钩子拒绝），问答页面未写入：{reason}"
    return [
        Receipt(task_id=receipt.task_id, errors=(text,)) if receipt.task_id in built.written else receipt
        for receipt in built.receipts
    ]


# ---------------------------------------------------------------- a task that was committed before


def _receipt_of(repo: BareRepo, change: Change, commit: str) -> Receipt:
    """The receipt that ``commit`` once gave this task, read back from the repository."""
    found = repo.log(commit, limit=1)
    parent = next(iter(found[0].parents), "") if found else ""
    before, after = GitHead(repo, parent), GitHead(repo, commit)
    old, new = before.level(FOLDER), after.level(FOLDER)
    paths = [f"{FOLDER}/{name}" for name in new if new[name] != old.get(name) and name.endswith(".md")]
    pages = {path: read_page(decode(after.read(path)).text).metadata for path in paths}
    path = next((path for path in paths if pages[path].get("taskId") == change.task_id), "") or next(
        (path for path in paths if pages[path].get("id") == change.page.id), ""
    )
    entry = {}
    if path and after.kind(CATALOG) == "file":
        try:
            entry = parse(after.read(CATALOG)).entry(path) or {}
        except CatalogError:  # cannot be for a commit of ours; then the page alone is the receipt
            entry = {}
    created = bool(path) and path.removeprefix(f"{FOLDER}/") not in old
    return Receipt(task_id=change.task_id, commit_id=commit, path=path, created=created, entry=entry)
