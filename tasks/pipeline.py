"""A pipeline: the steps of one skill in order, and running them; must not know leases, queues' servers or Celery.

The same steps run in the fleet (``tasks.base``) and in one process without Redis (:func:`run_inline`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.contract.shape import Shape
from tasks.errors import Code, JobError, PermanentError, TransientError
from tasks.ports import Claim, Clock
from tasks.rules.reply_fault import BROKEN_REPLY
from tasks.rules.retry import delay_before_retry
from tasks.spans import ENDS, begin_span, end_span
from tasks.stages.job import EVENTS, Job, failure_of

log = logging.getLogger("kbw.job")

Run = Callable[[Job], Shape | None]
RunMany = Callable[[Sequence[Job]], Sequence[Shape]]


@dataclass(frozen=True)
class Step:
    """One stage of a pipeline.

    ``writes`` is its artefact (``None``: it has its effect itself and always runs). ``needed`` says whether a job
    passes through it at all. ``batched``: it takes all waiting jobs of one repository at once. ``calls_model``: it
    counts against the cap of the model endpoint.
    """

    name: str
    queue: str
    run: RunMany
    writes: str | None
    needed: Callable[[Job], bool]
    batched: bool = False
    calls_model: bool = False


def _always(_job: Job) -> bool:
    return True


@dataclass
class Pipeline:
    """The steps of one skill, in order; the last one publishes. ``name`` is part of the task names."""

    name: str
    skill: str
    steps: list[Step] = field(default_factory=list)

    def stage(
        self, queue: str, *, writes: str | None, needed: Callable[[Job], bool] = _always, calls_model: bool = False
    ) -> Callable[[Run], Run]:
        """Make the decorated function the next step: it takes one job and returns its artefact."""

        def register(run: Run) -> Run:
            def run_many(jobs: Sequence[Job]) -> Sequence[Shape]:
                return [artefact for job in jobs if (artefact := run(job)) is not None]

            self.steps.append(Step(run.__name__, queue, run_many, writes, needed, calls_model=calls_model))
            return run

        return register

    def batch(
        self, queue: str, *, writes: str, needed: Callable[[Job], bool] = _always
    ) -> Callable[[RunMany], RunMany]:
        """Make the decorated function the next step: it takes many jobs of one repository, one artefact each."""

        def register(run: RunMany) -> RunMany:
            self.steps.append(Step(run.__name__, queue, run, writes, needed, batched=True))
            return run

        return register

    @property
    def first(self) -> Step:
        """Where a job begins."""
        return self.steps[0]

    @property
    def last(self) -> Step:
        """The step that publishes: every job ends here, with or without an outcome."""
        return self.steps[-1]

    def step(self, stage: str) -> Step:
        """The step of that name; ``KeyError`` when the pipeline has none."""
        return {step.name: step for step in self.steps}[stage]

    def mends(self, stage: str, code: str) -> Step:
        """Where a new try of a job that failed at ``stage`` with ``code`` begins: where the outcome can change.

        A commit that is gone wants another one pinned, a reply that broke a rule another reply.
        """
        if code == Code.COMMIT_GONE:
            return self.first
        failed = self.step(stage)
        if code in BROKEN_REPLY:
            before = self.steps[: self.steps.index(failed) + 1]
            return next((step for step in reversed(before) if step.calls_model), failed)
        return failed

    def after(self, step: Step, job: Job) -> Step:
        """The next step that this job needs; the last one is never followed."""
        rest = self.steps[self.steps.index(step) + 1 :]
        return next(following for following in rest if following.needed(job))

    def task_name(self, stage: str) -> str:
        """The pinned name of a stage's wake-up call."""
        return f"kbw.{self.name}.{stage}"


def perform(step: Step, jobs: Sequence[Job]) -> int:
    """Run the step for the jobs whose artefact is not there yet, write what comes out; for how many it had to run."""
    waiting = [job for job in jobs if step.writes is None or not job.holds(step.writes)]
    artefacts = step.run(waiting) if waiting else []
    if step.writes is not None:
        for job, artefact in zip(waiting, artefacts, strict=True):
            job.guard()
            job.save(step.writes, artefact)
    return len(waiting)


def run_inline(pipeline: Pipeline, job: Job, *, max_attempts: int) -> None:
    """Run the whole pipeline here: same steps, same artefacts, retries bounded by attempts and deadline.

    A failure of a stage goes to publish as in the fleet; raises ``JobError`` only when publish itself fails.
    """
    for step in pipeline.steps:
        if step is pipeline.last:
            _run_with_retries(step, job, max_attempts)
        elif job.failure is None:
            try:
                if step.needed(job):
                    _run_with_retries(step, job, max_attempts)
            except Exception as error:  # noqa: BLE001 - whatever happened, this job gets its one result
                fault = error if isinstance(error, JobError) else our_bug(error, job, step, PermanentError)
                job.failure = failure_of(fault)
                note(job, None, "fail", stage=step.name, code=fault.code, reason=fault.en)


def _run_with_retries(step: Step, job: Job, max_attempts: int) -> None:
    clock = job.ports.clock
    for number in range(1, max_attempts + 1):
        if _is_late(step, job):
            raise TransientError(Code.DEADLINE, en="the job's deadline has passed", zh="处理超过了时限，请稍后重试")
        started = clock.monotonic()
        begin_span(job, step.name)
        try:
            perform(step, [job])
        except TransientError as error:
            if _is_late(step, job):  # what was waited for did not come in time: the deadline ended the wait
                raise TransientError(
                    Code.DEADLINE,
                    en=f"the job's deadline has passed; at stage {step.name}: {error.code}: {error.en}",
                    zh=f"处理超过了时限，请稍后重试（{error.zh}）",
                ) from error
            delay = delay_before_retry(error, number, chance(clock))
            if number == max_attempts or clock.monotonic() + delay > job.deadline:
                raise
            note(job, None, "park", stage=step.name, code=error.code, reason=error.en, attempt=number)
            clock.sleep(delay)
        else:
            ms = round((clock.monotonic() - started) * 1000)
            event = "finish" if step.writes is None else "checkpoint"
            note(job, None, event, stage=step.name, attempt=number, ms=ms)
            return


def _is_late(step: Step, job: Job) -> bool:
    """Past the deadline. A commit already begun is finished, and a result still goes out (CONTRACT §2)."""
    return job.ports.clock.monotonic() >= job.deadline and not (step.writes is None or step.batched)


def our_bug(error: Exception, job: Job, step: Step, kind: type[JobError]) -> JobError:
    """What the world is told of an error that nobody foresaw; the trace goes to the log only."""
    fields = {"task_id": job.task_id, "stage": step.name}
    log.error("stage.crashed", exc_info=error, extra={"kbw": fields})
    return kind(
        Code.INTERNAL,
        en=f"{type(error).__name__} in stage {step.name}; the trace is in the worker's log",
        zh="系统内部错误，已记录；请稍后重试或联系管理员",
    )


def chance(clock: Clock) -> float:
    """A random number between 0 and 1."""
    return int(clock.token(2), 16) / 0xFFFF


def timestamp(seconds: float) -> str:
    """UTC as CONTRACT §1 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def note(job: Job, claim: Claim | None, event: str, **fields: Any) -> None:
    """One line in the job's journal and one in the log; a journal that cannot be written does not stop a job."""
    line: dict[str, Any] = {
        "at": timestamp(job.ports.clock.now()),
        "event": event,
        "stage": claim.stage if claim else fields.pop("stage", ""),
        "generation": job.generation,
        "attempt": claim.attempt if claim else fields.pop("attempt", 1),
        "epoch": claim.epoch if claim else 0,
        "worker": claim.worker if claim else "inline",
        "actor": fields.pop("actor", "worker"),
        **({"traceparent": job.traceparent} if job.traceparent else {}),
        **{key: value for key, value in fields.items() if value not in ("", None)},
    }
    try:
        job.folder.append(EVENTS, line)
    except JobError as error:
        log.warning("journal.unwritable", extra={"kbw": {"task_id": job.task_id, "reason": error.en}})
    log.info(event, extra={"kbw": {"task_id": job.task_id, **line}})
    if event in ENDS:
        end_span(job, line)
