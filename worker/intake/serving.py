"""Runs all ways in of one process side by side; must not know how any of them works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread

log = logging.getLogger("kbw.intake")

GRACE_S = 15.0


def serve_side_by_side(ways: Sequence[tuple[str, Callable[[Event], None]]], stop: Event) -> None:
    """Each way in a thread of its own until ``stop`` is set; a way that ends by itself ends the process's others.

    The supervisor starts the process again: half an intake would look alive and take nothing.
    """
    threads = [Thread(target=_run, args=(name, way, stop), name=name, daemon=True) for name, way in ways]
    for thread in threads:
        thread.start()
    stop.wait()
    for thread in threads:
        thread.join(GRACE_S)


def _run(name: str, way: Callable[[Event], None], stop: Event) -> None:
    try:
        way(stop)
    except Exception:
        log.exception("intake.way_ended", extra={"kbw": {"way": name}})
    finally:
        stop.set()
