"""Jobs over HTTP, apart from HTTP: bytes and names in, answers out; must not read requests or check tokens."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import get_args

from tasks.accept import Intake, accept, conflict
from tasks.contract import strict_json
from tasks.contract.ids import is_safe_task_id
from tasks.contract.shape import JsonObject
from tasks.errors import JobError, StoreUnavailableError, TransientError
from tasks.ports import JobViews, Record, State
from tasks.stages.job import RESULT
from worker.intake.document import read_document, refuse_double_names
from worker.intake.http.answer import Answer, error_answer, json_answer
from worker.intake.refusal import Refusals, told_task_id
from worker.intake.repeat import finished_job
from worker.masking import SecretMask

log = logging.getLogger("kbw.intake")

STATES: tuple[State, ...] = get_args(State)
DEFAULT_LIMIT, MAX_LIMIT = 50, 500
RETRY_AFTER_S = "5"


@dataclass(frozen=True)
class JobsApi:
    """``POST /jobs``, ``GET /jobs/<taskId>``, ``GET /jobs``. Blocking: call it from a thread."""

    intake: Intake
    views: JobViews
    refusals: Refusals
    mask: SecretMask

    def submit(self, content: bytes, traceparent: str) -> Answer:
        """202 recorded, 200 known with the same content, 409 other content, 422 no payload, 503 not now."""
        document = None
        try:
            document = read_document(content)
            refuse_double_names(content)
            accepted = accept(document, source="http", intake=self.intake, traceparent=traceparent)
            task_id = accepted.record.task_id
            if accepted.kind == "conflict":
                error = conflict(task_id)
                self.refusals.refuse(error, content=content, path="http", document=document, answered_elsewhere=True)
                return self._refused(409, error, task_id)
        except StoreUnavailableError as away:
            return self._later(str(away))
        except JobError as refused:
            return self._not_accepted(document, refused)
        log.info("accepted", extra={"kbw": {"task_id": task_id, "kind": accepted.kind, "source": "http"}})
        status = 202 if accepted.kind == "new" else 200
        return json_answer(status, {"taskId": task_id, "state": accepted.record.state}, Location=f"/jobs/{task_id}")

    def _not_accepted(self, document: JsonObject | None, error: JobError) -> Answer:
        try:
            record = finished_job(document, self.intake, self.views)
        except StoreUnavailableError as away:
            return self._later(str(away))
        if record is not None:  # only its result file cannot be written: the result is to be had here
            return json_answer(200, {"taskId": record.task_id, "state": record.state})
        if isinstance(error, TransientError):
            return self._later(error.en, error.zh, error.code)
        return self._refused(422, error, told_task_id(document))

    def show(self, task_id: str) -> Answer:
        """One job; ``result`` is the very text of its ``result.json``, ``null`` until that is decided."""
        try:
            record = self.views.get(task_id) if is_safe_task_id(task_id) else None
            if record is None:
                return error_answer(404, "NOT_FOUND", "没有这个任务", "no job of this taskId is known")
            result = self._result_of(record)
        except TransientError as error:
            return self._later(error.en, error.zh, error.code)
        except StoreUnavailableError as error:
            return self._later(str(error))
        head = strict_json.line(_standing(record)).rstrip(b"}\n")
        return Answer(200, head + b',"result":' + result.strip() + b"}\n")

    def listing(self, state: str, limit: str) -> Answer:
        """The newest jobs, of one state or of all."""
        if state and state not in STATES:
            return error_answer(400, "BAD_REQUEST", "state 参数无效", f"state must be one of: {', '.join(STATES)}")
        if not (limit or "1").isascii() or not (limit or "1").isdigit() or not 1 <= int(limit or 1) <= MAX_LIMIT:
            return error_answer(400, "BAD_REQUEST", "limit 参数无效", f"limit must be a number from 1 to {MAX_LIMIT}")
        count = int(limit or DEFAULT_LIMIT)
        wanted = [one for one in STATES if state in ("", one)]
        try:
            ids = [i for one in wanted for i in self.views.ids(one, oldest_first=False, limit=count)]
            records = [record for i in ids if (record := self.views.get(i))]
        except StoreUnavailableError as error:
            return self._later(str(error))
        records.sort(key=lambda record: record.created, reverse=True)
        return json_answer(200, {"jobs": [_standing(record) for record in records[:count]]})

    def _result_of(self, record: Record) -> bytes:
        """``null`` while a stage before publish is at work: what lies in the folder then is of an earlier run."""
        if record.stage != "publish" or record.pruned:
            return b"null"
        return self.intake.folders.open(record.task_id).read(RESULT) or b"null"

    def _refused(self, status: int, error: JobError, task_id: str) -> Answer:
        log.warning("rejected", extra={"kbw": {"task_id": task_id, "code": error.code, "source": "http"}})
        document = {"taskId": task_id, "errorCode": error.code, "errors": [error.zh], "reason": error.en}
        return json_answer(status, self.mask.value(document))

    def _later(self, reason: str, zh: str = "服务暂时不可用，请稍后重试", code: str = "UNAVAILABLE") -> Answer:
        log.warning("http.later", extra={"kbw": {"reason": reason}})
        return error_answer(503, code, self.mask.text(zh), self.mask.text(reason), Retry_After=RETRY_AFTER_S)


def _standing(record: Record) -> dict[str, object]:
    return {
        "taskId": record.task_id,
        "state": record.state,
        "stage": record.stage,
        "attempt": record.attempt,
        "errorCode": record.code,
    }
