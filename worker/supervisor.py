"""One command, one tree of processes: starts, restarts and stops its parts; must not know what they do."""

from __future__ import annotations

import ctypes
import logging
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

log = logging.getLogger("kbw.supervisor")

POLL_S = 0.2
HEALTHY_AFTER_S = 30.0
LONGEST_PAUSE_S = 30.0
_PR_SET_PDEATHSIG = 1


@dataclass
class Part:
    """One supervised process. It is started again with growing pauses when it ends by itself."""

    name: str
    argv: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    not_before: float = 0.0


@dataclass
class Supervisor:
    """Keeps ``parts`` running until SIGTERM or SIGINT, then stops them in order, each kind within ``shutdown_s``.

    ``each_round`` is called every 0.2 s (renewing the owner's file); what it raises stops the tree.
    """

    parts: Sequence[Part]
    environment: Mapping[str, str]
    shutdown_s: float
    each_round: Callable[[], None] = lambda: None
    monotonic: Callable[[], float] = time.monotonic
    _stopping: bool = field(default=False, init=False)

    def run(self) -> None:
        """Until told to stop."""
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self._stopping:
                for part in self.parts:
                    self._keep(part)
                self.each_round()
                time.sleep(POLL_S)
        finally:
            self.stop()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """SIGTERM to all (they finish what runs), SIGQUIT after ``shutdown_s`` (give it back), SIGKILL at last."""
        for number, patience in ((signal.SIGTERM, self.shutdown_s), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
            alive = [part.process for part in self.parts if part.process and part.process.poll() is None]
            for process in alive:
                process.send_signal(number)
            limit = self.monotonic() + patience
            while any(process.poll() is None for process in alive) and self.monotonic() < limit:
                time.sleep(POLL_S / 4)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        log.info("stopping", extra={"kbw": {"signal": signal.Signals(number).name}})
        self._stopping = True

    def _keep(self, part: Part) -> None:
        now = self.monotonic()
        if part.process is not None and part.process.poll() is None:
            if now - part.started > HEALTHY_AFTER_S:
                part.failures = 0
            return
        if part.process is not None:
            part.failures += 1
            pause = min(LONGEST_PAUSE_S, 0.5 * 2 ** (part.failures - 1))
            part.not_before = now + pause
            fields = {"part": part.name, "exit": part.process.returncode, "pause_s": pause}
            log.warning("part.ended", extra={"kbw": fields})
            part.process = None
        if now >= part.not_before:
            part.started = now
            part.process = subprocess.Popen(  # noqa: S603 - our own command line, no shell
                part.argv, env=dict(self.environment), preexec_fn=die_with_parent, start_new_session=True
            )
            log.info("part.started", extra={"kbw": {"part": part.name, "pid": part.process.pid}})


def die_with_parent() -> None:
    """Linux: a part must not outlive a supervisor that was killed, or two trees would work on one directory."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
