"""Counting the open jobs and what the fleet did; must not block the server with one long script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tasks.ports import OpenJob, State
from worker.adapters.job_store.connection import ScriptRunner, translated_faults

AT_ONCE = 500
FIELDS = (
    "stage",
    "state",
    "blocked",
    "created",
    "enqueued_at",
    "parked_until",
    "lease_until",
    "woken_at",
    "blocked_at",
)
OPEN_STATES = ("queued", "running", "parked")


class RedisJobCensus:
    """``JobCensus``."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._key = runner.key
        self._client: Any = runner.client

    def open_jobs(self) -> list[OpenJob]:
        """Read in pieces: a job that moves on meanwhile is counted where it is read."""
        found: dict[str, OpenJob] = {}
        for state in OPEN_STATES:
            with translated_faults():
                task_ids = self._client.zrange(self._key("state", state), 0, -1)
            for start in range(0, len(task_ids), AT_ONCE):
                part = task_ids[start : start + AT_ONCE]
                with translated_faults():
                    pipe = self._client.pipeline(transaction=False)
                    for task_id in part:
                        pipe.hmget(self._key("job", task_id), FIELDS)
                    rows = pipe.execute()
                found |= {task_id: _open_job(row) for task_id, row in zip(part, rows, strict=True)}
        return [job for job in found.values() if job.state in OPEN_STATES]

    def last_claims(self) -> dict[str, float]:
        """By queue."""
        with translated_faults():
            claimed = self._client.hgetall(self._key("claimed"))
        return {queue: float(at) for queue, at in claimed.items()}

    def tally(self, counts: Mapping[str, int]) -> None:
        """Add to the counters, in one step."""
        with translated_faults():
            pipe = self._client.pipeline(transaction=True)
            for name, number in counts.items():
                pipe.hincrby(self._key("counters"), name, number)
            pipe.execute()


def _open_job(row: list[str | None]) -> OpenJob:
    fields = dict(zip(FIELDS, row, strict=True))
    created, enqueued_at, parked_until, lease_until, woken_at, blocked_at = (
        float(fields[name] or 0.0) for name in FIELDS[3:]
    )
    state, blocked = cast(State, fields["state"] or ""), fields["blocked"] or ""
    ready_at = parked_until if state == "parked" else enqueued_at
    if blocked not in ("", "paused") and 0.0 < blocked_at < woken_at:
        # called since it was sent away, and nobody came to ask again: without workers it would seem held for ever
        blocked, ready_at = "", woken_at
    return OpenJob(fields["stage"] or "", state, blocked, created, ready_at, lease_until)
