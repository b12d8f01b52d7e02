"""Wakes what stands still: an elected loop inside every worker (DESIGN §3); must not run a stage itself.

The elected one also does the chores: putting back jobs that Redis lost, forgetting old ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread

from tasks.base import Fleet, wake_all

log = logging.getLogger("kbw.reconciler")

EVERY_S = 2.0
BATCH = 200


@dataclass
class Chore:
    """Something the elected worker does every ``every_s`` seconds, the first time after ``first_s``."""

    name: str
    every_s: float
    work: Callable[[], object]
    first_s: float = 0.0
    _due: float | None = field(default=None, init=False)

    def do_if_due(self, now: float) -> None:
        """``now`` is a monotonic clock. A fault is told; the chore comes again in its time."""
        if self._due is None:
            self._due = now + self.first_s
        if now < self._due:
            return
        self._due = now + self.every_s
        try:
            done = self.work()
        except Exception as error:  # noqa: BLE001 - one chore must not stop the waking
            reason = f"{type(error).__name__}: {error}"
            log.warning("chore.failed", extra={"kbw": {"chore": self.name, "reason": reason}})
        else:
            if done:
                log.info("chore.done", extra={"kbw": {"chore": self.name, "done": str(done)}})


def sweep_once(fleet: Fleet, chores: Sequence[Chore] = ()) -> int:
    """Wake all jobs that are due, not leased and not woken lately, if we are the elected one; how many."""
    if not fleet.sweep.elect(fleet.worker):
        return 0
    woken = [*fleet.sweep.freed(BATCH), *fleet.sweep.stalled(BATCH)]
    wake_all(fleet, woken)
    for task_id, stage in woken:
        log.info("wake", extra={"kbw": {"task_id": task_id, "stage": stage, "actor": "reconciler"}})
    for chore in chores:
        chore.do_if_due(fleet.ports.clock.monotonic())
    return len(woken)


def start_reconciler(fleet: Fleet, stop: Event, chores: Sequence[Chore] = ()) -> Thread:
    """Sweep every two seconds in the background until ``stop`` is set; a Redis that is away is asked again."""

    def loop() -> None:
        while not stop.wait(EVERY_S):
            try:
                sweep_once(fleet, chores)
            except Exception as error:  # noqa: BLE001 - the loop must outlive any fault of one round
                log.warning("reconciler.failed", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"}})

    thread = Thread(target=loop, name="reconciler", daemon=True)
    thread.start()
    return thread
