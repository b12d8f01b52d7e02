"""Signals a process of a world right before the n-th effect of a job; must not change what the process does otherwise.

Python loads it by itself where this folder is in ``PYTHONPATH``; its audit events are raised before the deed. Effects
are what a job leaves outside its process: a file of its folder or a result put in place, a journal line, a push, and
the note of what was pushed. ``STEPS_DIR`` holds the order: ``order-<n>`` with a signal's name. Who carries it out
leaves ``hit-<n>`` with its process id and what it was about to do.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

_PLACES = ("/.kbw/jobs/", "/results/")
_GIT = ("push", "update-ref")
_busy = False


def _effect(event: str, arguments: tuple[Any, ...]) -> str:
    """What is about to happen, in words; ``""``: nothing that counts."""
    if event == "os.rename":
        return _placed(str(arguments[1]), arguments[3])
    if event == "os.link":
        return _placed(str(arguments[1]), -1)
    if event == "open" and str(arguments[0]).endswith("/events.jsonl") and arguments[2] & os.O_APPEND:
        return "journal line"
    if event == "subprocess.Popen":
        return next((f"git {word}" for word in _GIT if word in arguments[1]), "")
    return ""


def _placed(target: str, folder: int) -> str:
    path = Path(f"/proc/self/fd/{folder}").readlink() / target if folder >= 0 else Path(target)
    counts = not path.name.startswith(".") and any(place in str(path) for place in _PLACES)
    return f"place {path.name}" if counts else ""


def _carry_out(effect: str, orders: Path) -> None:
    order = next(orders.glob("order-*"), None)
    if order is None:
        return
    number = order.name.rpartition("-")[2]
    counter = os.open(orders / f"count-{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(counter, b".")
    reached = os.fstat(counter).st_size
    os.close(counter)
    if reached == int(number):
        wanted = order.read_text()
        (orders / f"hit-{number}").write_text(f"{os.getpid()} {effect}")
        order.unlink()
        os.kill(os.getpid(), signal.Signals[wanted])


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    global _busy  # an audit hook has no other place; what it does itself raises events, too
    if _busy or not (effect := _effect(event, arguments)):
        return
    _busy = True
    try:
        _carry_out(effect, Path(os.environ["STEPS_DIR"]))
    finally:
        _busy = False


if "STEPS_DIR" in os.environ:
    sys.addaudithook(_watch)
