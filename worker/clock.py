"""Time and chance of this machine, behind the ``Clock`` port."""

from __future__ import annotations

import secrets
import time


class SystemClock:
    """The real clock."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds for durations inside one process."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def token(self, n_bytes: int) -> str:
        """Random lower-case hex."""
        return secrets.token_hex(n_bytes)
