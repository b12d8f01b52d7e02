"""The one way in for all jobs (CONTRACT §3): file, stream, HTTP, CLI and Celery end here; must not read files."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from tasks.contract import strict_json
from tasks.contract.payload import Payload, content_digest, read_payload
from tasks.contract.shape import JsonObject
from tasks.contract.trace import fresh_traceparent, sent_traceparent
from tasks.errors import Code, PermanentError
from tasks.pipeline import Pipeline, timestamp
from tasks.ports import Accepted, Ack, JobArchive, JobFolder, JobFolders, JobStore, NewJob, Record, ResultSink
from tasks.registry import pipeline_of
from tasks.restore import record_of_answered, record_of_open
from tasks.stages.job import EVENTS, PAYLOAD, RESULT

log = logging.getLogger("kbw.accept")
OVER = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Intake:
    """What accepting needs.

    ``wake(pipeline, stage, task_id)`` sends a wake-up call. ``hide`` takes configured secrets out of a document: a job
    is what its folder keeps, so its content is compared in that form. ``token(n)`` gives ``n`` random bytes as hex;
    ``now`` is this host's time, for the journal.
    """

    jobs: JobStore
    archive: JobArchive
    folders: JobFolders
    sink: ResultSink
    wake: Callable[[Pipeline, str, str], None]
    hide: Callable[[JsonObject], JsonObject] = lambda document: document
    token: Callable[[int], str] = secrets.token_hex
    now: Callable[[], float] = time.time


def accept(
    document: JsonObject, *, source: str, intake: Intake, ack: Ack | None = None, traceparent: str = ""
) -> Accepted:
    """Record the job and wake it, or say that it is known.

    The same content again is the existing job; when that one is over, its result is delivered once more, the same
    bytes, also to another ``resultFile``. Other content under a known id is a conflict and touches nothing of the first
    job. Raises ``BAD_PAYLOAD`` for what is no payload at all.

    ``ack`` is acknowledged together with the record (for a conflict and for a job that is over: by the caller, see
    ``JobStore.accept``). ``traceparent`` is the sender's trace (W3C), else the payload's own field of that name, else a
    new one.
    """
    document = as_kept(document, intake.hide)
    payload, digest = read_payload(document), content_digest(document)
    pipeline = pipeline_of(payload.skill)
    folder = intake.folders.open(payload.task_id)
    body = strict_json.dumps(document)
    # before the record: once a source has been acknowledged, the payload must be on disk
    before = folder.write_once(PAYLOAD, body)
    kept = digest_of(before)
    if kept is None:
        folder.write(PAYLOAD, body)  # what lay there was no payload of anybody
    _recall(intake, payload.task_id, folder, same=kept in (None, digest))
    trace = sent_traceparent(document, traceparent) or fresh_traceparent(intake.token(16))
    accepted = intake.jobs.accept(_new_job(payload, digest, pipeline.first.name, source, trace), ack=ack)
    if accepted.kind == "conflict":
        log.warning("conflict", extra={"kbw": {"task_id": payload.task_id, "source": source}})
        return accepted
    if accepted.record.state in OVER:
        deliver_again(payload, folder, intake.sink)
        return accepted
    if kept not in (None, digest):
        folder.write(PAYLOAD, body)  # left over from a writer that died before it had a record
    if accepted.kind == "new":
        record = accepted.record
        folder.append(EVENTS, accept_event(record.created, pipeline.first.name, source, record.traceparent))
    repeats_lost_job = accepted.kind == "new" and kept == digest and before != body
    if payload.result_file and (repeats_lost_job or payload.result_file in accepted.record.more_result_files):
        folder.append(EVENTS, _repeat_event(accepted.record, payload.result_file, source, intake.now()))
    intake.wake(pipeline, accepted.record.stage, payload.task_id)
    return accepted


def as_kept(document: JsonObject, hide: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """The document as the job's folder keeps it: strict JSON without secrets. Raises ``BAD_PAYLOAD``."""
    read_payload(document)  # before anything walks it: it may be nested without end
    cleaned: JsonObject = strict_json.clean(document)
    return hide(cleaned)


def digest_of(kept: bytes) -> str | None:
    """The content digest of a kept ``payload.json``; ``None`` when it is no JSON object."""
    try:
        document = strict_json.loads(kept)
    except ValueError:
        return None
    return content_digest(document) if isinstance(document, dict) else None


def accept_event(at: float, stage: str, source: str, traceparent: str) -> JsonObject:
    """The first line of a job's journal."""
    return {"at": timestamp(at), "event": "accept", "stage": stage, "generation": 0, "attempt": 0, "epoch": 0} | {
        "actor": source,
        "traceparent": traceparent,
    }


def _repeat_event(record: Record, result_file: str, source: str, now: float) -> JsonObject:
    """Where a repeat wants the result as well: Redis may forget it, the repeat was accepted all the same."""
    at: JsonObject = {"at": timestamp(now), "event": "repeat", "stage": record.stage, "generation": record.generation}
    return at | {"attempt": record.attempt, "epoch": record.epoch, "actor": source, "resultFile": result_file}


def _recall(intake: Intake, task_id: str, folder: JobFolder, *, same: bool) -> None:
    """Put back a job that Redis lost but its folder knows; a job that is known stays as it is.

    One with a result is over. One that was at work (its journal tells) with other content than now comes must not have
    its payload replaced under its artefacts: it is put back, and what comes now is a conflict.
    """
    record = record_of_answered(task_id, folder) if folder.read(RESULT) else None
    if record is None and not same and folder.read(EVENTS):
        document = strict_json.loads(folder.read(PAYLOAD) or b"null")
        try:
            record = record_of_open(document, pipeline_of(str(document.get("skill"))).first.name)
        except PermanentError:
            return  # never was a job
    if record is not None:
        deadline_s = read_payload(folder.read(PAYLOAD) or b"").deadline_seconds
        intake.archive.restore(record, deadline_s=deadline_s)


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


def _new_job(payload: Payload, digest: str, first_stage: str, source: str, trace: str) -> NewJob:
    return NewJob(
        task_id=payload.task_id,
        digest=digest,
        skill=payload.skill,
        first_stage=first_stage,
        lane=payload.conversation_id,
        deadline_s=payload.deadline_seconds,
        source=source,
        result_file=payload.result_file or "",
        traceparent=trace,
    )
