"""How a stage runs in the fleet: claim, run, checkpoint or fail, wake the next; must not know what a stage does.

The job record is the truth, Celery messages are wake-up calls (DESIGN §1.1): a lost, doubled or late message does no
harm, because each attempt starts with a claim on the record and ends with a compare-and-set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from celery import Celery

from tasks.errors import Code, FencedError, JobError, PermanentError, StoreUnavailableError, TransientError
from tasks.leases import KeptLeases, LeaseKeeper
from tasks.pipeline import Pipeline, Step, chance, note, our_bug, perform
from tasks.ports import Claim, EndpointHealth, JobStore, JobSweep, JobViews, Ports
from tasks.rules.retry import delay_before_retry
from tasks.spans import begin_span
from tasks.stages.job import RESULT, Job, failure_of

log = logging.getLogger("kbw.job")


MAX_BATCH = 64
MAX_ROUNDS = 1_000


@dataclass(frozen=True)
class Fleet:
    """What the shells need beside the ports of the stages; built once a process in ``worker/bootstrap.py``.

    ``wake(pipeline, stage, task_id)`` sends a wake-up call. ``worker`` names this process in leases and journals.
    Leases and locks last ``lease_s`` seconds and are renewed four times in that.
    """

    ports: Ports
    jobs: JobStore
    views: JobViews
    sweep: JobSweep
    health: EndpointHealth
    wake: Callable[[Pipeline, str, str], None]
    pipeline_of: Callable[[str], Pipeline]
    worker: str
    lease_s: float = 60.0

    @cached_property
    def leases(self) -> LeaseKeeper:
        """Renews what this process has in hand."""
        now = self.ports.clock.monotonic
        return LeaseKeeper(self.jobs, self.sweep, worker=self.worker, lease_s=self.lease_s, now=now)


def register_shells(app: Celery, pipeline: Pipeline, fleet: Callable[[], Fleet]) -> None:
    """One Celery task a stage, named ``kbw.<pipeline>.<stage>``, that carries only the ``taskId``."""

    def shell_of(step: Step) -> Callable[[str], None]:
        def shell(task_id: str) -> None:
            work = drain if step.batched else advance
            work(fleet(), pipeline, step, task_id)

        return shell

    for step in pipeline.steps:
        app.task(name=pipeline.task_name(step.name), queue=step.queue, shared=False)(shell_of(step))


# ---------------------------------------------------------------- one job


def advance(fleet: Fleet, pipeline: Pipeline, step: Step, task_id: str) -> None:
    """Run ``step`` and the deterministic ones that follow it on the same queue, each claimed and checkpointed."""
    for _ in pipeline.steps:
        taken = take(fleet, pipeline, step, task_id)
        if taken is None:
            return
        claim, job = taken
        with kept(fleet, [taken]):
            following = attempt(fleet, pipeline, step, claim, job)
        if following is None:
            return
        if following.queue != step.queue or following.batched:
            fleet.wake(pipeline, following.name, task_id)
            return
        step = following


def take(fleet: Fleet, pipeline: Pipeline, step: Step, task_id: str) -> tuple[Claim, Job] | None:
    """The claimed job, or ``None`` when there is nothing to do here; a job that must end is sent to publish."""
    endpoint = fleet.ports.model.endpoint if step.calls_model else ""
    claim = fleet.jobs.claim(task_id, step.name, fleet.worker, endpoint=endpoint)
    if not isinstance(claim, Claim):
        log.debug("claim.refused", extra=_fields(task_id, step.name, reason=claim.reason))
        if claim.reason == "to_publish":
            fleet.wake(pipeline, pipeline.last.name, task_id)
        return None
    try:
        folder = fleet.ports.folders.open(task_id, known=True)
    except TransientError as error:  # the share is gone: wait for it, do not burn attempts on it
        delay = delay_before_retry(error, claim.attempt, chance(fleet.ports.clock))
        fleet.jobs.park(claim, delay, error.code, error.en, counted=False)
        log.warning("park", extra=_fields(task_id, step.name, code=error.code, reason=error.en))
        return None
    deadline = fleet.ports.clock.monotonic() + claim.deadline - claim.claimed_at  # this host's clock may be hours off
    job = Job(task_id, folder, fleet.ports, deadline, claim.generation, traceparent=claim.traceparent)
    if step is pipeline.last:
        record = fleet.views.get(task_id)
        job.failure = fleet.views.failure(task_id)
        if record:
            job.result_file, job.more_result_files = record.result_file, record.more_result_files
            job.accepted = record.created
    return claim, job


def attempt(fleet: Fleet, pipeline: Pipeline, step: Step, claim: Claim, job: Job) -> Step | None:
    """Run one claimed step and record how it went; the step that follows, or ``None``."""
    started = fleet.ports.clock.monotonic()
    begin_span(job, step.name)
    note(job, claim, "start")
    try:
        ran = perform(step, [job])
        following = None if step is pipeline.last else pipeline.after(step, job)
    except FencedError:
        note(job, claim, "fenced")
        wake_all(fleet, fleet.sweep.freed(MAX_BATCH))  # a cancelled job has its error result to publish
        return None
    except StoreUnavailableError as error:  # nothing can be recorded: the lease runs out and the job comes back
        log.warning("record.unavailable", extra=_fields(job.task_id, step.name, reason=str(error)))
        return None
    except Exception as error:  # noqa: BLE001 - the one place that decides what becomes of any error
        settle(fleet, pipeline, step, claim, job, error)
        return None
    ms = round((fleet.ports.clock.monotonic() - started) * 1000)
    if step.calls_model and ran:
        fleet.health.report(fleet.ports.model.endpoint, ok=True)
    if following is None:
        finish(fleet, claim, job, ms=ms)
        return None
    moved = move_on(fleet, claim, job, following, ms)
    if step.calls_model:  # its slot at the endpoint is free again
        wake_all(fleet, fleet.sweep.freed(MAX_BATCH))
    return following if moved else None


def settle(fleet: Fleet, pipeline: Pipeline, step: Step, claim: Claim, job: Job, error: Exception) -> None:
    """Decide what becomes of a failed attempt: wait and try again, or end the job with this error."""
    if not isinstance(error, JobError):
        record = fleet.views.get(job.task_id)
        again = record is not None and record.code == Code.INTERNAL  # the attempt before ended like this one
        error = our_bug(error, job, step, PermanentError if again else TransientError)
    if step.calls_model and error.code == Code.MODEL_UNREACHABLE:
        fleet.health.report(fleet.ports.model.endpoint, ok=False)
    publishing = step is pipeline.last
    away = error.code == Code.RESULT_DIR_MISSING  # an unmounted share comes back: only the deadline ends this wait
    if isinstance(error, TransientError) and (publishing or away or claim.attempt < claim.max_attempts):
        delay = delay_before_retry(error, claim.attempt, chance(fleet.ports.clock))
        note(job, claim, "park", code=error.code, reason=error.en, ms=round(delay * 1000))
        fleet.jobs.park(claim, delay, error.code, error.en, counted=publishing or not away)
    elif publishing and job.failure is None and job.folder.read(RESULT) is None:
        job.failure = failure_of(error)  # no result could be made of what the job has: then one that says so
        try:
            perform(step, [job])
        except Exception as second:  # noqa: BLE001 - decided by the same rules, with a failure that ends it
            settle(fleet, pipeline, step, claim, job, second)
        else:
            finish(fleet, claim, job, reason=error.en)
    elif publishing:  # the result lies in the job's folder; it must not go where the payload wants it
        finish(fleet, claim, job, code=error.code, reason=error.en)
    else:
        note(job, claim, "fail", code=error.code, reason=error.en)
        if fleet.jobs.fail(claim, failure_of(error)):
            fleet.wake(pipeline, pipeline.last.name, job.task_id)


def move_on(fleet: Fleet, claim: Claim, job: Job, following: Step, ms: int) -> bool:
    """Checkpoint; ``False`` when the lease was lost meanwhile (another worker goes on)."""
    # the journal first: publish reads the timings from it, and a line too many does no harm
    note(job, claim, "checkpoint", ms=ms)
    return fleet.jobs.checkpoint(claim, following.name)


def finish(fleet: Fleet, claim: Claim, job: Job, *, ms: int = 0, code: str = "", reason: str = "") -> None:
    """The job is over: its one result is delivered (or, with ``code``, could only be kept in its folder)."""
    code = code or (job.failure.code if job.failure else "")
    receipt = None if job.failure else job.receipt
    note(job, claim, "finish", code=code, reason=reason, ms=ms)
    fleet.jobs.finish(claim, success=not code, code=code, commit_id=receipt.commit_id if receipt else "")
    wake_all(fleet, fleet.sweep.freed(MAX_BATCH))


def wake_all(fleet: Fleet, woken: Sequence[tuple[str, str]]) -> None:
    """Send the wake-up calls that the record asked for: ``(task_id, stage)`` each."""
    for task_id, stage in woken:
        if record := fleet.views.get(task_id):
            fleet.wake(fleet.pipeline_of(record.skill), stage, task_id)


# ---------------------------------------------------------------- many jobs in one step


def drain(fleet: Fleet, pipeline: Pipeline, step: Step, task_id: str) -> None:
    """Work off all jobs that wait at a batched step for this job's repository, as the one holder of its lock.

    Whoever does not get the lock leaves: the holder looks again after every batch and after giving the lock back.
    """
    repo = _repo_of(fleet, task_id)
    lock = f"{pipeline.task_name(step.name)}:{repo}"
    refused: set[str] = set()
    for _ in range(MAX_ROUNDS):
        if not fleet.sweep.lock(lock, fleet.worker, fleet.lease_s):
            return
        try:
            worked = drain_once(fleet, pipeline, step, repo, lock, refused)
        finally:
            fleet.sweep.unlock(lock, fleet.worker)
        # a job that came while the lock was held was sent away: without this look it would wait for the reconciler
        if not worked and refused.issuperset(_waiting_for(fleet, step, repo)):
            return


def drain_once(fleet: Fleet, pipeline: Pipeline, step: Step, repo: str, lock: str, refused: set[str]) -> bool:
    """One batch; ``False`` when no job was waiting. ``refused`` gets the jobs that cannot be claimed now."""
    claimed = []
    for task_id in _waiting_for(fleet, step, repo):
        taken = take(fleet, pipeline, step, task_id)
        if taken:
            claimed.append(taken)
        else:
            refused.add(task_id)
    if claimed:
        with kept(fleet, claimed, lock):
            attempt_all(fleet, pipeline, step, claimed)
    return bool(claimed)


def attempt_all(fleet: Fleet, pipeline: Pipeline, step: Step, claimed: Sequence[tuple[Claim, Job]]) -> None:
    """Run a batched step once for all claimed jobs and record how it went for each."""
    started = fleet.ports.clock.monotonic()
    for claim, job in claimed:
        begin_span(job, step.name)
        note(job, claim, "start")
    try:
        perform(step, [job for _, job in claimed])
    except StoreUnavailableError:
        raise  # nothing can be recorded: the leases run out and the jobs come back
    except FencedError:  # the jobs that lost their lease are somebody else's; the others go again at once
        for claim, _ in claimed:
            fleet.jobs.park(claim, 0.0, "", "", counted=False)
        return
    except Exception as error:  # noqa: BLE001 - decided for each job of the batch, as in attempt()
        for claim, job in claimed:
            settle(fleet, pipeline, step, claim, job, error)
        return
    ms = round((fleet.ports.clock.monotonic() - started) * 1000)
    for claim, job in claimed:
        following = pipeline.after(step, job)
        if move_on(fleet, claim, job, following, ms):
            fleet.wake(pipeline, following.name, job.task_id)


def _waiting_for(fleet: Fleet, step: Step, repo: str) -> list[str]:
    return [task_id for task_id in fleet.sweep.waiting(step.name, MAX_BATCH) if _repo_of(fleet, task_id) == repo]


def _repo_of(fleet: Fleet, task_id: str) -> str:
    try:
        folder = fleet.ports.folders.open(task_id, known=True)
        return str(Job(task_id, folder, fleet.ports, float("inf")).repo)
    except JobError:
        return ""  # its own attempt says what is wrong with it


# ---------------------------------------------------------------- leases


def kept(fleet: Fleet, claimed: Sequence[tuple[Claim, Job]], lock: str = "") -> KeptLeases:
    """Leases that are renewed while the block runs; each job's guard asks for its own."""
    leases = fleet.leases.keep([claim for claim, _ in claimed], lock)
    for claim, job in claimed:
        job.guard = partial(leases.guard, claim)
    return leases


def _fields(task_id: str, stage: str, **more: object) -> dict[str, Any]:
    return {"kbw": {"task_id": task_id, "stage": stage, **more}}
