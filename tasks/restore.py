"""What a job's folder tells about a job that Redis does not know (any more); must not start anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasks.contract import strict_json
from tasks.contract.payload import content_digest, read_payload
from tasks.contract.shape import JsonObject
from tasks.contract.trace import sent_traceparent
from tasks.errors import PermanentError
from tasks.ports import JobFolder, Record
from tasks.stages.job import PAYLOAD, RESULT


def record_of_answered(task_id: str, folder: JobFolder) -> Record | None:
    """The record of a job whose ``result.json`` is there: it is over and must not run again. Else ``None``."""
    result, payload = _object(folder.read(RESULT)), _object(folder.read(PAYLOAD))
    if result is None or payload is None or result.get("taskId") != task_id:
        return None
    try:
        return answered_record(payload, result, source="restored")
    except PermanentError:
        return None


def record_of_open(document: JsonObject, first_stage: str) -> Record:
    """The record of a job that was accepted and has no result: stages whose artefact is there are passed over.

    Raises ``BAD_PAYLOAD``.
    """
    return _record(document, state="queued", stage=first_stage, source="restored")


def answered_record(document: JsonObject, result: JsonObject, *, source: str) -> Record:
    """A record in its final state for a payload and the result it got. Raises ``BAD_PAYLOAD``."""
    code = str(result.get("errorCode") or "")
    state = "done" if result.get("success") is True else "cancelled" if code == "CANCELLED" else "failed"
    return replace(
        _record(document, state=state, stage="publish", source=source),
        code=code,
        retryable=result.get("retryable") is True,
        commit_id=str(result.get("commitId") or ""),
    )


def _record(document: JsonObject, *, state: Any, stage: str, source: str) -> Record:
    payload = read_payload(document)
    return Record(
        task_id=payload.task_id,
        digest=content_digest(document),
        skill=payload.skill,
        state=state,
        stage=stage,
        epoch=0,
        attempt=0,
        generation=0,
        created=0.0,
        deadline=0.0,
        updated=0.0,
        lane=payload.conversation_id,
        source=source,
        result_file=payload.result_file or "",
        traceparent=sent_traceparent(document),
    )


def _object(data: bytes | None) -> dict[str, Any] | None:
    try:
        found = strict_json.loads(data or b"null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
