"""The Celery message ``kbw.submit(payload)`` (CONTRACT §3.4): for senders that already speak Celery, not recommended.

Celery itself removes no repeats and loses a malformed message; the stream does neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from celery import Celery

from tasks.accept import Intake, accept, conflict
from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
from tasks.contract.trace import sent_traceparent
from tasks.errors import Code, JobError, PermanentError, TransientError
from worker.intake.document import read_document
from worker.intake.refusal import Refusals
from worker.intake.stream import DeadLetters

TASK = "kbw.submit"


@dataclass(frozen=True)
class MessageIntake:
    """Accepts the payload of a message. ``put_off`` hands it to the stream, which waits for a share that is away."""

    intake: Intake
    refusals: Refusals
    dead: DeadLetters
    put_off: Callable[[bytes], str]

    def take(self, payload: object) -> None:
        """Record the job, or tell on ``kbw:dead`` and ``kbw:results`` why not."""
        document: JsonObject | None = None
        content = b""
        try:
            content = _written(payload)
            document = read_document(content)
            accepted = accept(document, source="celery", intake=self.intake)
            if accepted.kind == "conflict":
                error = conflict(accepted.record.task_id)
                self.refusals.refuse(error, content=content, path="celery", document=document, answered_elsewhere=True)
                trace = sent_traceparent(document)
                self.dead.tell(error, entry_id="", task_id=accepted.record.task_id, traceparent=trace)
        except TransientError:
            self.put_off(content)
        except JobError as error:
            self.dead.bury(error, entry_id="", content=content, document=document)


def _written(payload: object) -> bytes:
    """Celery's reader allows more levels than any writer survives: the message would be gone without a word."""
    if strict_json.is_too_deep(payload):
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload is {strict_json.TOO_DEEP}",
            zh=f"任务内容嵌套过深（超过 {strict_json.MAX_DEPTH} 层）",
        )
    return strict_json.dumps(payload)


def register_submit(app: Celery, queue: str, way_in: Callable[[], MessageIntake]) -> None:
    """The one task whose name and argument stay as they are; ``way_in`` is this process's own (after a fork)."""

    def submit(payload: object) -> None:
        way_in().take(payload)

    app.task(name=TASK, queue=queue)(submit)
