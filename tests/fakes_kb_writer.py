"""A repository in memory and the writer over it: the same planning as the real one, no git, no network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tasks.contract.outcome import Receipt
from tasks.kb import paths
from tasks.ports import Change, Clock, RepoRef
from worker.adapters.kb_git.commit_plan import Kind, plan_batch


@dataclass(frozen=True)
class MemoryCommit:
    """One commit: all files of the repository after it, and the tasks it was made for."""

    id: str
    message: str
    files: dict[str, bytes]
    task_ids: tuple[str, ...] = ()


@dataclass
class MemoryRepo:
    """A repository: its commits, oldest first."""

    history: list[MemoryCommit] = field(default_factory=list)

    @property
    def head(self) -> MemoryCommit:
        return self.history[-1] if self.history else MemoryCommit("", "", {})

    def add(
        self, files: Mapping[str, bytes], message: str, task_ids: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> str:
        """A commit that changes ``files`` and deletes ``drop``; its id."""
        kept = {path: data for path, data in self.head.files.items() if path not in drop}
        seed = f"{len(self.history)} {message}".encode()
        self.history.append(MemoryCommit(hashlib.sha1(seed).hexdigest(), message, {**kept, **files}, tuple(task_ids)))
        return self.head.id


@dataclass(frozen=True)
class MemoryHead:
    """``commit_plan.HeadView`` over files in memory."""

    commit: str
    files: Mapping[str, bytes]

    def kind(self, path: str) -> Kind | None:
        if path in self.files:
            return "file"
        return "folder" if any(name.startswith(f"{path}/") for name in self.files) else None

    def names(self, folder: str) -> set[str]:
        inside = f"{folder}/"
        return {name.removeprefix(inside).split("/")[0] for name in self.files if name.startswith(inside)}

    def read(self, path: str) -> bytes:
        return self.files[path]

    def starts(self, paths: Sequence[str], size: int) -> Iterator[tuple[str, bytes]]:
        return ((path, self.files[path][:size]) for path in paths if path in self.files)

    def pages(self) -> Iterator[tuple[str, bytes]]:
        return ((path, data) for path, data in sorted(self.files.items()) if paths.is_page(path))

    def has_pages(self) -> bool:
        return any(True for _ in self.pages())


class MemoryKbWriter:
    """``KbWriter`` over repositories in memory. ``refusal``: what every write is refused with, ``""`` for none."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.repos: dict[RepoRef, MemoryRepo] = {}
        self.refusal = ""
        self.landed: Callable[[int], None] = lambda _pages: None
        self._given: dict[str, Receipt] = {}

    def commit(self, repo: RepoRef, changes: Sequence[Change]) -> list[Receipt]:
        memory = self.repos.setdefault(repo, MemoryRepo())
        known = self._known(memory, changes)
        new = list({change.task_id: change for change in reversed(changes) if change.task_id not in known}.values())[
            ::-1
        ]
        stamp = datetime.fromtimestamp(int(self.clock.now()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        plan = plan_batch(MemoryHead(memory.head.id, memory.head.files), new, stamp)
        receipts = {receipt.task_id: receipt for receipt in plan.receipts}
        if plan.files and self.refusal:
            for task_id in plan.written:
                receipts[task_id] = Receipt(task_id=task_id, errors=(self.refusal,))
        elif plan.files:
            commit = memory.add(plan.files, f"kbw: {len(plan.written)} QA page(s)", plan.written)
            for task_id in plan.written:
                receipts[task_id] = receipts[task_id].model_copy(update={"commit_id": commit})
            self.landed(len(plan.written))
        self._given.update(receipts)
        return [known.get(change.task_id) or receipts[change.task_id] for change in changes]

    def _known(self, memory: MemoryRepo, changes: Sequence[Change]) -> dict[str, Receipt]:
        committed = {task_id for commit in memory.history for task_id in commit.task_ids}
        return {c.task_id: self._given[c.task_id] for c in changes if c.task_id in committed}
