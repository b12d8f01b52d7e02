"""The ways in around a real server and real folders, without workers: what contract tests of stream and HTTP share."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.accept import Intake
from tasks.ports import Claim
from tasks.queues import QUEUES
from worker.adapters.job_files import FolderStore
from worker.adapters.job_store import EmbeddedValkey, JobRecords, StorePolicy, open_job_records
from worker.adapters.job_store.streams import JobStreams
from worker.adapters.publish.result_file import ResultFileSink
from worker.adapters.publish.result_stream import FileAndStreamSink
from worker.intake.message import MessageIntake
from worker.intake.refusal import Refusals
from worker.intake.stream import DeadLetters, StreamIntake
from worker.masking import SecretMask
from worker.paths import AllowedRoots

SECRET = "s3cr3t-token-77aa"
RESULT_TEXT = '{\n  "success": true,\n  "taskId": "%s",\n  "answer": "租约会到期",\n  "errorCode": ""\n}\n'


@dataclass
class WaysIn:
    """One prefix on a real server, one shared directory. ``woken`` are the wake-up calls sent."""

    url: str
    shared: Path
    prefix: str = field(default_factory=lambda: f"t{secrets.token_hex(6)}:")
    woken: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        policy = StorePolicy(prefix=self.prefix, queues=QUEUES)
        self.records: JobRecords = open_job_records(self.url, policy, lambda: secrets.token_hex(8), timeout_s=30.0)
        self.streams = JobStreams(self.url, self.prefix, timeout_s=30.0)
        self.mask = SecretMask([SECRET])
        self.roots = AllowedRoots(self.shared)
        self.folders = FolderStore(self.shared, self.mask)
        self.refusals = Refusals(self.roots, self.mask)
        self.dead_letters = DeadLetters(self.streams, self.mask)
        sink = FileAndStreamSink(
            ResultFileSink(self.roots), publish=self.streams.publish, publish_once=self.streams.publish_once
        )
        self.intake = Intake(
            self.records.store,
            self.records.archive,
            self.folders,
            sink,
            lambda pipeline, stage, task_id: self.woken.append((task_id, stage)),
            self.mask.value,
        )

    @property
    def redis(self) -> Any:
        """A client that reads bytes."""
        return self.streams._client

    def consumer(self, name: str = "c1", **changes: Any) -> StreamIntake:
        """A consumer of the stream of jobs."""
        return StreamIntake(
            streams=self.streams,
            intake=self.intake,
            views=self.records.views,
            refusals=self.refusals,
            dead=self.dead_letters,
            name=name,
            monotonic=time.monotonic,
            **changes,
        )

    def message_intake(self) -> MessageIntake:
        """The Celery message."""
        return MessageIntake(self.intake, self.refusals, self.dead_letters, self.streams.submit)

    def add(self, payload: Any, **fields: str) -> str:
        """One ``XADD`` as a sender does it; ``payload`` as bytes or as an object."""
        content = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
        added: bytes = self.redis.xadd(
            self.streams.jobs, {b"payload": content} | {k.encode(): v for k, v in fields.items()}
        )
        return added.decode()

    def results(self) -> list[dict[str, str]]:
        """All entries of the stream of results."""
        return self._entries(self.streams.results)

    def dead(self) -> list[dict[str, str]]:
        """All dead letters."""
        return self._entries(self.streams.dead)

    def pending(self) -> int:
        """Entries handed out and not acknowledged."""
        return int(self.redis.xpending(self.streams.jobs, "kbw")["pending"])

    def finish(self, task_id: str) -> bytes:
        """What the workers do to a job, in short; the bytes of its result."""
        document = (RESULT_TEXT % task_id).encode()
        self.folders.open(task_id).write("result.json", document)
        record = self.records.views.get(task_id)
        assert record is not None
        claim = self.records.store.claim(task_id, record.stage, "w")
        assert isinstance(claim, Claim)
        assert self.records.store.checkpoint(claim, "publish")
        claim = self.records.store.claim(task_id, "publish", "w")
        assert isinstance(claim, Claim)
        assert self.records.store.finish(claim, success=True, code="", commit_id="")
        return document

    def _entries(self, stream: str) -> list[dict[str, str]]:
        return [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in self.redis.xrange(stream)]


def payload(number: int | str = 1, **changes: Any) -> dict[str, Any]:
    """A payload without ``resultFile``: it is answered on the way it came."""
    return {
        "taskId": f"query-c{number}-m{number}",
        "conversationId": f"c{number}",
        "messageId": f"m{number}",
        "skill": "kb_query",
        "question": f"租约到期之后任务 {number} 会怎样？",
        **changes,
    }


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    """The address of a real server of its own."""
    server = EmbeddedValkey(folder, token=secrets.token_hex)
    try:
        yield server.start().url
    finally:
        server.stop()
