"""Changing, reading and sweeping the job record; each change is one compare-and-set (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tasks.ports.record import Accepted, Ack, Claim, Failure, NewJob, Record, Refusal, State


class JobStore(Protocol):
    """The job record: small atomic changes, each a compare-and-set on the lease's epoch (DESIGN §3)."""

    def accept(self, job: NewJob, *, ack: Ack | None = None) -> Accepted:
        """Record the job, or say that it is known.

        ``ack`` is acknowledged in the same step when the job is open afterwards; for a conflict and a job that is
        over the caller acknowledges, after it has told the conflict or delivered the result again.
        """

    def claim(self, task_id: str, stage: str, worker: str, *, endpoint: str = "") -> Claim | Refusal:
        """Take the lease of ``stage`` and count an attempt; with ``endpoint``, take one of its slots too."""

    def renew(self, claim: Claim) -> bool:
        """Lengthen the lease; ``False``: lost or cancelled, stop before the next effect."""

    def checkpoint(self, claim: Claim, next_stage: str) -> bool:
        """The stage's artefact is written: move on and give the lease back. ``False``: fenced, nothing changed."""

    def park(self, claim: Claim, delay_s: float, code: str, reason: str, *, counted: bool = True) -> bool:
        """Give the lease back and wait ``delay_s`` before the same stage is tried again.

        ``counted=False`` takes the attempt back: a worker that shuts down is not the job's fault.
        """

    def fail(self, claim: Claim, failure: Failure) -> bool:
        """Note the failure and move to ``publish``."""

    def finish(self, claim: Claim, *, success: bool, code: str, commit_id: str) -> bool:
        """The result is delivered: the job is over."""


class EndpointHealth(Protocol):
    """The circuit breaker of model endpoints, fleet-wide."""

    def report(self, endpoint: str, *, ok: bool) -> None:
        """How a call ended: ``ok=False`` only for the provider's own faults (unreachable, 5xx, timeout, 429)."""


@dataclass(frozen=True)
class EndpointView:
    """One model endpoint. ``open_until`` > 0: the breaker is open until then, after it one probe decides."""

    endpoint: str
    in_flight: int
    cap: int
    waiting: int
    faults: int
    open_until: float
    paused: bool


class JobViews(Protocol):
    """Reading records, for operators, metrics and waiting."""

    def now(self) -> float:
        """The record's time, in seconds since the epoch: all its times are by it, whatever the clock of a host says."""

    def get(self, task_id: str) -> Record | None:
        """One record."""

    def failure(self, task_id: str) -> Failure | None:
        """Why the job goes to publish without an outcome, if it does."""

    def ids(self, state: State, *, oldest_first: bool = True, limit: int = 100) -> list[str]:
        """Task ids of one state, from sorted sets, never by scanning keys."""

    def counts(self) -> dict[str, int]:
        """Number of jobs by state."""

    def dead(self, limit: int = 100) -> list[str]:
        """Jobs that ended with a failure and were neither replayed nor dropped, oldest first."""

    def figures(self) -> dict[str, int]:
        """Exact counters of the whole fleet since the record began; names in ``worker/adapters/job_store``."""

    def endpoints(self) -> list[EndpointView]:
        """What holds the model endpoints' jobs back, if anything."""


@dataclass(frozen=True)
class OpenJob:
    """What counting needs of an open job. ``ready_at``: since when it could be worked on, were nothing in its way."""

    stage: str
    state: State
    blocked: str
    created: float
    ready_at: float
    lease_until: float


class JobCensus(Protocol):
    """Counting, for metrics and health."""

    def open_jobs(self) -> list[OpenJob]:
        """Every open job."""

    def last_claims(self) -> dict[str, float]:
        """When a job of each queue was claimed last; a queue that never served is not in it."""

    def tally(self, counts: Mapping[str, int]) -> None:
        """Add to the counters that ``JobViews.figures`` shows."""


class JobSweep(Protocol):
    """What the reconciler needs."""

    def elect(self, worker: str) -> bool:
        """Whether this worker is (now) the one that reconciles; to be asked again before each round."""

    def stalled(self, limit: int) -> list[tuple[str, str]]:
        """``(task_id, stage)`` of open jobs without live lease that are due and not woken lately; marks them woken."""

    def freed(self, limit: int) -> list[tuple[str, str]]:
        """``(task_id, stage)`` that the last releases made claimable: next of a lane, waiter for a slot, cancelled.

        Ask after each release and wake them at once; what is forgotten comes up in ``stalled``.
        """

    def waiting(self, stage: str, limit: int) -> list[str]:
        """Task ids that wait at ``stage`` (the committer's queue), oldest first."""

    def lock(self, name: str, owner: str, ttl_s: float) -> bool:
        """Take or lengthen a named lease (one committer a repository)."""

    def unlock(self, name: str, owner: str) -> None:
        """Give it back if it is still ours."""


Memory = Literal["record", "tombstone", "nothing"]
CancelOutcome = Literal["requested", "too_late", "over", "unknown"]
ReplayOutcome = Literal["replayed", "open", "unknown"]


class JobControl(Protocol):
    """What operators do to jobs and gates. A gate is ``queue:<name>`` or ``endpoint:<url>``."""

    def cancel(self, task_id: str) -> CancelOutcome:
        """Persistent; a job nobody works on goes to publish at once. ``too_late``: its commit has begun."""

    def replay(self, task_id: str, stage: str, *, deadline_s: float = 0.0, force: bool = False) -> ReplayOutcome:
        """A new generation from ``stage`` of a job that is over (``force``: of any job); old workers stay fenced.

        ``deadline_s`` counts from now; ``0.0``: as long as the first time.
        """

    def pause(self, gate: str) -> None:
        """No claim through this gate until ``resume``; running work goes on."""

    def resume(self, gate: str) -> None:
        """Open the gate and wake what waits before it."""

    def paused(self) -> list[str]:
        """The gates that are closed, sorted."""


class JobArchive(Protocol):
    """The far ends of a job's life: forgetting, and coming back from the job folders."""

    def prune(self, older_than_s: float, limit: int = 500) -> list[str]:
        """Forget jobs that ended that long ago (a tombstone knows a late repeat); their ids, for their folders."""

    def remembers(self, task_ids: Sequence[str]) -> dict[str, Memory]:
        """What is known of each job: its whole record, what a pruned one leaves behind, or nothing."""

    def drop(self, task_id: str) -> bool:
        """Take a job off the dead letters; its record stays."""

    def restore(self, record: Record, *, deadline_s: float, failure: Failure | None = None) -> bool:
        """Put back a job that is unknown (``False``: known, untouched); ``deadline_s`` when it has no deadline."""
