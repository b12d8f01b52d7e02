"""What a job needs from the world, as Protocols named after the need; must import no adapter and no vendor.

Each port has a real adapter in ``worker/adapters`` and a fake in ``tests/fakes.py``; one contract suite runs over both.
``kb`` reads and writes the repository, ``model`` reads attachments and asks, ``knowledge`` is what lies beside the
repository, ``files`` takes results and artefacts, ``record`` and ``jobs`` are the job's record, ``spans`` tells traces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from tasks.ports.files import JobFolder, JobFolders, ResultSink
from tasks.ports.jobs import (
    CancelOutcome,
    EndpointHealth,
    EndpointView,
    JobArchive,
    JobCensus,
    JobControl,
    JobStore,
    JobSweep,
    JobViews,
    Memory,
    OpenJob,
    ReplayOutcome,
)
from tasks.ports.kb import Change, KbReader, KbWriter, RankedPage, RepoRef, Snapshot
from tasks.ports.knowledge import (
    KnowledgeMounts,
    KnowledgeNode,
    KnowledgeSource,
    MaterialDesk,
    MaterialSource,
    MountedSource,
)
from tasks.ports.model import AttachmentReader, ModelCall, ModelDriver, RawReply
from tasks.ports.record import Accepted, Ack, Claim, Failure, NewJob, Record, Refusal, State
from tasks.ports.spans import Facts, NoSpans, Span, Spans

if TYPE_CHECKING:  # most commands read records, and no document: what documents are is for the type checker
    from tasks.contract.context import Limits
    from tasks.contract.payload import Payload


def _usual_limits() -> Limits:
    from tasks.contract.context import Limits

    return Limits()


class Clock(Protocol):
    """Time and chance, as arguments."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds for measuring durations and deadlines inside one process."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def token(self, n_bytes: int) -> str:
        """Random lower-case hex, ``2 * n_bytes`` digits."""


@dataclass(frozen=True)
class Ports:
    """Everything a stage may use, built once in ``worker/bootstrap.py`` (or by a test from fakes)."""

    kb: KbReader
    writer: KbWriter
    attachments: AttachmentReader
    model: ModelDriver
    sink: ResultSink
    folders: JobFolders
    clock: Clock
    resolve_repo: Callable[[Payload], RepoRef]
    limits: Limits = field(default_factory=_usual_limits)
    fresh_kb: bool = False
    """The file commands look the remote's head up now; workers at most 2 s ago."""
    session_mode: Literal["task", "stage", "attempt"] = "task"
    model_timeout_s: float = 300.0
    material: MaterialDesk | None = None
    knowledge: KnowledgeMounts = field(default_factory=KnowledgeMounts)
    spans: Spans = field(default_factory=NoSpans)


__all__ = [
    "Accepted",
    "Ack",
    "AttachmentReader",
    "CancelOutcome",
    "Change",
    "Claim",
    "Clock",
    "EndpointHealth",
    "EndpointView",
    "Facts",
    "Failure",
    "JobArchive",
    "JobCensus",
    "JobControl",
    "JobFolder",
    "JobFolders",
    "JobStore",
    "JobSweep",
    "JobViews",
    "KbReader",
    "KbWriter",
    "KnowledgeMounts",
    "KnowledgeNode",
    "KnowledgeSource",
    "MaterialDesk",
    "MaterialSource",
    "Memory",
    "ModelCall",
    "ModelDriver",
    "MountedSource",
    "NewJob",
    "NoSpans",
    "OpenJob",
    "Ports",
    "RankedPage",
    "RawReply",
    "Record",
    "Refusal",
    "ReplayOutcome",
    "RepoRef",
    "ResultSink",
    "Snapshot",
    "Span",
    "Spans",
    "State",
]
