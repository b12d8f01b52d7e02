"""Who owns a shared directory served by an embedded Valkey (CONTRACT §5): two would not know each other's jobs."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tasks.contract import strict_json
from worker.paths import OWN_FOLDER, write_atomic

RENEW_S = 15.0
STALE_S = 60.0
WATCHED_S = 17
"""A little more than the owner takes to renew."""
LOCK_TRIES = 50
LOCK_PAUSE_S = 0.1


class AlreadyOwnedError(Exception):
    """Another embedded system serves this directory; the text names it and what to do."""


@dataclass
class Owner:
    """The file ``.kbw/owner.json``: host, pid, a random id and when it was last renewed (seconds since the epoch)."""

    shared_dir: Path
    token: str
    now: Callable[[], float]
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    sleep: Callable[[float], None] = time.sleep
    _tried: float = 0.0

    def take(self) -> None:
        """Own the directory, or raise :class:`AlreadyOwnedError`; ``OSError`` when it is gone or full."""
        self._path.parent.mkdir(exist_ok=True)  # never the shared directory itself: an unmounted one must not be filled
        if self._is_renewed_elsewhere():
            raise self._refusal(self._read() or {})
        with self._path.with_suffix(".lock").open("w") as lock:
            self._lock(lock.fileno())
            self._take()

    def _lock(self, descriptor: int) -> None:
        """Two that start at once: one of them sees the other. Where a share cannot lock, the file alone must do."""
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.sleep(LOCK_PAUSE_S)
            except OSError:
                return
            else:
                return
        raise AlreadyOwnedError(f"{self._path.with_suffix('.lock')} is held by another kbw that is starting; try again")

    def _take(self) -> None:
        other = self._read()
        if other and other.get("id") != self.token and self._alive(other):
            raise self._refusal(other)
        self._write()

    def _refusal(self, other: dict[str, object]) -> AlreadyOwnedError:
        return AlreadyOwnedError(
            f"{self.shared_dir} is already served by kbw on host {other.get('host')} (pid {other.get('pid')}); "
            "stop that one, or set KBW_REDIS_URL for both so that they share one record"
        )

    def _is_renewed_elsewhere(self) -> bool:
        """Whether another host's file that looks stale changes: its clock may be behind. Its owner needs the lock."""
        other = self._read()
        if not other or other.get("id") == self.token or other.get("host") == self.host or self._alive(other):
            return False
        for _ in range(WATCHED_S):
            self.sleep(1.0)
            if (self._read() or other) != other:
                return True
        return False

    def renew(self) -> None:
        """Call often; writes every 15 s. Raises :class:`AlreadyOwnedError` when another one took over meanwhile."""
        if self.now() - self._tried >= RENEW_S:
            self._tried = self.now()  # also when it fails: not again before its time
            self.take()

    def release(self) -> None:
        """Give the directory back; where it is away, the file grows stale."""
        other = self._read()
        if other and other.get("id") == self.token:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.shared_dir / OWN_FOLDER / "owner.json"

    def _read(self) -> dict[str, object] | None:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _write(self) -> None:
        body = {"host": self.host, "pid": self.pid, "id": self.token, "renewedAt": self.now()}
        write_atomic(self._path, strict_json.dumps(body))
        self._tried = self.now()

    def _alive(self, other: dict[str, object]) -> bool:
        pid, renewed = other.get("pid"), other.get("renewedAt")
        if not isinstance(renewed, int | float) or self.now() - renewed >= STALE_S:
            return False
        return other.get("host") != self.host or (isinstance(pid, int) and pid != self.pid and _runs(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Dead, but its parent has not asked for it (a container without an init never does); Linux only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
