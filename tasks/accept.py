"""The one way in for all jobs (CONTRACT §3): file, stream, HTTP, CLI and Celery end here; must not read files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from tasks.contract import strict_json
from tasks.contract.payload import Payload, content_digest, read_payload
from tasks.contract.shape import JsonObject
from tasks.errors import Code, PermanentError
from tasks.pipeline import Pipeline, timestamp
from tasks.ports import Accepted, Ack, JobArchive, JobFolder, JobFolders, JobStore, NewJob, ResultSink
from tasks.query import pipeline_of
from tasks.restore import record_of_answered
from tasks.stages.job import EVENTS, PAYLOAD, RESULT

log = logging.getLogger("kbw.accept")
OVER = ("done", "failed", "cancelled")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True)
class Intake:
    """What accepting needs. ``wake(pipeline, stage, task_id)`` sends a wake-up call."""

    jobs: JobStore
    archive: JobArchive
    folders: JobFolders
    sink: ResultSink
    wake: Callable[[Pipeline, str, str], None]


def accept(
    document: JsonObject, *, source: str, intake: Intake, ack: Ack | None = None, traceparent: str = ""
) -> Accepted:
    """Record the job and wake it, or say that it is known.

    The same content again is the existing job; when that one is over, its result is delivered once more, the same
    bytes, also to another ``resultFile``. Other content under a known id is a conflict and touches nothing of the first
    job. Raises ``BAD_PAYLOAD`` for what is no payload at all.

    ``ack`` is acknowledged together with the record (for a conflict and for a job that is over: by the caller, see
    ``JobStore.accept``). ``traceparent`` is the sender's trace (W3C), else the payload's own field of that name.
    """
    payload = read_payload(document)
    folder = intake.folders.open(payload.task_id)
    body = strict_json.dumps(document)
    # before the record: once a source has been acknowledged, the payload must be on disk
    kept = folder.write_once(PAYLOAD, body)
    if folder.read(RESULT) and (answered := record_of_answered(payload.task_id, folder)):
        intake.archive.restore(answered, deadline_s=payload.deadline_seconds)  # a job that is known stays as it is
    pipeline = pipeline_of(payload.skill)
    accepted = intake.jobs.accept(
        _new_job(payload, document, pipeline.first.name, source, traceparent or document.get("traceparent")), ack=ack
    )
    if accepted.kind == "new" and kept != body:
        folder.write(PAYLOAD, body)  # left over from a writer that died before it had a record
    if accepted.kind == "new":
        folder.append(EVENTS, {"at": timestamp(accepted.record.created), "event": "accept", "actor": source})
    if accepted.kind == "conflict":
        log.warning("conflict", extra={"kbw": {"task_id": payload.task_id, "source": source}})
    elif accepted.record.state in OVER:
        deliver_again(payload, folder, intake.sink)
    else:
        intake.wake(pipeline, accepted.record.stage, payload.task_id)
    return accepted


def deliver_again(payload: Payload, folder: JobFolder, sink: ResultSink) -> None:
    """Hand the bytes of a finished job's result to whoever asks again."""
    if result := folder.read(RESULT):
        sink.deliver(payload, payload.task_id, result)


def conflict(task_id: str) -> PermanentError:
    """The error of a payload whose id belongs to other content."""
    return PermanentError(
        Code.CONFLICT,
        en=f"{task_id} is already known with other content; use a new messageId",
        zh=f"任务 {task_id} 已存在且内容不同，本次提交被拒绝；请使用新的 messageId",
    )


def _new_job(payload: Payload, document: JsonObject, first_stage: str, source: str, trace: object) -> NewJob:
    return NewJob(
        task_id=payload.task_id,
        digest=content_digest(document),
        skill=payload.skill,
        first_stage=first_stage,
        lane=payload.conversation_id,
        deadline_s=payload.deadline_seconds,
        source=source,
        result_file=payload.result_file or "",
        traceparent=trace if isinstance(trace, str) and _TRACEPARENT.fullmatch(trace) else "",
    )
