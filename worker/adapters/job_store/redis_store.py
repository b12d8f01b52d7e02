"""The ports of the job record over the scripts: arguments in, dataclasses out; all decisions are in ``scripts/``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import redis

from tasks.ports import Accepted, Ack, Claim, Failure, NewJob, Refusal
from worker.adapters.job_store.census import RedisJobCensus
from worker.adapters.job_store.connection import ScriptRunner, connect
from worker.adapters.job_store.control import RedisJobArchive, RedisJobControl
from worker.adapters.job_store.policy import StorePolicy
from worker.adapters.job_store.records import claim_from, record_from
from worker.adapters.job_store.views import RedisJobSweep, RedisJobViews


class RedisJobStore:
    """``JobStore`` and ``EndpointHealth``. ``token`` gives a fresh random text for each accept and claim."""

    def __init__(self, runner: ScriptRunner, token: Callable[[], str]) -> None:
        self._run = runner.run
        self._policy = runner.policy
        self._token = token

    def accept(self, job: NewJob, *, ack: Ack | None = None) -> Accepted:
        """Record the job once; see ``JobStore.accept``."""
        answer = self._run("accept", **asdict(job), token=self._token(), ack=asdict(ack) if ack else False)
        return Accepted(answer["kind"], record_from(answer["record"]))

    def claim(self, task_id: str, stage: str, worker: str, *, endpoint: str = "") -> Claim | Refusal:
        """Take the lease; see ``JobStore.claim``."""
        answer = self._run(
            "claim",
            task_id=task_id,
            stage=stage,
            worker=worker,
            endpoint=endpoint,
            cap=self._policy.cap(endpoint),
            queue=self._policy.queues.get(stage, ""),
            token=self._token(),
        )
        if "refused" in answer:
            return Refusal(answer["refused"], float(answer["till"]))
        return claim_from(answer["claim"], int(answer["max_attempts"]))

    def renew(self, claim: Claim) -> bool:
        """Lengthen the lease; ``False``: stop before the next effect."""
        return self._holder("renew", claim)

    def checkpoint(self, claim: Claim, next_stage: str) -> bool:
        """Move on to ``next_stage``."""
        return self._holder("checkpoint", claim, next_stage=next_stage)

    def park(self, claim: Claim, delay_s: float, code: str, reason: str, *, counted: bool = True) -> bool:
        """The same stage again after ``delay_s``."""
        return self._holder("park", claim, delay_s=delay_s, code=code, reason=reason, counted=counted)

    def fail(self, claim: Claim, failure: Failure) -> bool:
        """On to publish, with the failure noted."""
        return self._holder("fail", claim, failure=asdict(failure))

    def finish(self, claim: Claim, *, success: bool, code: str, commit_id: str) -> bool:
        """The result is delivered: the job is over."""
        return self._holder("finish", claim, success=success, code=code, commit_id=commit_id)

    def report(self, endpoint: str, *, ok: bool) -> None:
        """Feed the endpoint's breaker."""
        self._run("report", endpoint=endpoint, ok=ok, cap=self._policy.cap(endpoint))

    def _holder(self, script: str, claim: Claim, **arguments: object) -> bool:
        answer = self._run(script, task_id=claim.task_id, stage=claim.stage, epoch=claim.epoch, **arguments)
        return bool(answer["ok"])


@dataclass(frozen=True)
class JobRecords:
    """All ports of the job record over one connection pool."""

    client: redis.Redis
    store: RedisJobStore
    views: RedisJobViews
    sweep: RedisJobSweep
    control: RedisJobControl
    archive: RedisJobArchive
    census: RedisJobCensus


def open_job_records(url: str, policy: StorePolicy, token: Callable[[], str], *, timeout_s: float = 10.0) -> JobRecords:
    """The ports over the server at ``url``; connects at the first call."""
    client = connect(url, timeout_s=timeout_s)
    runner = ScriptRunner(client, policy)
    return JobRecords(
        client=client,
        store=RedisJobStore(runner, token),
        views=RedisJobViews(runner),
        sweep=RedisJobSweep(runner),
        control=RedisJobControl(runner),
        archive=RedisJobArchive(runner),
        census=RedisJobCensus(runner),
    )
