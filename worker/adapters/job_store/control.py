"""Operators' changes to the job record, pruning and recovery; must not decide who may do them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from tasks.ports import CancelOutcome, Failure, Memory, Record, ReplayOutcome
from worker.adapters.job_store.connection import ScriptRunner, translated_faults

LOOKED_UP_AT_ONCE = 1000
WAKE_AT_RESUME = 1000
"""Jobs woken at once when a gate opens; the rest comes up in the reconciler's rounds."""


class RedisJobControl:
    """``JobControl``."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    def cancel(self, task_id: str) -> CancelOutcome:
        """Wish a job cancelled."""
        return cast(CancelOutcome, self._runner.run("cancel", task_id=task_id)["outcome"])

    def replay(self, task_id: str, stage: str, *, deadline_s: float = 0.0, force: bool = False) -> ReplayOutcome:
        """A new generation from ``stage``."""
        answer = self._runner.run("replay", task_id=task_id, stage=stage, deadline_s=deadline_s, force=force)
        return cast(ReplayOutcome, answer["outcome"])

    def pause(self, gate: str) -> None:
        """Close a gate."""
        self._runner.run("pause", gate=gate, on=True)

    def resume(self, gate: str) -> None:
        """Open a gate and wake what waits before it."""
        self._runner.run("pause", gate=gate, on=False, limit=WAKE_AT_RESUME)

    def paused(self) -> list[str]:
        """Closed gates, sorted."""
        client: Any = self._runner.client
        with translated_faults():
            return sorted(client.smembers(self._runner.key("paused")))


class RedisJobArchive:
    """``JobArchive``."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    def prune(self, older_than_s: float, limit: int = 500) -> list[str]:
        """Forget jobs that ended long ago."""
        return list(self._runner.run("prune", older_than_s=older_than_s, limit=limit)["ids"] or [])

    def remembers(self, task_ids: Sequence[str]) -> dict[str, Memory]:
        """What is known of each job."""
        client: Any = self._runner.client
        found: dict[str, Memory] = {}
        for start in range(0, len(task_ids), LOOKED_UP_AT_ONCE):
            part = task_ids[start : start + LOOKED_UP_AT_ONCE]
            with translated_faults():
                pipe = client.pipeline(transaction=True)
                for task_id in part:
                    pipe.exists(self._runner.key("job", task_id))
                    pipe.exists(self._runner.key("tomb", task_id))
                answers = pipe.execute()
            for task_id, record, tombstone in zip(part, answers[::2], answers[1::2], strict=True):
                found[task_id] = "record" if record else "tombstone" if tombstone else "nothing"
        return found

    def drop(self, task_id: str) -> bool:
        """Off the dead letters."""
        client: Any = self._runner.client
        with translated_faults():
            return bool(client.zrem(self._runner.key("deadjobs"), task_id))

    def restore(self, record: Record, *, deadline_s: float, failure: Failure | None = None) -> bool:
        """Put back a job that Redis lost."""
        fields = asdict(record)
        more = list(fields.pop("more_result_files"))
        answer = self._runner.run(
            "restore",
            record=fields,
            more_result_files=more,
            deadline_s=deadline_s,
            failure=asdict(failure) if failure else False,
            commit_begun=record.stage == self._runner.policy.commit_stage and record.attempt > 0,
        )
        return bool(answer["ok"])
