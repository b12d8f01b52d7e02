"""Where a job stands by its folder alone, and its record from that; must not start or change anything."""

from __future__ import annotations

import json
from calendar import timegm
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import strptime
from typing import Any

from tasks.contract import strict_json
from tasks.contract.payload import read_payload
from tasks.contract.shape import JsonObject
from tasks.contract.trace import fresh_traceparent
from tasks.errors import PermanentError
from tasks.pipeline import Pipeline, Step
from tasks.ports import Failure, JobFolder, Record
from tasks.restore import record_of_answered, record_of_open
from tasks.stages.job import EVENTS, PAYLOAD, RESULT, Job


@dataclass(frozen=True)
class History:
    """What a job's journal tells. Times in seconds since the epoch, ``0.0``: not told."""

    accepted_at: float = 0.0
    finished_at: float = 0.0
    generation: int = 0
    epoch: int = 0
    cancelled: bool = False
    commit_begun: bool = False
    undelivered: bool = False
    """Its result was to be delivered (again), and no line says that it was."""
    failed_stage: str = ""
    failed_why: str = ""
    source: str = ""
    traceparent: str = ""
    more_result_files: tuple[str, ...] = ()


def read_history(folder: JobFolder) -> History:
    """The journal in one pass; torn lines of killed writers are passed over."""
    found = History()
    for line in (folder.read(EVENTS) or b"").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found = _told(found, event)
    return found


def _told(found: History, event: dict[str, Any]) -> History:
    found = replace(
        found,
        traceparent=str(event.get("traceparent") or found.traceparent),
        generation=max(found.generation, _number(event.get("generation"))),
        epoch=max(found.epoch, _number(event.get("epoch"))),
    )
    kind, stage = event.get("event"), event.get("stage")
    if kind == "accept":
        return replace(found, accepted_at=_seconds(event.get("at")), source=str(event.get("actor") or ""))
    if kind == "finish":
        return replace(found, finished_at=_seconds(event.get("at")), undelivered=False)
    if kind == "replay":
        found = replace(found, cancelled=False, commit_begun=False, finished_at=0.0, failed_stage="", failed_why="")
        return replace(found, undelivered=True)
    if kind == "recover":
        return replace(found, failed_stage="", failed_why="")
    if kind == "fail":
        return replace(found, failed_stage=str(stage or ""), failed_why=str(event.get("reason") or ""))
    if kind == "cancel":
        return replace(found, cancelled=True)
    if kind == "repeat":
        places = dict.fromkeys((*found.more_result_files, str(event.get("resultFile") or "")))
        return replace(found, more_result_files=tuple(place for place in places if place))
    if kind == "start":
        return replace(
            found,
            commit_begun=found.commit_begun or stage == "commit",
            undelivered=found.undelivered or stage == "publish",
        )
    return found


def stands_at(pipeline: Pipeline, job: Job) -> Step:
    """The first step that this job needs and whose valid artefact is not there; the last one when all are."""
    for step in pipeline.steps:
        if step is pipeline.last:
            break
        if step.needed(job) and (step.writes is None or not job.holds(step.writes)):
            return step
    return pipeline.last


def record_of(job: Job, pipeline_of: Callable[[str], Pipeline], history: History) -> Record | None:
    """The record of the job that lies in this folder: over when its result was delivered, else open at its next stage.

    A result that waits for its folder (a share unmounted) is fixed, but nobody has it yet. ``None``: there is no
    readable payload, so there never was a job. The epoch continues the journal's, so that workers of the time before
    stay fenced; the deadline counts anew (``0.0``).
    """
    answered = record_of_answered(job.task_id, job.folder)
    if answered is not None:
        answered = replace(
            answered,
            failed_stage=_failed_stage(answered, job, pipeline_of, history),
            error=history.failed_why if answered.state == "failed" else "",
            created=history.accepted_at,
            finished=history.finished_at,
            generation=history.generation,
            traceparent=history.traceparent or answered.traceparent,
            more_result_files=history.more_result_files,
        )
        return replace(answered, state="queued", epoch=history.epoch) if history.undelivered else answered
    document = _document(job.folder, PAYLOAD)
    if document is None or document.get("taskId") != job.task_id:
        return None
    try:
        pipeline = pipeline_of(read_payload(document).skill)
        record = record_of_open(document, pipeline.first.name)
    except PermanentError:
        return None
    stage = stands_at(pipeline, job)
    return replace(
        record,
        stage=stage.name,
        created=history.accepted_at,
        generation=history.generation,
        epoch=history.epoch,
        cancelled=history.cancelled,
        more_result_files=history.more_result_files,
        traceparent=history.traceparent or record.traceparent or fresh_traceparent(job.ports.clock.token(16)),
        # a commit that was begun is finished, whatever is wished meanwhile
        attempt=1 if stage.batched and history.commit_begun else 0,
    )


def failure_told(record: Record, job: Job) -> Failure | None:
    """The failure in the fixed result of an open record: its delivery must not make it a success. Else ``None``."""
    if record.state != "queued" or not record.code:
        return None
    told = (_document(job.folder, RESULT) or {}).get("errors")
    zh = next((text for text in told if isinstance(text, str)), "") if isinstance(told, list) else ""
    return Failure(record.code, en=record.error or record.code, zh=zh, retryable=record.retryable)


def _failed_stage(answered: Record, job: Job, pipeline_of: Callable[[str], Pipeline], history: History) -> str:
    """Where a failed job failed, so that a replay begins there; ``""``: not failed, or failed where nothing tells."""
    if answered.state != "failed" or history.failed_stage or not history.source:
        return history.failed_stage if answered.state == "failed" else ""
    try:
        pipeline = pipeline_of(answered.skill)
    except PermanentError:
        return ""
    step = stands_at(pipeline, job)  # a deadline or too many deaths leave no line: the record gave up where it stood
    return "" if step is pipeline.last else step.name


def _document(folder: JobFolder, name: str) -> JsonObject | None:
    """A file of the folder (the payload as it was accepted, the result), ``None`` when it is lost or torn."""
    try:
        document = strict_json.loads(folder.read(name) or b"null")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _seconds(at: object) -> float:
    try:
        return float(timegm(strptime(str(at), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return 0.0


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
