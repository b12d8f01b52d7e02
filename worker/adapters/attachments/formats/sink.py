"""Where an extractor puts text, and the two ways it ends early; must not know any format."""

from __future__ import annotations

import time

_CPU_SHARE, _WALL_SHARE = 0.75, 0.9
"""Of the time that the process has: what was read until then is still told, a process that is ended tells nothing."""

_WIDEST_BLANK = 1_000


class FormatError(Exception):
    """The file gives no text. ``code`` is one of CONTRACT §4.1; ``reason`` is English, for logs, without content."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class EnoughError(Exception):
    """The sink holds all the characters that are wanted: the extractor is left through this exception."""


class Sink:
    """Collects text up to a little more than ``limit`` characters, then raises :class:`EnoughError`.

    White space at the ends of a piece does not count, and the margin is there, because tidying takes some away.
    ``meta`` goes to the attachment's ``metadata``.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._stop = limit + limit // 40 + 64
        self.meta: dict[str, object] = {}
        self._parts: list[str] = []
        self._visible = 0

    @property
    def visible(self) -> int:
        """Characters that count, so far."""
        return self._visible

    def write(self, text: str) -> None:
        """Add a piece of text."""
        kept = text.strip()
        visible = len(kept)
        if len(text) - visible > _WIDEST_BLANK:  # megabytes of blanks say nothing
            before = len(text) - len(text.lstrip())
            after = text[before + visible :]
            text = text[: min(before, _WIDEST_BLANK)] + kept + after[:_WIDEST_BLANK]
        self._parts.append(text)
        if visible:
            self._visible += visible
            if self._visible > self._stop:
                raise EnoughError

    def text(self) -> str:
        """All of it."""
        return "".join(self._parts)


class TimeBudget:
    """What one extraction may still use. One for the process, because a child reads exactly one file."""

    def __init__(self) -> None:
        self._cpu_ends = self._wall_ends = 0.0

    def start(self, cpu_s: float, wall_s: float) -> None:
        """From now on; the arguments are the seconds after which the process is ended."""
        self._cpu_ends = time.process_time() + cpu_s * _CPU_SHARE
        self._wall_ends = time.monotonic() + wall_s * _WALL_SHARE

    def check(self) -> None:
        """Raise ``TIMEOUT`` when the budget is used up."""
        if time.process_time() > self._cpu_ends or time.monotonic() > self._wall_ends:
            raise FormatError("TIMEOUT", "used its time")


time_budget = TimeBudget()
check_time = time_budget.check
"""To be called once a block or page."""
