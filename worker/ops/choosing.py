"""Which jobs an operator means: by state, stage, code and age; must not change any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks.ports import JobViews, Record

SCANNED = 100_000
"""Jobs of one state that are looked at, at most."""


@dataclass(frozen=True)
class Choice:
    """All conditions hold. ``older_s``: ended (while open: came in) longer ago; ``stage``: stands or failed there."""

    states: tuple[str, ...]
    stage: str = ""
    code: str = ""
    older_s: float = 0.0
    limit: int = 50

    def takes(self, record: Record, now: float) -> bool:
        """Whether this is one of them. ``now`` in seconds since the epoch."""
        return (
            (not self.stage or self.stage == (record.failed_stage or record.stage))
            and (not self.code or self.code == record.code)
            and now - (record.finished or record.created) >= self.older_s
        )


def chosen(views: JobViews, choice: Choice, now: float, *, oldest_first: bool = False) -> list[Record]:
    """The records, state by state in the order of ``choice.states``."""
    found: list[Record] = []
    for record in _records(views, choice, oldest_first=oldest_first):
        if len(found) >= choice.limit:
            break
        if choice.takes(record, now):
            found.append(record)
    return found


def _records(views: JobViews, choice: Choice, *, oldest_first: bool) -> Iterator[Record]:
    narrow = bool(choice.stage or choice.code or choice.older_s)
    states: Any = choice.states
    for state in states:
        for task_id in views.ids(state, oldest_first=oldest_first, limit=SCANNED if narrow else choice.limit):
            if record := views.get(task_id):
                yield record
