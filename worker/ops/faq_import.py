"""Importing FAQ batches into WeKnora so that no card is there twice or missing, whatever is killed in between.

One batch at a time: note the intention, start the import, poll to its end, note that it is done. After a kill the
journal says which batch was begun; what became of it is read from its progress, else from the base itself.
Traps of the server: facts/knowledge-weknora.md A1.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.contract import strict_json
from tasks.knowledge.faq import Batch, Mode, content_of, not_there
from tasks.knowledge.found import Status
from tasks.ports import Clock
from worker.adapters.weknora.rest import Base, WeknoraRest
from worker.adapters.weknora.results import WeknoraFault
from worker.ops.failure import OperationFailedError

REQUEST_S, EXPORT_S = 60.0, 300.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0
MAX_ATTEMPTS = 4
_BUSY_CODE = 1000
_BUSY = re.compile(r"正在进行|in progress|already running", re.IGNORECASE)
_BUSY_TASK = re.compile(r"任务\s*ID[:：]\s*([\w.-]+)")
_UNSURE = (Status.TIMEOUT, Status.UNAVAILABLE, Status.BAD_RESPONSE)


class ImportJournal:
    """What was begun and done, one fsynced JSON line each; the torn last line of a killed writer does not count."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, event: str, **facts: Any) -> None:
        """Append one line; it is on disk when this returns."""
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            os.write(handle, (b"\n" if torn else b"") + strict_json.line({"event": event, **facts}))
            os.fsync(handle)
        finally:
            os.close(handle)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """All readable lines of one event, in order."""
        if not self._path.exists():
            return []
        found = []
        for line in self._path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("event") == event:
                found.append(entry)
        return found

    def is_done(self, batch: Batch) -> bool:
        """Whether this batch was seen to be complete; by its id, since the file may hold a later plan than before."""
        return any(line.get("taskId") == batch.task_id for line in self.lines("done"))

    def begun(self, batch: Batch) -> list[str]:
        """Ids of the imports that were begun for this batch, oldest first."""
        ids = [str(line.get("taskId")) for line in self.lines("begin")]
        return [one for one in ids if one == batch.task_id or one.startswith(f"{batch.task_id}-r")]


@contextmanager
def base_lock(folder: Path, base_id: str) -> Iterator[None]:
    """One import a base from this machine; given back by the system when the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(
        folder / f"faq-{re.sub(r'[^A-Za-z0-9-]', '_', base_id)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    )
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationFailedError("another `kbw faq` works on this base here; wait for it") from None
        yield
    finally:
        os.close(handle)


@dataclass
class FaqImport:
    """One plan on its way into one base.

    ``say`` gets a line for the log, ``tell`` one that whoever waits must see, ``moved`` how many cards are done.
    """

    rest: WeknoraRest
    base: Base
    journal: ImportJournal
    clock: Clock
    deadline_s: float
    say: Callable[[str], None]
    tell: Callable[[str], None]
    moved: Callable[[int], None] = lambda _cards: None
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._until = self.clock.monotonic() + self.deadline_s

    def run(self, batches: Sequence[Batch], mode: Mode) -> None:
        """All batches that are not done yet, in order. Raises :class:`OperationFailedError` when one cannot be."""
        # a plan may be older than what the base has by now, or made without a look at it
        there = [] if mode == "replace" else self.rest.export(self.base, timeout=EXPORT_S)
        for batch in batches:
            if not self.journal.is_done(batch):
                begins = mode == "replace" and batch.number == 1
                self._bring(batch, not_there(batch.entries, there), "replace" if begins else "append")
                self.journal.note("done", batch=batch.number, taskId=batch.task_id)
            self.moved(len(batch.entries))

    def dry_run(self, batches: Sequence[Batch], mode: Mode) -> list[str]:
        """What the server says of each batch without storing it; refusals as lines.

        In a plan that replaces, every batch is tried as replacing: what the base has now will be gone by then. Of a dry
        run's progress only status, totals, message and entries are believed: its counts may be those of an older real
        import (trap 4).
        """
        refused: list[str] = []
        for batch in batches:
            pause = FIRST_PAUSE_S
            while not (task := self._start(batch.entries, mode, f"{batch.task_id}-dry", dry_run=True)):
                pause = self._wait(pause)
            progress = self._poll(task)
            if progress is None:
                raise OperationFailedError(f"batch {batch.number}: the server forgot the dry run {task}; try again")
            refused += _refusals(progress, batch.entries)
            told = f"{progress.get('status')}, {progress.get('processed')}/{progress.get('total')}"
            self.say(f"batch {batch.number}: {told} {progress.get('message') or ''}".rstrip())
            if progress.get("status") != "completed":
                raise OperationFailedError(f"batch {batch.number}: dry run {told}: {progress.get('error') or ''}")
            self.moved(len(batch.entries))
        return refused

    # ---------------------------------------------------------------- one batch

    def _bring(self, batch: Batch, missing: Sequence[Mapping[str, Any]], mode: str) -> None:
        """Import until every entry of the batch is in the base, a bounded number of times."""
        begun = self.journal.begun(batch)
        if begun:
            self.say(f"looking what became of {begun[-1]}")
            missing, mode = self._left_after(self._poll(begun[-1]), batch, mode)
        for attempt in range(len(begun), len(begun) + MAX_ATTEMPTS):
            if not missing:
                return
            task_id = batch.task_id if attempt == 0 else f"{batch.task_id}-r{attempt}"
            self.journal.note("begin", batch=batch.number, taskId=task_id, cards=len(missing), mode=mode)
            self.say(f"batch {batch.number}: {mode} {len(missing)} cards as {task_id}")
            missing, mode = self._imported(batch, missing, mode, task_id)
        if missing:
            raise OperationFailedError(
                f"batch {batch.number}: {len(missing)} cards are not in the base after {MAX_ATTEMPTS} imports; "
                "see the server's log, then `kbw faq resume`"
            )

    def _imported(
        self, batch: Batch, entries: Sequence[Mapping[str, Any]], mode: str, task_id: str
    ) -> tuple[Sequence[Mapping[str, Any]], str]:
        """One import from its beginning to its end; what :meth:`_left` then says."""
        pause = FIRST_PAUSE_S
        while entries:
            begun = self._start(entries, mode, task_id, dry_run=False)
            if begun:
                progress = self._poll(begun)
                refused = _refusals(progress or {}, entries)
                if refused:
                    self.refused += refused
                    raise OperationFailedError(f"batch {batch.number}: the server refused {'; '.join(refused[:5])}")
                return self._left_after(progress, batch, mode)
            pause = self._wait(pause)
            entries, mode = self._left(batch, mode)  # an import went on meanwhile, perhaps our own: not all again
        return entries, mode

    def _left(self, batch: Batch, mode: str) -> tuple[list[Mapping[str, Any]], str]:
        """What of the batch the base does not have, and how it has to be brought there.

        A replace that may not have begun begins again with the whole batch: later batches never come before it. It has
        not begun while the base holds anything but these very cards: the same question may have an older answer.
        """
        existing = self.rest.export(self.base, timeout=EXPORT_S)
        if mode == "replace" and not set(map(content_of, existing)) <= set(map(content_of, batch.entries)):
            return list(batch.entries), "replace"
        return not_there(batch.entries, existing), "append"

    def _left_after(
        self, progress: Mapping[str, Any] | None, batch: Batch, mode: str
    ) -> tuple[list[Mapping[str, Any]], str]:
        """The same after an import of the batch: one that was completed has emptied the base if it was to."""
        return self._left(batch, "append" if progress and progress.get("status") == "completed" else mode)

    def _start(self, entries: Sequence[Mapping[str, Any]], mode: str, task_id: str, *, dry_run: bool) -> str:
        """Begin an import, its id; ``""`` when it did not begin: the base was busy, or nobody can tell.

        A busy base is waited for while the server knows the import at work; an unclear answer is settled by asking.
        """
        try:
            return self.rest.start_import(
                self.base, entries, mode=mode, task_id=task_id, dry_run=dry_run, timeout=REQUEST_S
            )
        except WeknoraFault as fault:
            running = _BUSY_TASK.search(fault.told)
            if fault.code == _BUSY_CODE and running and running.group(1) == task_id:
                return task_id  # ours: an earlier answer got lost
            if fault.code == _BUSY_CODE and (running or _BUSY.search(fault.told)):
                self.tell(f"the base is busy with {'import ' + running.group(1) if running else 'an import'}; waiting")
                if running:
                    self._poll(running.group(1))
                return ""
            if fault.status in _UNSURE:
                self.say(f"no clear answer ({fault.detail}); asking whether the import began")
                return task_id if self._progress(task_id) is not None else ""
            raise OperationFailedError(f"import refused: {fault.detail} {fault.told}".rstrip()) from None

    def _poll(self, task_id: str) -> dict[str, Any] | None:
        """The progress once it is over; ``None`` when the server does not know the task: then the base decides."""
        pause, seen = FIRST_PAUSE_S, -1
        while True:
            progress = self._progress(task_id)
            if progress is None or progress.get("status") in ("completed", "failed"):
                if progress is not None and progress["status"] == "failed":
                    self.say(
                        f"{task_id} failed: {progress.get('error') or progress.get('message') or 'no reason told'}"
                    )
                return progress
            processed = progress.get("processed")
            if processed != seen:
                pause, seen = FIRST_PAUSE_S, processed if isinstance(processed, int) else -1
                self.say(f"{task_id}: {progress.get('processed')}/{progress.get('total')}")
            pause = self._wait(pause)

    def _progress(self, task_id: str) -> dict[str, Any] | None:
        """Raises :class:`OperationFailedError` once the deadline is over; a server in trouble is asked again."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                return self.rest.progress(task_id, timeout=REQUEST_S)
            except WeknoraFault as fault:
                if fault.status not in _UNSURE:
                    raise OperationFailedError(f"progress of {task_id}: {fault.detail}") from None
            pause = self._wait(pause)

    def _wait(self, pause: float) -> float:
        if self.clock.monotonic() + pause > self._until:
            raise OperationFailedError(f"not ready after {self.deadline_s:.0f} s; `kbw faq resume` goes on later")
        self.clock.sleep(pause)
        return min(pause * 1.6, LONGEST_PAUSE_S)


def _refusals(progress: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Entries that the server did not take, or took only in part, with its reason."""
    found = []
    for failed in progress.get("failed_entries") or []:
        index, reason = failed.get("index"), str(failed.get("reason") or failed.get("failure_type") or "no reason")
        named = entries[index]["standard_question"] if isinstance(index, int) and index < len(entries) else f"#{index}"
        found.append(f"{str(named)[:40]}: {reason[:200]}")
    return found
