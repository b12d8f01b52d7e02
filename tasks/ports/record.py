"""A job's record as data: what is known of a job, a claim and a refusal; must not change anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["queued", "running", "parked", "done", "failed", "cancelled"]
"""``queued``: waits for a worker · ``running``: a lease lives · ``parked``: waits until a time · the rest: over."""


@dataclass(frozen=True)
class NewJob:
    """What ``accept`` records. ``lane`` orders jobs (the conversation); ``deadline_s`` counts from accept."""

    task_id: str
    digest: str
    skill: str
    first_stage: str
    lane: str
    deadline_s: float
    source: str
    result_file: str = ""
    traceparent: str = ""


@dataclass(frozen=True)
class Record:
    """The truth about a job. Times are Redis ``TIME`` in seconds; ``0.0`` means not set."""

    task_id: str
    digest: str
    skill: str
    state: State
    stage: str
    epoch: int
    attempt: int
    generation: int
    created: float
    deadline: float
    updated: float
    lane: str = ""
    source: str = ""
    result_file: str = ""
    traceparent: str = ""
    lease_until: float = 0.0
    worker: str = ""
    parked_until: float = 0.0
    enqueued_at: float = 0.0
    woken_at: float = 0.0
    code: str = ""
    error: str = ""
    retryable: bool = False
    cancelled: bool = False
    commit_id: str = ""
    stage_at: float = 0.0
    finished: float = 0.0
    failed_stage: str = ""
    endpoint: str = ""
    blocked: str = ""
    """Why the last claim was refused from outside the job: ``order | cap | breaker | paused``."""
    blocked_by: str = ""
    """The job in front (``order``), else the gate: ``queue:<name>`` or ``endpoint:<url>``."""
    blocked_until: float = 0.0
    more_result_files: tuple[str, ...] = ()
    """Result files that repeats of the same payload named: the same bytes go there too."""
    pruned: bool = False
    """Only digest, state and commit are still known; everything else is at its default."""


@dataclass(frozen=True)
class Ack:
    """A stream entry to acknowledge in the same step that records its job."""

    stream: str
    group: str
    entry_id: str


@dataclass(frozen=True)
class Accepted:
    """``new``: recorded · ``same``: known with equal content · ``conflict``: known with other content, untouched."""

    kind: Literal["new", "same", "conflict"]
    record: Record


@dataclass(frozen=True)
class Claim:
    """The right to work on one stage until ``lease_until``; every later call proves it with ``epoch``."""

    task_id: str
    stage: str
    epoch: int
    attempt: int
    generation: int
    worker: str
    deadline: float
    claimed_at: float
    """The store's time, as the others are: here only its difference to them means anything."""
    lease_until: float
    max_attempts: int = 0
    """How many attempts this stage gets; at ``attempt == max_attempts`` this is the last one."""
    traceparent: str = ""
    """The sender's trace (W3C), carried into journal, log and model calls."""


@dataclass(frozen=True)
class Refusal:
    """No claim, and why.

    ``reason`` is ``unknown | over | stage | leased | parked | order | cap | breaker | paused`` or ``to_publish``: the
    claim found the job cancelled, past its deadline or out of attempts and moved it to publish. ``until`` (Redis time)
    says when another try makes sense, ``0.0`` when nobody knows.
    """

    reason: str
    until: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Why a job failed for good, as the result tells it."""

    code: str
    en: str
    zh: str
    retryable: bool = False
