"""Keeps the leases of the jobs a worker has in hand and says when one is lost; must not know what is done with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import Self

from tasks.errors import FencedError, StoreUnavailableError
from tasks.ports import Claim, JobStore, JobSweep

log = logging.getLogger("kbw.job")

IDLE_S = 10.0
FRESH_S = 1.0
"""A lease that was confirmed so lately is not asked for again: the checkpoint after it is a compare-and-set anyway."""


class KeptLeases:
    """The leases of one stage (and a named lock), renewed by their keeper while the block runs."""

    def __init__(self, keeper: LeaseKeeper, claims: Sequence[Claim], lock: str) -> None:
        self._keeper = keeper
        self._claims = claims
        self._lock = lock
        self._busy = Lock()
        self._over = False
        self._confirmed = {claim.task_id: keeper.now() for claim in claims}

    def __enter__(self) -> Self:
        self._keeper.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        # a renewal under way must not come after the lock is given back: it would take it anew for nobody
        if self._busy.acquire(timeout=self._keeper.lease_s):
            self._busy.release()
        self._keeper.remove(self)

    def guard(self, claim: Claim) -> None:
        """To be asked before every effect. Raises ``FencedError`` when the lease is lost or the job was cancelled."""
        fresh = self._keeper.now() - self._confirmed[claim.task_id] <= FRESH_S
        if self._over or (not fresh and not self._confirm(claim)):
            raise FencedError(f"{claim.task_id} at {claim.stage}: lease lost or job cancelled")

    def renew(self) -> None:
        """Lengthen all of them, and the lock."""
        with self._busy:
            for claim in self._claims:
                if not self._over:
                    self._confirm(claim)
            if self._lock and not self._over:
                self._keeper.sweep.lock(self._lock, self._keeper.worker, self._keeper.lease_s)

    def give_back(self) -> None:
        """Let others go on at once: this process ends in the middle of it, and the attempt does not count."""
        self._over = True
        for claim in self._claims:
            self._keeper.jobs.park(claim, 0.0, "", "", counted=False)
        if self._lock:
            self._keeper.sweep.unlock(self._lock, self._keeper.worker)

    def _confirm(self, claim: Claim) -> bool:
        held = self._keeper.jobs.renew(claim)
        self._confirmed[claim.task_id] = self._keeper.now() if held else float("-inf")
        return held


class LeaseKeeper:
    """One background thread a process, while there are leases, that renews all of them four times in ``lease_s``.

    ``lease_s`` in seconds; ``now`` is a monotonic clock; ``worker`` is the owner of named locks.
    """

    def __init__(
        self, jobs: JobStore, sweep: JobSweep, *, worker: str, lease_s: float, now: Callable[[], float]
    ) -> None:
        self.jobs = jobs
        self.sweep = sweep
        self.worker = worker
        self.lease_s = lease_s
        self.now = now
        self._kept: list[KeptLeases] = []
        self._changed = Condition()
        self._tick = Event()  # never set: a sleep
        self._thread: Thread | None = None

    def keep(self, claims: Sequence[Claim], lock: str = "") -> KeptLeases:
        """To be used in a ``with``: the leases of ``claims``, and a named lock that ``worker`` holds."""
        return KeptLeases(self, claims, lock)

    def add(self, leases: KeptLeases) -> None:
        """Renew these from now on."""
        with self._changed:
            self._kept.append(leases)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()
            self._changed.notify()  # it sleeps while there is nothing to keep

    def remove(self, leases: KeptLeases) -> None:
        """No more."""
        with self._changed:
            self._kept.remove(leases)

    def give_back_all(self) -> None:
        """For a process that leaves while stages still run. A server that is away cannot be told: the leases end."""
        for leases in self._in_hand():
            with suppress(StoreUnavailableError):
                leases.give_back()

    def _in_hand(self) -> list[KeptLeases]:
        with self._changed:
            return list(self._kept)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._kept, IDLE_S):
                    self._thread = None  # the next lease starts another one: nobody has to end this thread
                    return
            self._tick.wait(self.lease_s / 4)
            for leases in self._in_hand():
                try:
                    leases.renew()
                except Exception as error:  # noqa: BLE001 - Redis may be away for a moment; the guards ask again
                    log.warning("lease.unrenewed", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"}})
                    break
