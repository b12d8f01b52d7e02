"""The job record in memory, with a clock the test sets: same rules as the scripts, told once more in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tasks.ports import (
    Accepted,
    Ack,
    CancelOutcome,
    Claim,
    EndpointView,
    Failure,
    NewJob,
    Record,
    Refusal,
    ReplayOutcome,
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
class FakeJobRecords:
    """All ports of the job record in one object; ``store``, ``views``, … name the same object, as the real ones do."""

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
    seq: int = 0

    @property
    def store(self) -> FakeJobRecords:
        return self

    views = sweep = control = archive = store

    # ---------------------------------------------------------------- JobStore

    def accept(self, job: NewJob, *, ack: Ack | None = None) -> Accepted:
        now = self.now()
        known = self.jobs.get(job.task_id)
        digest, record = self._known_digest(job.task_id)
        if record is None:
            record = Record(
                job.task_id, job.digest, job.skill, "queued", job.first_stage, 0, 0, 0, now, now + job.deadline_s, now,
                lane=job.lane, source=job.source, result_file=job.result_file, traceparent=job.traceparent,
                enqueued_at=now, woken_at=now, stage_at=now,
            )  # fmt: skip
            known = self.jobs[job.task_id] = Job(record, job.deadline_s)
            self._join_lane(known)
            self._place(known, "queued", now, now + self.policy.stall_s)
            kind = "new"
        elif digest == job.digest:
            kind = "same"
            if known:
                self._remember_result_file(known, job.result_file)
        else:
            kind = "conflict"
        self.counters[{"new": "accepted", "same": "duplicates", "conflict": "conflicts"}[kind]] += 1
        if ack and kind != "conflict" and known and not known.is_over:
            self.acked.append(ack)
        return Accepted(kind, known.record if known else record)  # type: ignore[arg-type]

    def claim(self, task_id: str, stage: str, worker: str, *, endpoint: str = "") -> Claim | Refusal:
        refusal = self._refusal(task_id, stage, endpoint)
        if refusal is not None:
            self.counters[f"refused/{refusal.reason}"] += 1
            return refusal
        now, job = self.now(), self.jobs[task_id]
        self._stop_waiting(job)
        until = now + self.policy.lease_s
        job.put(
            epoch=job.record.epoch + 1, attempt=job.record.attempt + 1, lease_until=until, worker=worker,
            endpoint=endpoint, parked_until=0.0, blocked="", blocked_by="", blocked_until=0.0,
        )  # fmt: skip
        job.held, job.wakes, job.files_seen = True, 0, job.record.more_result_files
        job.commit_begun = job.commit_begun or stage == self.policy.commit_stage
        self._place(job, "running", until, until)
        self.counters["claims"] += 1
        r = job.record
        return Claim(
            task_id, stage, r.epoch, r.attempt, r.generation, worker, r.deadline, until, self.policy.attempts(stage)
        )

    def renew(self, claim: Claim) -> bool:
        job = self._held(claim)
        if job is None:
            return False
        if job.record.cancelled and not self._protected(job):
            return False
        now, endpoint = self.now(), job.record.endpoint
        until = now + self.policy.lease_s
        if endpoint:
            slots = self._live_slots(endpoint)
            if claim.task_id not in slots and len(slots) >= self.policy.cap(endpoint):
                self.counters["fenced"] += 1
                return False
            slots[claim.task_id] = until
            breaker = self.breakers.get(endpoint)
            if breaker and breaker.probe == claim.task_id:
                breaker.probe_until = until
        job.put(lease_until=until)
        self._place(job, "running", until, until)
        return True

    def checkpoint(self, claim: Claim, next_stage: str) -> bool:
        what = f"checkpoint:{next_stage}"
        if self._already_did(claim, what):
            return True
        job = self._held(claim)
        if job is None:
            return False
        self._give_back(job)
        self._enter(job, next_stage)
        job.put(code="", error="")
        job.released = what
        self._place(job, "queued", self.now(), self.now() + self.policy.stall_s)
        return True

    def park(self, claim: Claim, delay_s: float, code: str, reason: str, *, counted: bool = True) -> bool:
        if self._already_did(claim, "park"):
            return True
        job = self._held(claim)
        if job is None:
            return False
        self._give_back(job)
        until = self.now() + max(0.0, delay_s)
        attempt = job.record.attempt if counted else max(0, job.record.attempt - 1)
        job.put(parked_until=until, attempt=attempt, code=code, error=reason, enqueued_at=until)
        job.released = "park"
        self._place(job, "parked", until, until)
        self.counters["parks"] += 1
        return True

    def fail(self, claim: Claim, failure: Failure) -> bool:
        if self._already_did(claim, "fail"):
            return True
        job = self._held(claim)
        if job is None:
            return False
        self._fail_to_publish(job, failure)
        job.released = "fail"
        self.counters["failures"] += 1
        return True

    def finish(self, claim: Claim, *, success: bool, code: str, commit_id: str) -> bool:
        if self._already_did(claim, "finish"):
            return True
        job = self._held(claim)
        if job is None:
            return False
        now = self.now()
        self._give_back(job)
        job.put(code=code, commit_id=commit_id)
        job.released = "finish"
        if job.files_seen != job.record.more_result_files:
            self._enter(job, job.record.stage)
            self._place(job, "queued", now, now + self.policy.stall_s)
            self._announce(claim.task_id)
            return True
        state: State = "done" if success else "cancelled" if code == "CANCELLED" else "failed"
        self._leave_lane(job)
        job.put(state=state, updated=now, finished=now)
        self.counters[f"finished/{state}"] += 1
        if state == "failed":
            self.dead_letters[claim.task_id] = now
        return True

    def report(self, endpoint: str, *, ok: bool) -> None:
        now = self.now()
        breaker = self.breakers.setdefault(endpoint, Breaker())
        if ok:
            was_open = breaker.open_until > 0
            self.breakers[endpoint] = Breaker()
            if was_open:
                self._wake_waiters(f"endpoint:{endpoint}", self.policy.cap(endpoint))
            return
        self.counters["endpoint_faults"] += 1
        if breaker.open_until > now:
            return
        breaker.faults += 1
        if breaker.faults >= self.policy.breaker_faults or breaker.open_until > 0:
            open_s = min(self.policy.breaker_base_s * 2 ** min(breaker.opens, 20), self.policy.breaker_max_s)
            breaker.open_until, breaker.opens, breaker.probe = now + open_s, breaker.opens + 1, ""
            self.counters["breaker_opened"] += 1

    # ---------------------------------------------------------------- JobViews

    def get(self, task_id: str) -> Record | None:
        return self._known_digest(task_id)[1]

    def failure(self, task_id: str) -> Failure | None:
        job = self.jobs.get(task_id)
        return job.failure if job else None

    def ids(self, state: State, *, oldest_first: bool = True, limit: int = 100) -> list[str]:
        jobs = [job.record for job in self.jobs.values() if job.record.state == state]
        jobs.sort(key=lambda r: (r.finished if state in OVER else r.created, r.task_id), reverse=not oldest_first)
        return [record.task_id for record in jobs[:limit]]

    def counts(self) -> dict[str, int]:
        return {state: sum(job.record.state == state for job in self.jobs.values()) for state in STATES}

    def dead(self, limit: int = 100) -> list[str]:
        return sorted(self.dead_letters, key=lambda task_id: (self.dead_letters[task_id], task_id))[:limit]

    def figures(self) -> dict[str, int]:
        """Counters only; the latency histograms exist in the real record alone."""
        return dict(self.counters)

    def endpoints(self) -> list[EndpointView]:
        views = []
        for name in sorted(self.breakers):
            breaker, gate = self.breakers[name], f"endpoint:{name}"
            in_flight = sum(until > self.now() for until in self.slots.get(name, {}).values())
            views.append(
                EndpointView(
                    name,
                    in_flight,
                    self.policy.cap(name),
                    len(self.gates.get(gate, {})),
                    breaker.faults,
                    breaker.open_until,
                    gate in self.closed,
                )
            )
        return views

    # ---------------------------------------------------------------- JobSweep

    def elect(self, worker: str) -> bool:
        return self.lock("reconciler", worker, self.policy.election_s)

    def stalled(self, limit: int) -> list[tuple[str, str]]:
        for endpoint, breaker in self.breakers.items():
            free = self.policy.cap(endpoint) - len(self._live_slots(endpoint))
            gate = f"endpoint:{endpoint}"
            if free > 0 and breaker.open_until <= self.now() and gate not in self.closed:
                self._wake_waiters(gate, free)
        due = [job for job in self.jobs.values() if not job.is_over and job.due <= self.now()]
        due.sort(key=lambda job: (job.due, job.record.task_id))
        return [(job.record.task_id, stage) for job in due[:limit] if (stage := self._wake(job.record.task_id))]

    def freed(self, limit: int) -> list[tuple[str, str]]:
        taken, self.announced = self.announced[:limit], self.announced[limit:]
        return [(task_id, stage) for task_id in dict.fromkeys(taken) if (stage := self._wake(task_id))]

    def waiting(self, stage: str, limit: int) -> list[str]:
        jobs = [job for job in self.jobs.values() if not job.is_over and job.record.stage == stage]
        jobs.sort(key=lambda job: (job.ready_at, job.record.task_id))
        return [job.record.task_id for job in jobs if job.ready_at <= self.now()][:limit]

    def lock(self, name: str, owner: str, ttl_s: float) -> bool:
        holder, until = self.locks.get(name, ("", 0.0))
        if until > self.now() and holder != owner:
            return False
        self.locks[name] = (owner, self.now() + ttl_s)
        return True

    def unlock(self, name: str, owner: str) -> None:
        if self.locks.get(name, ("", 0.0))[0] == owner:
            del self.locks[name]

    # ---------------------------------------------------------------- JobControl, JobArchive

    def cancel(self, task_id: str) -> CancelOutcome:
        job = self.jobs.get(task_id)
        if job is None:
            return "unknown"
        if job.is_over:
            return "over"
        if self._protected(job):
            return "too_late"
        job.put(cancelled=True)
        if not self._leased(job) and self._give_up(job):
            self._announce(task_id)
        return "requested"

    def replay(self, task_id: str, stage: str, *, deadline_s: float = 0.0, force: bool = False) -> ReplayOutcome:
        job = self.jobs.get(task_id)
        if job is None:
            return "unknown"
        if not job.is_over and not force:
            return "open"
        if job.held:
            self._give_back(job)
        if job.is_over:
            self._join_lane(job)
            self.dead_letters.pop(task_id, None)
        self._enter(job, stage)
        job.deadline_s = deadline_s or job.deadline_s
        job.failure, job.commit_begun, job.released = None, False, "replay"
        now = self.now()
        job.put(
            generation=job.record.generation + 1, epoch=job.record.epoch + 1, cancelled=False, code="", error="",
            retryable=False, deadline=now + job.deadline_s, failed_stage="", finished=0.0,
        )  # fmt: skip
        self._place(job, "queued", now, now + self.policy.stall_s)
        return "replayed"

    def pause(self, gate: str) -> None:
        self.closed.add(gate)

    def resume(self, gate: str) -> None:
        self.closed.discard(gate)
        self._wake_waiters(gate, 1000)

    def paused(self) -> list[str]:
        return sorted(self.closed)

    def prune(self, older_than_s: float, limit: int = 500) -> list[str]:
        pruned: list[str] = []
        for state in ("done", "failed", "cancelled"):
            for task_id in self.ids(state, limit=limit - len(pruned)):  # type: ignore[arg-type]
                record = self.jobs[task_id].record
                if record.finished <= self.now() - older_than_s:
                    tomb = Record(
                        task_id, record.digest, record.skill, record.state, record.stage, record.epoch, 0,
                        record.generation, record.created, 0.0, 0.0, code=record.code, commit_id=record.commit_id,
                        finished=record.finished, pruned=True,
                    )  # fmt: skip
                    self.tombs[task_id] = (tomb, self.now() + self.policy.tombstone_s)
                    del self.jobs[task_id]
                    self.dead_letters.pop(task_id, None)
                    pruned.append(task_id)
        return pruned

    def drop(self, task_id: str) -> bool:
        return self.dead_letters.pop(task_id, None) is not None

    def restore(self, record: Record, *, deadline_s: float, failure: Failure | None = None) -> bool:
        if record.task_id in self.jobs:
            return False
        now = self.now()
        begun = record.stage == self.policy.commit_stage and record.attempt > 0
        fresh = replace(
            record, epoch=record.epoch + 1, created=record.created or now, deadline=record.deadline or now + deadline_s,
            stage_at=now, enqueued_at=now, woken_at=0.0, lease_until=0.0, worker="", parked_until=0.0, endpoint="",
            blocked="", blocked_by="", blocked_until=0.0, updated=now,
        )  # fmt: skip
        job = self.jobs[record.task_id] = Job(fresh, deadline_s, failure=failure, commit_begun=begun)
        if job.is_over:
            job.put(finished=record.finished or now)
            if record.state == "failed":
                self.dead_letters[record.task_id] = job.record.finished
        else:
            self._join_lane(job)
            self._place(job, "queued", now, now)
        return True

    # ---------------------------------------------------------------- the rules

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
            "stage": record.stage, "attempts": record.attempt,
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
