"""Takes jobs from the stream ``kbw:jobs`` (CONTRACT §3.2); must not lose an entry, nor try a bad one for ever."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from tasks.accept import OVER, Intake, accept, conflict
from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
from tasks.contract.trace import sent_traceparent
from tasks.errors import Code, JobError, PermanentError, StoreUnavailableError, TransientError
from tasks.ports import JobViews
from tasks.stages.job import RESULT
from worker.adapters.job_store.streams import Entry, JobStreams
from worker.adapters.publish.result_stream import result_fields
from worker.intake.document import MAX_PAYLOAD_BYTES, read_document, refuse_double_names
from worker.intake.refusal import Refusals, error_result, told_task_id
from worker.intake.repeat import finished_job
from worker.masking import SecretMask

log = logging.getLogger("kbw.intake")

BATCH = 8  # entries held at once: at 16 MiB each they must fit into memory
BLOCK_S = 1.0
IDLE_S = 30.0
HOLD_EVERY_S = 10.0
MAX_DELIVERIES = 20
TIDY_EVERY_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
MAX_WAITING = 16
SHOWN_CHARS = 4_000


@dataclass
class DeadLetters:
    """Tells what never became a job: on ``kbw:dead`` and, when the task can be named, on ``kbw:results``."""

    streams: JobStreams
    mask: SecretMask

    def bury(
        self, error: JobError, *, entry_id: str, content: bytes, document: JsonObject | None, header: str = ""
    ) -> None:
        """In one step with the acknowledgement of ``entry_id`` (``""``: it came in another way).

        ``header``: the ``traceparent`` that came beside the payload.
        """
        task_id = told_task_id(document)
        dead = {
            "reason": self.mask.text(error.en),
            "errorCode": error.code,
            "entryId": entry_id,
            "taskId": task_id,
            "bytes": str(len(content)),
            "content": self._shown(content),
        }
        told = self._rejected(error, task_id, entry_id, sent_traceparent(document, header)) if task_id else None
        self.streams.acknowledge(entry_id, dead=dead, result=told)
        log.warning(
            "rejected", extra={"kbw": {"task_id": task_id, "entry": entry_id, "code": error.code, "reason": error.en}}
        )

    def tell(self, error: JobError, *, entry_id: str, task_id: str, traceparent: str) -> None:
        """Answer a conflict: it is no dead letter, its sender has to choose another id."""
        self.streams.acknowledge(entry_id, result=self._rejected(error, task_id, entry_id, traceparent))

    def _rejected(self, error: JobError, task_id: str, entry_id: str, traceparent: str) -> dict[str, str]:
        result = self.mask.value(error_result(task_id, error).document_for(traceparent))
        return {
            "taskId": task_id,
            "kind": "rejected",
            "success": "false",
            "errorCode": error.code,
            "errors": json.dumps(result["errors"], ensure_ascii=False),
            "result": strict_json.dumps(result).decode(),
            "entryId": entry_id,
            **({"traceparent": traceparent} if traceparent else {}),
        }

    def _shown(self, content: bytes) -> str:
        """The beginning, for a person. Masked before it is cut: half a secret is a secret, too."""
        return self.mask.text(content[: 16 * SHOWN_CHARS].decode("utf-8", "replace"))[:SHOWN_CHARS]


@dataclass
class _Waiting:
    """An entry that could not be decided: the share, or its own folder, is away."""

    entry: Entry
    due: float
    pause: float = FIRST_PAUSE_S


@dataclass
class StreamIntake:
    """One consumer of the group. ``name`` is unique among all processes; ``monotonic`` is this machine's clock."""

    streams: JobStreams
    intake: Intake
    views: JobViews
    refusals: Refusals
    dead: DeadLetters
    name: str
    monotonic: Callable[[], float]
    idle_s: float = IDLE_S
    max_deliveries: int = MAX_DELIVERIES
    _waiting: dict[str, _Waiting] = field(default_factory=dict, init=False)
    _held: float = field(default=float("-inf"), init=False)
    _tidied: float = field(default=float("-inf"), init=False)

    def run(self, stop: Event) -> None:
        """Until ``stop`` is set. A fault of one round (Redis away) is told and the next round comes."""
        pause = FIRST_PAUSE_S
        while not stop.is_set():
            try:
                if not self.round(stop) and len(self._waiting) >= MAX_WAITING:
                    stop.wait(BLOCK_S)  # the share is away: what else would come could not be taken either
                pause = FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001 - the loop must outlive any fault of one round
                log.warning("stream.failed", extra={"kbw": {"reason": f"{type(error).__name__}: {error}"}})
                stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def round(self, stop: Event, *, block_s: float = BLOCK_S) -> int:
        """Take what a dead consumer left, else what is new; how many entries."""
        self._keep_house()
        for waiting in [one for one in self._waiting.values() if one.due <= self.monotonic()]:
            self._try(waiting.entry)
        if len(self._waiting) >= MAX_WAITING:
            return 0
        left = self.streams.reclaim(self.name, idle_s=self.idle_s)
        entries = [left] if left else self.streams.read(self.name, count=BATCH, block_s=block_s)
        for entry in entries:
            if stop.is_set():
                break  # another consumer takes them over
            self._try(entry)
        return len(entries)

    def _keep_house(self) -> None:
        """Entries that wait are held: waiting costs them no delivery, and nobody else could do better."""
        now = self.monotonic()
        if self._waiting and now - self._held > min(HOLD_EVERY_S, self.idle_s / 3):
            self._held = now
            self.streams.hold(self.name, list(self._waiting))
        if now - self._tidied > TIDY_EVERY_S:
            self._tidied = now
            self.streams.tidy()

    def _try(self, entry: Entry) -> None:
        """Decide the entry, or set it aside for a while: one that cannot be decided must not hold up the others."""
        try:
            self.take(entry)
            self._waiting.pop(entry.entry_id, None)
        except (TransientError, StoreUnavailableError) as error:
            log.warning("stream.later", extra={"kbw": {"entry": entry.entry_id, "reason": str(error)}})
            known = self._waiting.get(entry.entry_id)
            pause = min(2 * known.pause, LONGEST_PAUSE_S) if known else FIRST_PAUSE_S
            self._waiting[entry.entry_id] = _Waiting(entry, self.monotonic() + pause, pause)
        except Exception as error:
            self._waiting.pop(entry.entry_id, None)  # a fault of ours: it comes back, and each time is counted
            fields = {"entry": entry.entry_id, "deliveries": entry.deliveries, "reason": type(error).__name__}
            log.exception("stream.crashed", extra={"kbw": fields})

    def take(self, entry: Entry) -> None:
        """Accept one entry or refuse it; acknowledged in the same step as what is recorded or told."""
        document: JsonObject | None = None
        try:
            document = self._document(entry)
            refuse_double_names(entry.fields[b"payload"])
            if entry.deliveries > self.max_deliveries:
                raise _given_up(entry)
            accepted = accept(
                document,
                source=f"stream:{entry.entry_id}",
                intake=self.intake,
                ack=self.streams.ack_of(entry.entry_id),
                traceparent=_header(entry),
            )
        except JobError as error:
            if self._told_again(entry, document):
                return
            if isinstance(error, TransientError):
                raise
            self.dead.bury(
                error, entry_id=entry.entry_id, content=_evidence(entry), document=document, header=_header(entry)
            )
            return
        task_id = accepted.record.task_id
        if accepted.kind == "conflict":
            self._tell_conflict(entry, document, task_id)
        elif accepted.record.state in OVER:  # accept has delivered the result once more
            self.streams.acknowledge(entry.entry_id)
        log.info(
            "accepted", extra={"kbw": {"task_id": task_id, "kind": accepted.kind, "source": f"stream:{entry.entry_id}"}}
        )

    def _told_again(self, entry: Entry, document: JsonObject | None) -> bool:
        """A job that is over and whose result file cannot be written (any more) is answered on the stream alone."""
        record = finished_job(document, self.intake, self.views)
        result = self.intake.folders.open(record.task_id).read(RESULT) if record else None
        if record is None or result is None:
            return False
        self.streams.acknowledge(entry.entry_id, result=result_fields(record.task_id, result))
        return True

    @staticmethod
    def _document(entry: Entry) -> JsonObject:
        content = entry.fields.get(b"payload")
        if content is None:
            raise PermanentError(
                Code.BAD_PAYLOAD,
                en="the entry has no field 'payload'; send: XADD kbw:jobs * payload <json>",
                zh="流消息缺少 payload 字段",
            )
        return read_document(content)

    def _tell_conflict(self, entry: Entry, document: JsonObject, task_id: str) -> None:
        error = conflict(task_id)
        self.refusals.refuse(
            error,
            content=entry.fields[b"payload"],
            path=f"stream:{entry.entry_id}",
            document=document,
            answered_elsewhere=True,
        )
        trace = sent_traceparent(document, _header(entry))
        self.dead.tell(error, entry_id=entry.entry_id, task_id=task_id, traceparent=trace)


def _header(entry: Entry) -> str:
    return entry.fields.get(b"traceparent", b"").decode("ascii", "replace")


def _evidence(entry: Entry) -> bytes:
    """What the sender wrote: the payload, else all fields."""
    payload = entry.fields.get(b"payload")
    if payload is not None:
        return payload
    return b"\n".join(name[:200] + b"=" + value[:MAX_PAYLOAD_BYTES] for name, value in entry.fields.items())


def _given_up(entry: Entry) -> PermanentError:
    return PermanentError(
        Code.INTERNAL,
        en=f"given up: handed out {entry.deliveries} times and never finished; the intake's logs say why",
        zh="任务多次处理均未完成，已停止；请联系管理员",
    )
