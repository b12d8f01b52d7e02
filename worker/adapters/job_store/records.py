"""Redis hashes as records: the only place that knows the hash's field names; must not talk to a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from tasks.ports import Claim, Failure, Record, State


def record_from(fields: Mapping[str, str]) -> Record:
    """A record from its hash (or from a pruned job's tombstone); missing fields are at their defaults."""

    def text(name: str) -> str:
        return fields.get(name, "")

    def number(name: str) -> float:
        return float(fields.get(name) or 0.0)

    return Record(
        task_id=text("task_id"),
        digest=text("digest"),
        skill=text("skill"),
        state=cast(State, text("state")),
        stage=text("stage"),
        epoch=int(number("epoch")),
        attempt=int(number("attempt")),
        generation=int(number("generation")),
        created=number("created"),
        deadline=number("deadline"),
        updated=number("updated"),
        lane=text("lane"),
        source=text("source"),
        result_file=text("result_file"),
        traceparent=text("traceparent"),
        lease_until=number("lease_until"),
        worker=text("worker"),
        parked_until=number("parked_until"),
        enqueued_at=number("enqueued_at"),
        woken_at=number("woken_at"),
        code=text("code"),
        error=text("error"),
        retryable=text("retryable") == "1",
        cancelled=text("cancelled") == "1",
        commit_id=text("commit_id"),
        stage_at=number("stage_at"),
        finished=number("finished"),
        failed_stage=text("failed_stage"),
        endpoint=text("endpoint"),
        blocked=text("blocked"),
        blocked_by=text("blocked_by"),
        blocked_until=number("blocked_until"),
        more_result_files=tuple(json.loads(fields.get("more_result_files") or "[]")),
        pruned=text("pruned") == "1",
    )


def claim_from(fields: Mapping[str, str], max_attempts: int) -> Claim:
    """The claim that a leased record stands for."""
    record = record_from(fields)
    return Claim(
        task_id=record.task_id,
        stage=record.stage,
        epoch=record.epoch,
        attempt=record.attempt,
        generation=record.generation,
        worker=record.worker,
        deadline=record.deadline,
        claimed_at=float(fields.get("claimed_at") or 0.0),
        lease_until=record.lease_until,
        max_attempts=max_attempts,
        traceparent=record.traceparent,
    )


def failure_from(fields: Mapping[str, str]) -> Failure | None:
    """The noted failure, if there is one."""
    noted = fields.get("failure")
    if not noted:
        return None
    failure = json.loads(noted)
    return Failure(failure["code"], failure["en"], failure["zh"], retryable=bool(failure["retryable"]))
