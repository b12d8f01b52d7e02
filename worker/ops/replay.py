"""``kbw replay``: a new generation of jobs that are over; must not repeat an effect (they stay keyed by taskId).

Order: the journal tells the intention, then artefacts move to ``attempts/<generation>/``, then the record is opened
again. A command that dies in between leaves a job that is over without its result in place: replay it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from tasks.contract import strict_json
from tasks.pipeline import Pipeline, Step
from tasks.ports import Record
from tasks.recovery import read_history, stands_at
from tasks.registry import pipeline_of
from tasks.stages.job import PAYLOAD, RESULT, Job
from worker.bootstrap import workshop
from worker.ops.choosing import Choice, chosen
from worker.ops.desk import Desk, open_desk
from worker.ops.failure import OperationFailedError
from worker.settings import Settings

MANY = 20
LOCK_S = 60.0
OVER = ("failed", "cancelled", "done")


@dataclass(frozen=True)
class ReplayOrder:
    """How to replay. ``from_stage`` ``""``: where it failed, else from the beginning; ``deadline_s`` 0: as before."""

    from_stage: str = ""
    deadline_s: float = 0.0
    publish_again: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Replay:
    """What became (or would become) of one job. ``moved``: files that go to ``attempts/<generation>/``."""

    task_id: str
    outcome: str
    stage: str = ""
    reason: str = ""
    moved: tuple[str, ...] = ()


def replay(desk: Desk, task_id: str, order: ReplayOrder) -> Replay:
    """One job. ``outcome``: ``replayed | would_replay | refused``.

    A lock keeps a second operator from moving away what the new generation has written already.
    """
    lock, owner = f"replay:{task_id}", f"{desk.actor}:{desk.ports.clock.token(8)}"
    if not order.dry_run and not desk.records.sweep.lock(lock, owner, LOCK_S):
        return Replay(task_id, "refused", reason="somebody else is replaying it right now")
    try:
        return _replay(desk, task_id, order)
    finally:
        if not order.dry_run:
            desk.records.sweep.unlock(lock, owner)


def _replay(desk: Desk, task_id: str, order: ReplayOrder) -> Replay:
    record = desk.records.views.get(task_id)
    if reason := _no_replay(record):
        return Replay(task_id, "refused", reason=reason)
    assert record is not None
    job, pipeline = desk.job(task_id), pipeline_of(record.skill)
    if job.folder.read(PAYLOAD) is None:
        return Replay(task_id, "refused", reason=f"{job.folder.path}/{PAYLOAD} is missing: send the payload again")
    step, reason = _where(record, job, pipeline, order.from_stage)
    if step is None:
        return Replay(task_id, "refused", reason=reason)
    moved = replaced(job, pipeline, step, publish_again=order.publish_again or _is_foreign(record, job))
    if order.dry_run:
        return Replay(task_id, "would_replay", step.name, moved=moved)
    desk.note(record, "replay", stage=step.name, generation=record.generation + 1, reason=f"was {_was(record)}")
    job.folder.archive(moved, record.generation)
    outcome = desk.records.control.replay(task_id, step.name, deadline_s=order.deadline_s)
    if outcome != "replayed":
        return Replay(task_id, "refused", step.name, f"the job is {outcome} now", moved)
    desk.wake(pipeline, step.name, task_id)
    return Replay(task_id, "replayed", step.name, moved=moved)


def _is_foreign(record: Record, job: Job) -> bool:
    """Whether another system answered this job before us: nobody here accepted it, and its replay is its first run."""
    return record.generation == 0 and not read_history(job.folder).source


def _was(record: Record) -> str:
    return f"{record.state} {record.code}".rstrip()


def _no_replay(record: Record | None) -> str:
    """Why this record cannot be replayed, ``""`` when it can."""
    if record is None:
        return "no such job in the record; `kbw recover` puts back what only a folder knows"
    if record.pruned:
        return "it was pruned: its files are gone; send the question again with a new messageId"
    if record.state not in OVER:
        return (
            f"it is still {record.state} at {record.stage}: `kbw show` tells what it waits for; let it end or cancel it"
        )
    return ""


def _where(record: Record, job: Job, pipeline: Pipeline, wished: str) -> tuple[Step | None, str]:
    """The step to begin with, or why not."""
    names = [step.name for step in pipeline.steps]
    if wished and wished not in names:
        return None, f"no stage {wished!r}; there are {', '.join(names)}"
    step = pipeline.step(wished or default_stage(record, job, pipeline))
    first_missing = stands_at(pipeline, job)
    if names.index(first_missing.name) < names.index(step.name):
        if wished:
            return None, f"what {wished} needs is missing: replay from {first_missing.name}"
        step = first_missing
    return step, ""


def default_stage(record: Record, job: Job, pipeline: Pipeline) -> str:
    """Where a replay begins unless told: the stage that failed, else the first.

    Earlier where the same again would fail again; a success that could not be delivered is delivered.
    """
    if record.failed_stage in [step.name for step in pipeline.steps]:
        return pipeline.mends(record.failed_stage, record.code).name
    if record.state == "failed" and is_success(job):
        return pipeline.last.name
    return pipeline.first.name


def replaced(job: Job, pipeline: Pipeline, step: Step, *, publish_again: bool) -> tuple[str, ...]:
    """The files that a replay from ``step`` moves away: artefacts from there on, and the result unless it is kept.

    A result that is no success is always replaced; the published bytes of a success only when that is wished.
    """
    later = pipeline.steps[pipeline.steps.index(step) :]
    names = [found.writes for found in later if found.writes]
    if publish_again or not is_success(job):
        names.append(RESULT)
    return tuple(name for name in names if job.folder.read(name) is not None)


def is_success(job: Job) -> bool:
    """Whether the job has a result that is a success."""
    try:
        result = strict_json.loads(job.folder.read(RESULT) or b"null")
    except ValueError:
        return False
    return isinstance(result, dict) and result.get("success") is True


# ---------------------------------------------------------------- the command


def replay_jobs(
    settings: Settings,
    task_ids: Sequence[str],
    choice: Mapping[str, Any],
    order: ReplayOrder,
    *,
    yes: bool,
    as_json: bool,
) -> int:
    """By ID or by filter; exit code 1 when one was refused, or when many are meant and ``yes`` is not given."""
    desk = open_desk(workshop(settings))
    if not task_ids:
        states = (choice["state"],) if choice["state"] else ("failed",)
        wanted = Choice(states, choice["stage"], choice["code"], choice["older"], choice["limit"])
        found = chosen(desk.records.views, wanted, desk.now(), oldest_first=True)
        task_ids = [record.task_id for record in found]
        ask_for_yes(len(task_ids), yes=yes or order.dry_run)
    return tell_replays([replay(desk, task_id, order) for task_id in task_ids], as_json=as_json)


def ask_for_yes(count: int, *, yes: bool) -> None:
    """Stop before a filter that took in more than was thought."""
    if count > MANY and not yes:
        raise OperationFailedError(f"{count} jobs match: add --yes to go on, --dry-run to see which")


def tell_replays(replays: Sequence[Replay], *, as_json: bool) -> int:
    """One line a job; exit code 1 when one was refused."""
    if as_json:
        click.echo(json.dumps([asdict(told) for told in replays], ensure_ascii=False, indent=2))
    for told in replays if not as_json else ():
        if told.outcome == "refused":
            click.echo(f"{told.task_id}: not replayed: {told.reason}")
        else:
            kept = f"; kept in attempts/: {', '.join(told.moved)}" if told.moved else ""
            click.echo(f"{told.task_id}: {told.outcome.replace('_', ' ')} from {told.stage}{kept}")
    if not as_json:
        click.echo(f"{sum(told.outcome != 'refused' for told in replays)} of {len(replays)} jobs")
    return 1 if any(told.outcome == "refused" for told in replays) else 0
