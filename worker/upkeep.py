"""Recovery and pruning, as operators order them and as the elected reconciler does by itself; must not print.

A job is known by its record, by its tombstone (pruned), or by its folder alone (Redis lost it). Each step may be
repeated at any moment, by several processes at once.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks.contract.payload import read_payload
from tasks.contract.shape import JsonObject
from tasks.errors import JobError
from tasks.pipeline import Pipeline, timestamp
from tasks.ports import JobArchive, Ports, Record
from tasks.recovery import History, failure_told, read_history, record_of
from tasks.stages.job import EVENTS, PAYLOAD, Job

log = logging.getLogger("kbw.upkeep")

PRUNED_AT_ONCE = 500
MAX_ROUNDS = 10_000


@dataclass(frozen=True)
class Upkeep:
    """``actor`` stands in the journals. ``rejected`` is the folder of reports; ``trim(older_than_s)`` cuts streams."""

    archive: JobArchive
    ports: Ports
    pipeline_of: Callable[[str], Pipeline]
    rejected: Path
    trim: Callable[[float], int]
    actor: str


# ---------------------------------------------------------------- recovery


@dataclass(frozen=True)
class Recovered:
    """A job that was (or would be) put back: over, or open at ``stage``. ``state`` ``""``: it never was a job."""

    task_id: str
    state: str
    stage: str


def recover(upkeep: Upkeep, *, dry_run: bool = False, only_accepted: bool = False) -> list[Recovered]:
    """Put back every job that only its folder knows; jobs of one conversation in their old order.

    What `kbw run` left unfinished is not the fleet's. ``only_accepted``: open jobs only when their journal says that a
    fleet accepted them; others may be accepted at this very moment.
    """
    return restore(upkeep, unknown_jobs(upkeep), dry_run=dry_run, only_accepted=only_accepted)


def unknown_jobs(upkeep: Upkeep) -> list[str]:
    """Task ids that have a folder, but neither a record nor a tombstone."""
    known = upkeep.archive.remembers(upkeep.ports.folders.task_ids())
    return [task_id for task_id, memory in known.items() if memory == "nothing"]


def restore(
    upkeep: Upkeep, task_ids: Sequence[str], *, dry_run: bool = False, only_accepted: bool = False
) -> list[Recovered]:
    """Put these jobs back, each as its folder tells it."""
    found: list[tuple[History, Job, Record]] = []
    lost: list[Recovered] = []
    for task_id in task_ids:
        job = Job(task_id, upkeep.ports.folders.open(task_id, known=True), upkeep.ports, float("inf"))
        history = read_history(job.folder)
        record = record_of(job, upkeep.pipeline_of, history)
        if record is None:
            lost.append(Recovered(task_id, "", ""))
        elif record.state != "queued" or _is_the_fleets(history, only_accepted=only_accepted):
            found.append((history, job, record))
    found.sort(key=lambda entry: (entry[0].accepted_at, _in_order(entry[1].task_id)))
    return [_put_back(upkeep, job, record, dry_run=dry_run) for _, job, record in found] + lost


def _is_the_fleets(history: History, *, only_accepted: bool) -> bool:
    return not history.source.startswith("run:") and not (only_accepted and not history.source)


def _put_back(upkeep: Upkeep, job: Job, record: Record, *, dry_run: bool) -> Recovered:
    told = Recovered(record.task_id, record.state, record.stage)
    if dry_run:
        return told
    deadline_s = read_payload(job.folder.read(PAYLOAD) or b"").deadline_seconds
    failure = failure_told(record, job)
    if upkeep.archive.restore(record, deadline_s=deadline_s, failure=failure) and record.state == "queued":
        line: JsonObject = {
            "at": timestamp(upkeep.ports.clock.now()),
            "event": "recover",
            "stage": record.stage,
            "generation": record.generation,
            "epoch": record.epoch + 1,
            "actor": upkeep.actor,
            "traceparent": record.traceparent,
        }
        job.folder.append(EVENTS, line)
        log.warning("recover", extra={"kbw": {"task_id": record.task_id, **line}})
    return told


def _in_order(task_id: str) -> list[tuple[int, str]]:
    """Message 9 before message 10."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", task_id)]


@dataclass
class FolderWatch:
    """What the reconciler does every now and then: a Redis that came back without its last second lost jobs, too.

    A folder that is no job of the fleet is looked into once and remembered.
    """

    upkeep: Upkeep
    _passed: set[str] = field(default_factory=set)

    def look(self) -> int:
        """How many jobs were put back."""
        unknown = set(unknown_jobs(self.upkeep))
        self._passed &= unknown
        fresh = sorted(unknown - self._passed)
        if not fresh:
            return 0
        found = [told for told in restore(self.upkeep, fresh, only_accepted=True) if told.state]
        self._passed |= unknown - {told.task_id for told in found}
        return len(found)


# ---------------------------------------------------------------- pruning


@dataclass(frozen=True)
class Pruned:
    """How much was forgotten; ``jobs`` by id."""

    jobs: tuple[str, ...] = ()
    folders: int = 0
    reports: int = 0
    entries: int = 0


def told_of(pruned: Pruned) -> str:
    """In one line for the log, ``""`` when there was nothing to forget."""
    told = {"jobs": len(pruned.jobs), "folders": pruned.folders, "reports": pruned.reports, "entries": pruned.entries}
    return ", ".join(f"{number} {name}" for name, number in told.items() if number)


def prune(upkeep: Upkeep, older_than_s: float) -> Pruned:
    """Forget jobs that ended that long ago, reports and stream entries of that age.

    First the record becomes a tombstone, then every folder of a tombstone goes: a prune that was killed in between is
    finished by the next one, and a late repeat is known at every moment.
    """
    jobs: list[str] = []
    for _ in range(MAX_ROUNDS):
        part = upkeep.archive.prune(older_than_s, PRUNED_AT_ONCE)
        jobs += part
        if not part:
            break
    return Pruned(
        tuple(jobs), _remove_folders(upkeep), _remove_reports(upkeep, older_than_s), upkeep.trim(older_than_s)
    )


def _remove_folders(upkeep: Upkeep) -> int:
    removed = 0
    for task_id, memory in upkeep.archive.remembers(upkeep.ports.folders.task_ids()).items():
        if memory != "tombstone":
            continue
        try:
            upkeep.ports.folders.remove(task_id)
        except JobError as error:  # the others still go; the next prune tries this one again
            log.warning("prune.kept", extra={"kbw": {"task_id": task_id, "reason": error.en}})
        else:
            removed += 1
    return removed


def _remove_reports(upkeep: Upkeep, older_than_s: float) -> int:
    """Reports by their file's age, by the clock that files get their times from as far as that is known."""
    oldest, removed = time.time() - older_than_s, 0
    for report in upkeep.rejected.glob("*.json"):
        try:
            if report.stat().st_mtime < oldest:
                report.unlink()
                removed += 1
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("prune.kept", extra={"kbw": {"path": str(report), "reason": error.strerror}})
    return removed
