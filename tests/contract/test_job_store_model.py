"""Random histories: the record in memory and the one on a server answer every step alike."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tasks.ports import Claim, Failure, Record
from tests.job_store_worlds import MODEL, World, fake_world, new_job, server_world

TASKS = st.sampled_from(["a1", "a2", "a3", "b1", "free"])
STAGES = st.sampled_from(["prepare", "select", "commit", "publish"])
ENDPOINTS = st.sampled_from(["", MODEL])
TIMES = ("created", "deadline", "updated", "claimed_at", "lease_until", "parked_until", "enqueued_at", "woken_at",
         "stage_at", "finished", "blocked_until")  # fmt: skip


class TwoRecords(RuleBasedStateMachine):
    """Does the same to both records; both clocks run on, so times are compared as ages, with tolerance."""

    url = ""

    @initialize()
    def begin(self) -> None:
        self.worlds: list[World] = [fake_world(ticking=time.time), server_world(self.url)]
        self.claims: list[tuple[Any, Any]] = []

    def both(self, port: str, method: str, *args: Any, **options: Any) -> Any:
        answers = [getattr(getattr(world.records, port), method)(*args, **options) for world in self.worlds]
        mine, theirs = (self.comparable(world, answer) for world, answer in zip(self.worlds, answers, strict=True))
        assert mine == theirs, f"{method}{args}: memory {mine}, server {theirs}"
        return answers

    def comparable(self, world: World, answer: Any) -> Any:
        if not hasattr(answer, "__dataclass_fields__"):
            return answer
        fields = asdict(answer)
        fields |= fields.pop("record", None) or {}
        for name in (*TIMES, "until"):
            if fields.get(name):
                age = fields[name] - world.now()
                fields[name] = pytest.approx(age, abs=10) if world is self.worlds[0] else age
        return fields

    @rule(task=TASKS, stage=STAGES, deadline=st.sampled_from([50.0, 900.0]), digest=st.sampled_from(["d1", "d1", "d2"]))
    def accept(self, task: str, stage: str, deadline: float, digest: str) -> None:
        lane = task[0] if len(task) == 2 else ""
        job = new_job(task, stage=stage, lane=lane, deadline_s=deadline, digest=digest, result_file=f"/r/{digest}")
        self.both("store", "accept", job)

    @rule(task=TASKS, stage=STAGES, endpoint=ENDPOINTS, worker=st.sampled_from(["w1", "w2"]))
    def claim_any(self, task: str, stage: str, endpoint: str, worker: str) -> None:
        self.claimed(task, stage, endpoint, worker)

    @rule(task=TASKS, endpoint=ENDPOINTS)
    def claim_where_it_stands(self, task: str, endpoint: str) -> None:
        record: Record | None = self.worlds[0].records.views.get(task)
        if record is not None:
            self.claimed(task, record.stage, endpoint, "w1")

    def claimed(self, task: str, stage: str, endpoint: str, worker: str) -> None:
        mine, theirs = self.both("store", "claim", task, stage, worker, endpoint=endpoint)
        if isinstance(mine, Claim):
            self.claims.append((mine, theirs))

    @rule(
        pick=st.integers(0, 50),
        what=st.sampled_from(["renew", "checkpoint", "park", "fail", "finish"]),
        stage=STAGES,
        success=st.booleans(),
    )
    def use_a_claim(self, pick: int, what: str, stage: str, success: bool) -> None:
        if not self.claims:
            return
        claims = self.claims[-1 - pick % min(len(self.claims), 4)]
        arguments: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
            "renew": ((), {}),
            "checkpoint": ((stage,), {}),
            "park": ((20.0, "KB_UNREACHABLE", "down"), {"counted": success}),
            "fail": ((Failure("KB_AUTH", "en", "zh"),), {}),
            "finish": ((), {"success": success, "code": "" if success else "CANCELLED", "commit_id": "c"}),
        }
        positional, named = arguments[what]
        done = [
            getattr(world.records.store, what)(claim, *positional, **named)
            for world, claim in zip(self.worlds, claims, strict=True)
        ]
        assert done[0] == done[1], f"{what} {claims[0]}: memory {done[0]}, server {done[1]}"

    @rule(seconds=st.sampled_from([1.3, 7.3, 31.3, 61.3, 310.3]))
    def time_passes(self, seconds: float) -> None:
        for world in self.worlds:
            world.advance(seconds)

    @rule(task=TASKS)
    def cancel(self, task: str) -> None:
        self.both("control", "cancel", task)

    @rule(task=TASKS, stage=STAGES, force=st.booleans())
    def replay(self, task: str, stage: str, force: bool) -> None:
        self.both("control", "replay", task, stage, force=force)

    @rule(gate=st.sampled_from(["queue:kbw.llm", f"endpoint:{MODEL}"]), what=st.sampled_from(["pause", "resume"]))
    def gate(self, gate: str, what: str) -> None:
        self.both("control", what, gate)

    @rule(ok=st.booleans())
    def report(self, ok: bool) -> None:
        self.both("store", "report", MODEL, ok=ok)

    @rule()
    def sweep(self) -> None:
        found = [sorted(world.records.sweep.stalled(50)) for world in self.worlds]
        assert found[0] == found[1]
        found = [sorted(world.records.sweep.freed(50)) for world in self.worlds]
        assert found[0] == found[1]

    @rule()
    def prune(self) -> None:
        self.both("archive", "prune", 400.0)

    @invariant()
    def they_tell_the_same(self) -> None:
        for task in ("a1", "a2", "a3", "b1", "free"):
            self.both("views", "get", task)
            self.both("views", "failure", task)
        self.both("views", "counts")

    @invariant()
    def no_open_job_is_out_of_sight_and_no_cap_is_exceeded(self) -> None:
        server = self.worlds[1].records
        client, prefix = server.client, server.sweep._run.__self__.policy.prefix
        counts = server.views.counts()
        assert client.zcard(f"{prefix}due") == counts["queued"] + counts["running"] + counts["parked"]
        assert all(view.in_flight <= view.cap for view in server.views.endpoints())


def test_memory_and_server_agree_on_random_histories(server_url: str) -> None:
    TwoRecords.url = server_url
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        TwoRecords,
        settings=settings(
            max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
