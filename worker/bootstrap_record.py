"""Builds what reads and changes the record of jobs; must import no stage: a health check runs every few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks.queues import QUEUES
from worker.adapters.job_store import JobRecords, StorePolicy, open_job_records, running_server
from worker.adapters.job_store.dead_stream import DeadStream
from worker.clock import SystemClock
from worker.gauges import Gauges
from worker.settings import Settings, SettingsError


@dataclass(frozen=True)
class RecordShop:
    """Everything about the record, built from one set of settings; each part when it is first asked for."""

    settings: Settings
    shared_dir: Path

    @cached_property
    def clock(self) -> SystemClock:
        """Time and chance."""
        return SystemClock()

    @cached_property
    def redis_url(self) -> str:
        """The configured server, else the embedded one that ``kbw up`` runs here. Raises :class:`SettingsError`."""
        if self.settings.redis.url:
            return self.settings.redis.url
        embedded = running_server(self.state_dir)
        if embedded is None:
            raise SettingsError(
                f"no running system answers in {self.state_dir} (KBW_STATE_DIR): start `kbw up` (it takes a moment), "
                "or set KBW_REDIS_URL to its Redis"
            )
        return embedded.broker_url

    @cached_property
    def state_dir(self) -> Path:
        """Where the embedded Valkey keeps its file."""
        return Path(self.settings.redis.state_dir).expanduser()

    @cached_property
    def records(self) -> JobRecords:
        """The job record."""
        job = self.settings.job
        policy = StorePolicy(
            prefix=self.settings.redis.prefix,
            lease_s=job.lease_s,
            stall_s=job.stall_s,
            max_attempts=job.max_attempts,
            default_cap=self.settings.model.concurrency,
            queues=QUEUES,
            lane_patience_s=job.lane_block_s,
        )
        return open_job_records(self.redis_url, policy, lambda: self.clock.token(16))

    @cached_property
    def dead_stream(self) -> DeadStream:
        """What never became a job, for operators."""
        return DeadStream(self.redis_url, self.settings.redis.prefix)

    @cached_property
    def gauges(self) -> Gauges:
        """Metrics and health."""
        records = self.records
        return Gauges(
            views=records.views,
            control=records.control,
            census=records.census,
            dead=self.dead_stream,
            shared_dir=self.shared_dir,
            kb_url=self.settings.gitea.url,
            patience_s=self.settings.job.live_s,
        )


def shared_dir_of(settings: Settings) -> Path:
    """The configured shared directory. Raises :class:`SettingsError` without one."""
    if not settings.shared.directory:
        raise SettingsError("OPENCLAW_SHARED_DIR is not set: the directory shared with the backend")
    return Path(settings.shared.directory).expanduser().absolute()
