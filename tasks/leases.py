"""Keeps the leases of the jobs a worker has in hand and says when one is lost; must not know what is done with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Self

from tasks.errors import FencedError
from tasks.ports import Claim, JobStore, JobSweep

log = logging.getLogger("kbw.job")

FRESH_S = 1.0
"""A lease that was confirmed so lately is not asked for again: the checkpoint after it is a compare-and-set anyway."""


class KeptLeases:
    """Renews leases (and a named lock) in the background, four times in their length, while the block runs.

    ``lease_s`` in seconds; ``now`` is a monotonic clock; ``lock``: ``""`` or the name of a lock that ``worker`` holds.
    """

    def __init__(
        self,
        jobs: JobStore,
        sweep: JobSweep,
        claims: Sequence[Claim],
        *,
        worker: str,
        lease_s: float,
        now: Callable[[], float],
        lock: str = "",
    ) -> None:
        self._jobs = jobs
        self._sweep = sweep
        self._claims = claims
        self._worker = worker
        self._lease_s = lease_s
        self._now = now
        self._lock = lock
        self._done = Event()
        self._keeper = Thread(target=self._keep, name="lease", daemon=True)
        self._confirmed = {claim.task_id: now() for claim in claims}

    def __enter__(self) -> Self:
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        # a renewal under way must not come after the lock is given back: it would take it anew for nobody
        self._keeper.join(self._lease_s)

    def guard(self, claim: Claim) -> None:
        """To be asked before every effect. Raises ``FencedError`` when the lease is lost or the job was cancelled."""
        if self._now() - self._confirmed[claim.task_id] > FRESH_S and not self._confirm(claim):
            raise FencedError(f"{claim.task_id} at {claim.stage}: lease lost or job cancelled")

    def _confirm(self, claim: Claim) -> bool:
        held = self._jobs.renew(claim)
        self._confirmed[claim.task_id] = self._now() if held else float("-inf")
        return held

    def _keep(self) -> None:
        while not self._done.wait(self._lease_s / 4):
            try:
                for claim in self._claims:
                    self._confirm(claim)
                if self._lock:
                    self._sweep.lock(self._lock, self._worker, self._lease_s)
            except Exception as error:  # noqa: BLE001 - Redis may be away for a moment; the guards ask again
                log.warning("lease.unrenewed", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"}})
