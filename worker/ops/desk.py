"""An operator's place at the job record: the ports of the commands and the journal of what was done; must not print."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tasks.pipeline import Pipeline, timestamp
from tasks.ports import JobArchive, JobControl, JobSweep, JobViews, Ports, Record
from tasks.registry import pipeline_of
from tasks.stages.job import EVENTS, Job
from worker.app import build_app, waker
from worker.bootstrap import Workshop

FREED_AT_ONCE = 1_000


class Records(Protocol):
    """The job record's ports that operators use."""

    @property
    def control(self) -> JobControl:
        """Changing."""

    @property
    def archive(self) -> JobArchive:
        """Forgetting and putting back."""

    @property
    def views(self) -> JobViews:
        """Reading."""

    @property
    def sweep(self) -> JobSweep:
        """Waking and locking."""


@dataclass(frozen=True)
class Desk:
    """``actor`` stands in every journal line: ``operator:<user>@<host>``, or ``worker`` for what runs by itself.

    ``wake(pipeline, stage, task_id)`` sends a wake-up call.
    """

    records: Records
    ports: Ports
    wake: Callable[[Pipeline, str, str], None]
    actor: str

    def now(self) -> float:
        """The record's time, by which jobs are old or not."""
        return self.records.views.now()

    def job(self, task_id: str, *, known: bool = True) -> Job:
        """The job with its folder; transient error when the share is gone."""
        return Job(task_id, self.ports.folders.open(task_id, known=known), self.ports, float("inf"))

    def note(self, record: Record, event: str, **fields: Any) -> None:
        """One line in the job's journal: who did what, and when."""
        line = {
            "at": timestamp(self.ports.clock.now()),
            "event": event,
            "stage": record.stage,
            "generation": record.generation,
            "attempt": record.attempt,
            "epoch": record.epoch,
            "actor": self.actor,
            "traceparent": record.traceparent,
            **{name: value for name, value in fields.items() if value not in ("", None)},
        }
        self.ports.folders.open(record.task_id, known=True).append(EVENTS, line)

    def wake_freed(self) -> None:
        """Send the wake-up calls that the last change asked for."""
        self.wake_all(self.records.sweep.freed(FREED_AT_ONCE))

    def wake_all(self, woken: Sequence[tuple[str, str]]) -> None:
        """Send wake-up calls for ``(task_id, stage)`` each."""
        for task_id, stage in woken:
            if record := self.records.views.get(task_id):
                self.wake(pipeline_of(record.skill), stage, task_id)


def open_desk(shop: Workshop) -> Desk:
    """The desk of whoever runs this command. Raises ``SettingsError`` when no system runs."""
    wake = waker(build_app(shop.redis_url, shop.settings.redis.prefix))
    return Desk(shop.records, shop.ports(fresh_kb=False), wake, operator_name())


def operator_name() -> str:
    """Who this is, by the operating system."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        user = str(os.getuid())
    return f"operator:{user}@{socket.gethostname()}"
