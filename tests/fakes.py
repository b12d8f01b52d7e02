"""One front for all fakes: a whole worker in memory, with its record, model, knowledge base, folders and time.

``World.settle()`` plays the part of Celery: it runs the shells that were woken until nobody is woken any more.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tasks.accept import Intake, accept
from tasks.base import Fleet, advance, drain
from tasks.contract.payload import Payload
from tasks.contract.shape import JsonObject
from tasks.errors import Code, JobError, PermanentError, TransientError
from tasks.pipeline import Pipeline
from tasks.ports import Accepted, NoSpans, Ports, Record, RepoRef
from tasks.registry import pipeline_of
from tests.cooperative_model import answer_from_pages
from tests.fakes_attachments import FakeAttachmentReader
from tests.fakes_folder import MemoryFolder, MemoryFolders
from tests.fakes_job_store import FakeJobRecords
from tests.fakes_kb_reader import FakeKbReader
from tests.fakes_kb_writer import MemoryKbWriter
from tests.fakes_model import FakeModel, StillClock

REPO = RepoRef("team", "kb")
_PAGE = "---\ntitle: {0}\ntype: concept\n---\n# {0}\n\n{1}\n"
PAGES = {
    "concepts/lease.md": _PAGE.format("租约", "租约到期之后，协调器会再次唤醒任务，由另一个工作进程接手。"),
    "concepts/retry.md": _PAGE.format("重试", "暂时性的错误会让任务等待一段时间，然后重试同一个阶段。"),
}


def payload(number: int | str = 1, **changes: Any) -> JsonObject:
    """What the backend sends: question ``number`` of a conversation of its own, a QA page wanted."""
    return {
        "taskId": f"query-c{number}-m{number}",
        "skill": "kb_query",
        "conversationId": f"c{number}",
        "messageId": f"m{number}",
        "question": f"租约到期之后任务 {number} 会怎样？",
        "answerPolicy": {"writeHighValueAnswerToQa": True},
        "resultFile": f"results/query-c{number}-m{number}.json",
        **changes,
    }


class MemorySink:
    """``ResultSink``: bytes by path. Folders of ``missing`` are not there (yet), ``forbidden`` must not be written."""

    def __init__(self) -> None:
        self.delivered: dict[str, list[bytes]] = {}
        self.missing: set[str] = set()
        self.forbidden: set[str] = set()

    def check(self, payload: Payload) -> None:
        path = payload.result_file or ""
        if path in self.missing:
            raise TransientError(Code.RESULT_DIR_MISSING, en=f"{path}: no such folder", zh="结果目录不存在")
        if path in self.forbidden:
            raise PermanentError(Code.PATH_NOT_ALLOWED, en=f"{path}: outside", zh="结果路径不允许")

    def deliver(self, payload: Payload | None, task_id: str, document: bytes) -> None:
        if payload and payload.result_file:
            self.check(payload)
            self.delivered.setdefault(payload.result_file, []).append(document)


class FailingAt:
    """Raises the listed errors, one a call, before it lets calls through to ``target``."""

    def __init__(self, target: Any, method: str, *errors: Exception) -> None:
        self._target, self._method, self._errors = target, method, deque(errors)
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name != self._method:
            return found

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self._errors:
                raise self._errors.popleft()
            return found(*args, **options)

        return call


@dataclass
class World:
    """Everything one job meets. Replace a part before the first call to :attr:`fleet` to make it fail."""

    clock: StillClock = field(default_factory=StillClock)
    folders: MemoryFolders = field(default_factory=MemoryFolders)
    sink: MemorySink = field(default_factory=MemorySink)
    model: Any = field(default_factory=lambda: FakeModel(answer_from_pages()))
    kb: Any = field(default_factory=FakeKbReader)
    writer: Any = None
    attachments: Any = field(default_factory=FakeAttachmentReader)
    records: Any = None
    repo_fault: JobError | None = None
    spans: Any = field(default_factory=NoSpans)
    woken: deque[tuple[Pipeline, str, str]] = field(default_factory=deque)
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = self.records or FakeJobRecords(now=self.clock.now)
        self.writer = self.writer or MemoryKbWriter(self.clock)
        if isinstance(self.kb, FakeKbReader):
            self.kb.publish(REPO, PAGES)

    def resolve(self, payload: Payload) -> RepoRef:
        if self.repo_fault:
            raise self.repo_fault
        return RepoRef("team", payload.team.kb_repo or "kb")

    @property
    def ports(self) -> Ports:
        parts = (self.kb, self.writer, self.attachments, self.model, self.sink, self.folders, self.clock, self.resolve)
        return Ports(*parts, spans=self.spans)

    def wake(self, pipeline: Pipeline, stage: str, task_id: str) -> None:
        self.woken.append((pipeline, stage, task_id))

    @property
    def fleet(self) -> Fleet:
        return self.worker("w1")

    def worker(self, name: str) -> Fleet:
        """A worker of that name over the same record."""
        r = self.records
        return Fleet(self.ports, r.store, r.views, r.sweep, r.store, self.wake, pipeline_of, name)

    @property
    def intake(self) -> Intake:
        parts = (self.records.store, self.records.archive, self.folders, self.sink, self.wake)
        return Intake(*parts, now=self.clock.now)

    def accept(self, document: JsonObject, source: str = "test", traceparent: str = "") -> Accepted:
        return accept(document, source=source, intake=self.intake, traceparent=traceparent)

    def step(self, fleet: Fleet | None = None) -> None:
        """Run the oldest wake-up call."""
        pipeline, stage, task_id = self.woken.popleft()
        self.history.append(f"{task_id} {stage}")
        step = pipeline.step(stage)
        (drain if step.batched else advance)(fleet or self.fleet, pipeline, step, task_id)

    def settle(self, *, patience_s: float = 0.0) -> None:
        """Run wake-up calls until there are none; then let up to ``patience_s`` pass, second by second, and sweep."""
        until = self.clock.now() + patience_s
        while True:
            while self.woken:
                self.step()
            if self.clock.now() >= until:
                return
            self.clock.sleep(1.0)
            for task_id, stage in (*self.records.freed(100), *self.records.stalled(100)):
                self.wake(pipeline_of(self.record(task_id).skill), stage, task_id)

    def folder(self, task_id: str) -> MemoryFolder:
        return self.folders.open(task_id)

    def record(self, task_id: str) -> Record:
        found = self.records.get(task_id)
        assert found is not None, f"{task_id} is not known"
        return found

    def result(self, task_id: str) -> dict[str, Any]:
        """The one result, as it lies in the job's folder."""
        found: dict[str, Any] = json.loads(self.folder(task_id).files["result.json"])
        return found

    def events(self, task_id: str, *names: str) -> list[str]:
        """``stage:event`` of the journal, of all or of the named events."""
        lines = self.folder(task_id).journal("events.jsonl")
        return [f"{line['stage']}:{line['event']}" for line in lines if not names or line["event"] in names]
