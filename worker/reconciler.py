"""Wakes what stands still: an elected loop inside every worker (DESIGN §3); must not run a stage itself."""

from __future__ import annotations

import logging
from threading import Event, Thread

from tasks.base import Fleet, wake_all

log = logging.getLogger("kbw.reconciler")

EVERY_S = 2.0
BATCH = 200


def sweep_once(fleet: Fleet) -> int:
    """Wake all jobs that are due, not leased and not woken lately, if we are the elected one; how many."""
    if not fleet.sweep.elect(fleet.worker):
        return 0
    woken = [*fleet.sweep.freed(BATCH), *fleet.sweep.stalled(BATCH)]
    wake_all(fleet, woken)
    for task_id, stage in woken:
        log.info("wake", extra={"kbw": {"task_id": task_id, "stage": stage, "actor": "reconciler"}})
    return len(woken)


def start_reconciler(fleet: Fleet, stop: Event) -> Thread:
    """Sweep every two seconds in the background until ``stop`` is set; a Redis that is away is asked again."""

    def loop() -> None:
        while not stop.wait(EVERY_S):
            try:
                sweep_once(fleet)
            except Exception as error:  # noqa: BLE001 - the loop must outlive any fault of one round
                log.warning("reconciler.failed", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"}})

    thread = Thread(target=loop, name="reconciler", daemon=True)
    thread.start()
    return thread
