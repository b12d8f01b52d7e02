"""Reads the records for metrics and health, wherever they are asked for: CLI or HTTP; must not change a job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.errors import StoreUnavailableError
from tasks.queues import QUEUES
from worker import __version__
from worker.health import Check, Probe, available, consumed
from worker.metrics import Metric, Snapshot, metrics_of, render

if TYPE_CHECKING:
    from tasks.ports import JobCensus, JobControl, JobViews
    from worker.adapters.job_store.dead_stream import DeadStream

DEAD_COUNTED = 100_000


@dataclass(frozen=True)
class Gauges:
    """``patience_s``: how long ready jobs may stand before the fleet counts as dead."""

    views: JobViews
    control: JobControl
    census: JobCensus
    dead: DeadStream
    shared_dir: Path
    kb_url: str
    patience_s: float

    def metrics(self) -> list[Metric]:
        """All families."""
        from tasks.registry import PIPELINES  # and with them all stages: health needs none of them

        return metrics_of(
            Snapshot(
                now=self.views.now(),
                counts=self.views.counts(),
                open_jobs=self.census.open_jobs(),
                figures=self.views.figures(),
                endpoints=self.views.endpoints(),
                paused=self.control.paused(),
                dead_jobs=len(self.views.dead(DEAD_COUNTED)),
                dead_entries=self.dead.count(),
                queues=QUEUES,
                skills=frozenset(PIPELINES),
                version=__version__,
            )
        )

    def text(self) -> str:
        """What ``/metrics`` answers."""
        return render(self.metrics())

    def live(self) -> Probe:
        """Whether work is being consumed. When the record cannot be reached nobody knows, and no restart would help.

        That fault is ``ready``'s to tell.
        """
        try:
            return consumed(
                self.census.open_jobs(),
                self.census.last_claims(),
                self.control.paused(),
                QUEUES,
                now=self.views.now(),
                patience_s=self.patience_s,
            )
        except StoreUnavailableError as error:
            return True, {"live": True, "reason": f"unknown: {error}"}

    def ready(self) -> Probe:
        """Whether work could be done here and now."""
        return available(
            (
                Check("redis", self.views.now),
                Check("shared", self._try_shared_dir),
                Check("kb", self._know_kb),
            )
        )

    def _try_shared_dir(self) -> None:
        from worker.paths import OWN_FOLDER

        folder = self.shared_dir / OWN_FOLDER
        if not folder.is_dir():  # the first job makes it; where the record knows jobs, this is a bare mount point
            if not self.shared_dir.is_dir() or any(self.views.counts().values()):
                raise OSError(f"{folder} is not there (share unmounted?)")
            folder = self.shared_dir
        probe = folder / f".ready.{os.getpid()}"
        try:
            probe.write_bytes(b"")
        finally:
            probe.unlink(missing_ok=True)

    def _know_kb(self) -> Any:
        if not self.kb_url:
            raise ValueError("GITEA_URL is not set")
