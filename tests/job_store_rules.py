"""What the job record in memory decides: the rules of the scripts, told once more in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tasks.ports import (
    Ack,
    Claim,
    Failure,
    Record,
    Refusal,
    State,
)
from worker.adapters.job_store.policy import GIVE_UP_TEXTS, StorePolicy

OVER = ("done", "failed", "cancelled")
STATES: tuple[State, ...] = ("queued", "running", "parked", "done", "failed", "cancelled")


@dataclass
class Job:
    """A record and what only the store needs to know of it."""

    record: Record
    deadline_s: float
    seq: int = 0
    held: bool = False
    released: str = ""
    commit_begun: bool = False
    wakes: int = 0
    blocked_at: float = 0.0
    due: float = 0.0
    ready_at: float = 0.0
    files_seen: tuple[str, ...] = ()
    failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        return self.record.state in OVER

    def put(self, **changes: object) -> None:
        self.record = replace(self.record, **changes)  # type: ignore[arg-type]


@dataclass
class Breaker:
    faults: int = 0
    open_until: float = 0.0
    opens: int = 0
    probe: str = ""
    probe_until: float = 0.0


@dataclass
class JobRules:
    """State and rules; the ports are in ``tests/fakes_job_store.py``."""

    now: Callable[[], float]
    policy: StorePolicy = field(default_factory=StorePolicy)
    jobs: dict[str, Job] = field(default_factory=dict)
    tombs: dict[str, tuple[Record, float]] = field(default_factory=dict)
    breakers: dict[str, Breaker] = field(default_factory=dict)
    slots: dict[str, dict[str, float]] = field(default_factory=dict)
    gates: dict[str, dict[str, float]] = field(default_factory=dict)
    locks: dict[str, tuple[str, float]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    dead_letters: dict[str, float] = field(default_factory=dict)
    announced: list[str] = field(default_factory=list)
    acked: list[Ack] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    claimed: dict[str, float] = field(default_factory=dict)
    seq: int = 0

    def _refusal(self, task_id: str, stage: str, endpoint: str) -> Refusal | None:
        job = self.jobs.get(task_id)
        if job is None:
            return Refusal("unknown")
        if job.is_over:
            return Refusal("over")
        if job.record.stage != stage:
            return Refusal("stage")
        if self._leased(job):
            return Refusal("leased", job.record.lease_until)
        if self._give_up(job):
            return Refusal("to_publish")
        if job.record.parked_until > self.now():
            return Refusal("parked", job.record.parked_until)
        return self._blocked(job, endpoint)

    def _blocked(self, job: Job, endpoint: str) -> Refusal | None:
        now, stage = self.now(), job.record.stage
        in_front = None if stage == self.policy.publish_stage else self._in_front(job)
        if in_front:
            return self._block(job, "order", in_front, 0.0, now + self.policy.lane_patience_s)
        for gate in (f"queue:{self.policy.queues.get(stage, '')}", f"endpoint:{endpoint}"):
            if gate in self.closed:
                return self._block(job, "paused", gate, 0.0, now + self.policy.stall_max_s)
        if job.held:
            self._give_back(job)
        return self._endpoint_refusal(job, endpoint) if endpoint else None

    def _endpoint_refusal(self, job: Job, endpoint: str) -> Refusal | None:
        now, task_id, gate = self.now(), job.record.task_id, f"endpoint:{endpoint}"
        breaker = self.breakers.setdefault(endpoint, Breaker())
        if breaker.open_until > now:
            return self._block(job, "breaker", gate, breaker.open_until, breaker.open_until)
        if breaker.open_until and breaker.probe not in ("", task_id) and breaker.probe_until > now:
            return self._block(job, "breaker", gate, breaker.probe_until, breaker.probe_until)
        slots = self._live_slots(endpoint)
        slots.pop(task_id, None)
        if len(slots) >= self.policy.cap(endpoint):
            first = min(slots.values(), default=now)
            return self._block(job, "cap", gate, first, first)
        if breaker.open_until:
            breaker.probe, breaker.probe_until = task_id, now + self.policy.lease_s
        slots[task_id] = now + self.policy.lease_s
        return None

    def _block(self, job: Job, reason: str, gate: str, until: float, due: float) -> Refusal:
        self._stop_waiting(job)
        job.put(blocked=reason, blocked_by=gate, blocked_until=until)
        job.blocked_at = self.now()
        if reason != "order":
            self.gates.setdefault(gate, {})[job.record.task_id] = job.record.stage_at
        self._set_due(job, max(due, self._next_look(job)))
        return Refusal(reason, until)

    def _in_front(self, job: Job) -> str | None:
        if not job.record.lane:
            return None
        for other in self._lane(job.record.lane):
            if other is job:
                return None
            stuck = other.record.state == "parked" or other.record.blocked in ("breaker", "paused")
            patience_over = self.now() - other.record.stage_at > self.policy.lane_patience_s
            if not (stuck and not self._leased(other) and patience_over):
                return other.record.task_id
        return None

    def _lane(self, lane: str) -> list[Job]:
        jobs = [job for job in self.jobs.values() if job.record.lane == lane and not job.is_over]
        return sorted(jobs, key=lambda job: job.seq)

    def _join_lane(self, job: Job) -> None:
        self.seq += 1
        job.seq = self.seq

    def _leave_lane(self, job: Job) -> None:
        if not job.record.lane:
            return
        others = [other for other in self._lane(job.record.lane) if other is not job][:10]
        for other in others:
            if other.record.state == "queued" and not self._leased(other):
                self._announce(other.record.task_id)
                return

    def _leased(self, job: Job) -> bool:
        return job.held and job.record.lease_until > self.now()

    def _protected(self, job: Job) -> bool:
        stage = job.record.stage
        return stage == self.policy.publish_stage or (stage == self.policy.commit_stage and job.commit_begun)

    def _held(self, claim: Claim) -> Job | None:
        job = self.jobs.get(claim.task_id)
        if job and job.held and job.record.stage == claim.stage and job.record.epoch == claim.epoch:
            return job
        self.counters["fenced"] += 1
        return None

    def _already_did(self, claim: Claim, what: str) -> bool:
        job = self.jobs.get(claim.task_id)
        return bool(job and job.record.epoch == claim.epoch and not job.held and job.released == what)

    def _give_up(self, job: Job) -> bool:
        record = job.record
        if record.stage == self.policy.publish_stage:
            return False
        code = ""
        if not self._protected(job):
            code = "CANCELLED" if record.cancelled else "DEADLINE" if record.deadline <= self.now() else ""
        if not code and record.attempt >= self.policy.attempts(record.stage):
            code = "EXHAUSTED"
        if not code:
            return False
        words = {
            "task": record.task_id, "stage": record.stage, "attempts": record.attempt,
            "last": f"; last error: {record.code} {record.error}" if record.code else "",
            "lastzh": f"（最近一次错误：{record.code}）" if record.code else "",
        }  # fmt: skip
        texts = GIVE_UP_TEXTS[code]
        self.counters[f"given_up/{code}"] += 1
        en, zh = texts.en.format(**words), texts.zh.format(**words)
        self._fail_to_publish(job, Failure(code, en, zh, retryable=texts.retryable))
        return True

    def _fail_to_publish(self, job: Job, failure: Failure) -> None:
        if job.held:
            self._give_back(job)
        job.failure = failure
        job.put(failed_stage=job.record.stage, code=failure.code, error=failure.en, retryable=failure.retryable)
        self._enter(job, self.policy.publish_stage)
        self._place(job, "queued", self.now(), self.now() + self.policy.stall_s)

    def _enter(self, job: Job, stage: str) -> None:
        self._stop_waiting(job)
        now = self.now()
        job.put(
            stage=stage, stage_at=now, enqueued_at=now, attempt=0, parked_until=0.0, woken_at=now,
            blocked="", blocked_by="", blocked_until=0.0,
        )  # fmt: skip
        job.wakes = 0

    def _give_back(self, job: Job) -> None:
        endpoint = job.record.endpoint
        if endpoint:
            self.slots.get(endpoint, {}).pop(job.record.task_id, None)
            breaker = self.breakers.get(endpoint)
            if breaker and breaker.probe == job.record.task_id:
                breaker.probe = ""
            self._wake_waiters(f"endpoint:{endpoint}", 1)
        job.held, job.wakes = False, 0
        job.put(lease_until=0.0, worker="", endpoint="")

    def _live_slots(self, endpoint: str) -> dict[str, float]:
        live = {task: until for task, until in self.slots.get(endpoint, {}).items() if until > self.now()}
        self.slots[endpoint] = live
        return live

    def _stop_waiting(self, job: Job) -> None:
        self.gates.get(job.record.blocked_by, {}).pop(job.record.task_id, None)

    def _wake_waiters(self, gate: str, n: int) -> None:
        waiters = self.gates.get(gate, {})
        for task_id in sorted(waiters, key=lambda t: (waiters[t], t))[:n]:
            del waiters[task_id]
            self._announce(task_id)

    def _announce(self, task_id: str) -> None:
        self.announced.append(task_id)
        if task_id in self.jobs:
            self.jobs[task_id].due = self.now()

    def _wake(self, task_id: str) -> str | None:
        job = self.jobs.get(task_id)
        if job is None or job.is_over:
            return None
        if self._leased(job):
            self._set_due(job, job.record.lease_until)
            return None
        if job.held and job.record.state == "running":
            self.counters["leases_expired"] += 1
            self._place(job, "queued", self.now(), self.now())
        if not self._give_up(job) and job.record.parked_until > self.now():
            self._set_due(job, job.record.parked_until)
            return None
        if job.record.state == "parked":
            job.put(parked_until=0.0, enqueued_at=self.now())
            self._place(job, "queued", self.now(), self.now())
        self.counters["wakes"] += 1
        self._set_due(job, self._next_look(job))
        job.wakes += 1
        job.put(woken_at=self.now())
        return job.record.stage

    def _next_look(self, job: Job) -> float:
        return self.now() + min(self.policy.stall_s * 2 ** min(job.wakes, 20), self.policy.stall_max_s)

    def _set_due(self, job: Job, at: float) -> None:
        if not self._protected(job) and self.now() < job.record.deadline < at:
            at = job.record.deadline
        job.due = at

    def _place(self, job: Job, state: State, ready_at: float, due: float) -> None:
        job.put(state=state, updated=self.now())
        job.ready_at = ready_at
        self._set_due(job, due)

    def _remember_result_file(self, job: Job, path: str) -> None:
        files = job.record.more_result_files
        if path and path != job.record.result_file and path not in files and len(files) < self.policy.max_result_files:
            job.put(more_result_files=(*files, path))

    def _known_digest(self, task_id: str) -> tuple[str, Record | None]:
        if task_id in self.jobs:
            record = self.jobs[task_id].record
            return record.digest, record
        tomb, until = self.tombs.get(task_id, (None, 0.0))
        return (tomb.digest, tomb) if tomb and until > self.now() else ("", None)
