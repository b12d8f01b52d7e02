"""A lock between the processes of one machine; must not know what it guards."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.ports import Clock

_POLL_S = 0.02


class FileLock:
    """A lock between processes (``flock``) and threads; may be taken again by the thread that holds it."""

    def __init__(self, path: Path, clock: Clock, timeout_s: float) -> None:
        self._path = path
        self._clock = clock
        self._timeout_s = timeout_s
        self._threads = threading.RLock()
        self._depth = 0
        self._descriptor = -1

    @contextmanager
    def held(self, timeout_s: float | None = None) -> Iterator[bool]:
        """Wait for the lock, by default as long as it was made for; yields ``False`` when it is not ours by then."""
        patience = self._timeout_s if timeout_s is None else timeout_s
        until = self._clock.monotonic() + patience
        if not self._threads.acquire(timeout=patience):
            yield False
            return
        try:
            taken = self._depth > 0 or self._take(until)
            self._depth += taken
            try:
                yield taken
            finally:
                self._depth -= taken
                if self._depth == 0:
                    self._give_back()
        finally:
            self._threads.release()

    def _take(self, until: float) -> bool:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._clock.monotonic() >= until:
                    return False
                self._clock.sleep(_POLL_S)
            else:
                return True

    def _give_back(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)  # closing gives the lock back, also when the process is killed
        self._descriptor = -1
