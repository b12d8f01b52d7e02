"""The job record in memory, with a clock the test sets; its rules are in ``tests/job_store_rules.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tasks.ports import (
    Accepted,
    Ack,
    CancelOutcome,
    Claim,
    EndpointView,
    Failure,
    Memory,
    NewJob,
    OpenJob,
    Record,
    Refusal,
    ReplayOutcome,
    State,
)
from tests.job_store_rules import OVER, STATES, Breaker, Job, JobRules


class FakeJobRecords(JobRules):
    """All ports of the job record in one object; ``store``, ``views``, … name the same object, as the real ones do."""

    @property
    def store(self) -> FakeJobRecords:
        return self

    views = sweep = control = archive = census = store

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
        self.claimed[self.policy.queues.get(stage, "")] = now
        r = job.record
        return Claim(
            task_id,
            stage,
            r.epoch,
            r.attempt,
            r.generation,
            worker,
            r.deadline,
            now,
            until,
            self.policy.attempts(stage),
            r.traceparent,
        )

    def renew(self, claim: Claim) -> bool:
        job = self._held(claim)
        if job is None:
            return False
        if job.record.cancelled and not self._protected(job) and self._give_up(job):
            self._announce(claim.task_id)
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
        publishing = next_stage == self.policy.publish_stage
        if publishing and job.record.cancelled and not self._protected(job) and self._give_up(job):
            job.released = what
            return True
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

    # ---------------------------------------------------------------- JobCensus (``now`` is the clock itself)

    def open_jobs(self) -> list[OpenJob]:
        def seen(job: Job) -> OpenJob:
            r = job.record
            ready_at = r.parked_until if r.state == "parked" else r.enqueued_at
            if r.blocked not in ("", "paused") and 0.0 < job.blocked_at < r.woken_at:
                return OpenJob(r.stage, r.state, "", r.created, r.woken_at, r.lease_until)
            return OpenJob(r.stage, r.state, r.blocked, r.created, ready_at, r.lease_until)

        return [seen(job) for job in self.jobs.values() if not job.is_over]

    def last_claims(self) -> dict[str, float]:
        return dict(self.claimed)

    def tally(self, counts: Mapping[str, int]) -> None:
        self.counters.update(counts)

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
                        finished=record.finished, pruned=True, result_file=record.result_file,
                        more_result_files=record.more_result_files,
                    )  # fmt: skip
                    self.tombs[task_id] = (tomb, self.now() + self.policy.tombstone_s)
                    del self.jobs[task_id]
                    self.dead_letters.pop(task_id, None)
                    pruned.append(task_id)
        return pruned

    def remembers(self, task_ids: Sequence[str]) -> dict[str, Memory]:
        def memory(task_id: str) -> Memory:
            record = self.get(task_id)
            return "nothing" if record is None else "tombstone" if record.pruned else "record"

        return {task_id: memory(task_id) for task_id in task_ids}

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
