"""Reading and sweeping the job record; must not change a job except to mark it woken."""

from __future__ import annotations

from typing import Any, get_args

from tasks.ports import EndpointView, Failure, Record, State
from worker.adapters.job_store.connection import ScriptRunner, translated_faults
from worker.adapters.job_store.records import failure_from, record_from


class RedisJobViews:
    """``JobViews`` from hashes and sorted sets; no key is ever scanned."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner
        self._client: Any = runner.client  # redis-py types every answer as sync-or-async; the decoded values are text

    def now(self) -> float:
        """The server's time."""
        with translated_faults():
            seconds, micros = self._client.time()
        return float(seconds) + float(micros) / 1e6

    def get(self, task_id: str) -> Record | None:
        """One record, also of a pruned job (``pruned``)."""
        with translated_faults():
            fields = self._client.hgetall(self._runner.key("job", task_id)) or self._client.hgetall(
                self._runner.key("tomb", task_id)
            )
        return record_from(fields) if fields else None

    def failure(self, task_id: str) -> Failure | None:
        """The failure noted for publish."""
        with translated_faults():
            fields = self._client.hgetall(self._runner.key("job", task_id))
        return failure_from(fields)

    def ids(self, state: State, *, oldest_first: bool = True, limit: int = 100) -> list[str]:
        """By creation while open, by end when over."""
        with translated_faults():
            ids: list[str] = self._client.zrange(
                self._runner.key("state", state), 0, max(0, limit - 1), desc=not oldest_first
            )
        return ids[:limit]

    def counts(self) -> dict[str, int]:
        """Every state is named, also with 0."""
        states = get_args(State)
        with translated_faults():
            pipe = self._client.pipeline(transaction=True)
            for state in states:
                pipe.zcard(self._runner.key("state", state))
            return dict(zip(states, pipe.execute(), strict=True))

    def dead(self, limit: int = 100) -> list[str]:
        """Dead letters, oldest first."""
        with translated_faults():
            ids: list[str] = self._client.zrange(self._runner.key("deadjobs"), 0, max(0, limit - 1))
        return ids[:limit]

    def figures(self) -> dict[str, int]:
        """Counters, exact for the whole fleet.

        ``accepted duplicates conflicts claims fenced leases_expired parks failures wakes replays restored pruned
        breaker_opened endpoint_faults``, ``refused/<reason>``, ``given_up/<code>``, ``finished/<state>``, and
        histograms in milliseconds ``stage_ms/<stage>/…``, ``wait_ms/<stage>/…``, ``job_ms/<skill>/…`` with ``sum``,
        ``count`` and ``le/<limit>`` (not cumulative; the last limit is ``inf``).
        """
        with translated_faults():
            counters = self._client.hgetall(self._runner.key("counters"))
        return {name: int(value) for name, value in counters.items()}

    def endpoints(self) -> list[EndpointView]:
        """Every endpoint that was ever claimed for or reported on."""
        views = self._runner.run("endpoints")["endpoints"] or []
        policy = self._runner.policy
        return [EndpointView(**view, cap=policy.cap(view["endpoint"])) for view in views]


class RedisJobSweep:
    """``JobSweep``: what stands still, and named leases."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._run = runner.run
        self._election_s = runner.policy.election_s

    def elect(self, worker: str) -> bool:
        """Whether this worker reconciles for the next seconds."""
        return self.lock("reconciler", worker, self._election_s)

    def stalled(self, limit: int) -> list[tuple[str, str]]:
        """Due jobs, marked woken."""
        return self._woken("stalled", limit)

    def freed(self, limit: int) -> list[tuple[str, str]]:
        """Jobs that a release made claimable, marked woken."""
        return self._woken("freed", limit)

    def waiting(self, stage: str, limit: int) -> list[str]:
        """Claimable jobs at one stage, oldest first."""
        return list(self._run("waiting", stage=stage, limit=limit)["ids"] or [])

    def lock(self, name: str, owner: str, ttl_s: float) -> bool:
        """Take or lengthen a named lease."""
        return bool(self._run("lock", lock=name, owner=owner, ttl_s=ttl_s)["ok"])

    def unlock(self, name: str, owner: str) -> None:
        """Give it back if it is still ours."""
        self._run("lock", lock=name, owner=owner, ttl_s=0)

    def _woken(self, script: str, limit: int) -> list[tuple[str, str]]:
        return [(task_id, stage) for task_id, stage in self._run(script, limit=limit)["woken"] or []]
