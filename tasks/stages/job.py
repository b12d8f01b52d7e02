"""A job as its stages see it: payload and artefacts out of the folder, typed; must not know leases or queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from pydantic import ValidationError

from tasks.contract import strict_json
from tasks.contract.answer import Answer
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.material import MaterialFound, MaterialOutcome, MaterialPlan
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.payload import Payload, read_payload
from tasks.contract.refusal import describe
from tasks.contract.selection import PageSelection
from tasks.contract.shape import JsonObject, Shape
from tasks.contract.strict_json import json_cause
from tasks.errors import Code, JobError, PermanentError
from tasks.ports import Failure, JobFolder, Ports, RawReply, RepoRef, Span
from tasks.stages.ask import Asker, as_it_came

S = TypeVar("S", bound=Shape)

PAYLOAD = "payload.json"
CONTEXT = "context.json"
SELECTION = "page-selection.json"
EVIDENCE = "evidence.json"
ANSWER = "answer.json"
OUTCOME = "outcome.json"
RECEIPT = "receipt.json"
MATERIAL_PLAN = "material-plan.json"
MATERIAL_FOUND = "material-found.json"
MATERIAL_OUTCOME = "material-outcome.json"
RESULT = "result.json"
EVENTS = "events.jsonl"

SHAPES: dict[str, type[Shape]] = {
    CONTEXT: Context,
    SELECTION: PageSelection,
    EVIDENCE: Evidence,
    ANSWER: Answer,
    OUTCOME: Outcome,
    RECEIPT: Receipt,
    MATERIAL_PLAN: MaterialPlan,
    MATERIAL_FOUND: MaterialFound,
    MATERIAL_OUTCOME: MaterialOutcome,
}


def _no_guard() -> None:
    return None


@dataclass
class Job:
    """One job at work.

    ``deadline`` is by the clock's monotonic time: a host's clock may be set at any moment. ``guard`` raises
    ``FencedError`` once the right to work on the job is lost, and is asked before every effect. ``failure`` is set when
    the job goes to publish without an outcome. ``result_file`` is what the record knows of it, should the payload be
    lost; ``more_result_files`` were named by repeats of the payload: the same bytes go there too. ``accepted``: when,
    in seconds since the epoch, if it is known.
    """

    task_id: str
    folder: JobFolder
    ports: Ports
    deadline: float
    generation: int = 0
    failure: Failure | None = None
    result_file: str = ""
    more_result_files: tuple[str, ...] = ()
    traceparent: str = ""
    accepted: float = 0.0
    guard: Callable[[], None] = _no_guard
    span: Span | None = None
    heard: list[RawReply] = field(default_factory=list)
    """Of the attempt at work: its span, and what the model replied."""
    _known: dict[str, tuple[bytes, Shape]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def payload(self) -> Payload:
        """What the backend sent."""
        data = self.folder.read(PAYLOAD)
        if data is None:
            raise PermanentError(
                Code.INTERNAL, en=f"{self.folder.path}/{PAYLOAD} is missing", zh="任务文件丢失，请重新提交这个问题"
            )
        return read_payload(data)

    @cached_property
    def repo(self) -> RepoRef:
        """The repository this job reads and writes."""
        return self.ports.resolve_repo(self.payload)

    @property
    def context(self) -> Context:
        """Artefact of prepare."""
        return self._artefact(CONTEXT, Context)

    @property
    def selection(self) -> PageSelection:
        """Artefact of select."""
        return self._artefact(SELECTION, PageSelection)

    @property
    def evidence(self) -> Evidence:
        """Artefact of fetch."""
        return self._artefact(EVIDENCE, Evidence)

    @property
    def answer(self) -> Answer:
        """Artefact of answer."""
        return self._artefact(ANSWER, Answer)

    @property
    def outcome(self) -> Outcome:
        """Artefact of apply."""
        return self._artefact(OUTCOME, Outcome)

    @property
    def receipt(self) -> Receipt | None:
        """Artefact of commit; ``None`` when there was nothing to write."""
        return self._artefact(RECEIPT, Receipt) if self.holds(RECEIPT) else None

    def asker(self, stage: str, shown: Callable[[str], str] = as_it_came) -> Asker:
        """This job's way to the model at one of its stages; ``shown`` says what of a raw reply may be kept."""
        return Asker(
            stage=stage,
            task_id=self.task_id,
            question=self.payload.question,
            model=self.ports.model,
            folder=self.folder,
            clock=self.ports.clock,
            deadline=self.deadline,
            generation=self.generation,
            timeout_s=self.ports.model_timeout_s,
            session_mode=self.ports.session_mode,
            traceparent=self.span.traceparent if self.span else self.traceparent,
            guard=lambda: self.guard(),
            heard=self.heard.append,
            shown=shown,
        )

    @property
    def degraded(self) -> list[JsonObject]:
        """What the result has to tell about its origin: replies that a person wrote beforehand are no model's."""
        if self.ports.model.name != "recorded":
            return []
        return [{"stage": stage, "source": "model", "status": "RECORDED"} for stage in ("select", "answer")]

    @property
    def material_plan(self) -> MaterialPlan:
        """Artefact of plan."""
        return self._artefact(MATERIAL_PLAN, MaterialPlan)

    @property
    def material_found(self) -> MaterialFound:
        """Artefact of find."""
        return self._artefact(MATERIAL_FOUND, MaterialFound)

    @property
    def material_outcome(self) -> MaterialOutcome:
        """Artefact of render."""
        return self._artefact(MATERIAL_OUTCOME, MaterialOutcome)

    @property
    def seconds_left(self) -> float:
        """Until the deadline; not below 0."""
        return max(0.0, self.deadline - self.ports.clock.monotonic())

    def holds(self, name: str) -> bool:
        """Whether a valid artefact is there: then its stage is passed over."""
        data = self.folder.read(name)
        if data is None:
            return False
        try:
            self._parsed(name, data, SHAPES[name])
        except PermanentError:
            return False
        return True

    def save(self, name: str, artefact: Shape) -> None:
        """Write the artefact of a stage."""
        self.folder.write(name, strict_json.dumps(artefact.document()))

    def timings(self) -> dict[str, int]:
        """Milliseconds of each stage that ended, the latest attempt of each, out of the job's own journal."""
        found: dict[str, int] = {}
        for line in (self.folder.read(EVENTS) or b"").splitlines():
            try:
                event = strict_json.loads(line)
            except ValueError:
                continue  # a torn line of a killed writer
            if isinstance(event, dict) and event.get("event") == "checkpoint" and isinstance(event.get("ms"), int):
                found[str(event.get("stage"))] = event["ms"]
        return found

    def _artefact(self, name: str, shape: type[S]) -> S:
        data = self.folder.read(name)
        if data is None:
            raise PermanentError(
                Code.INTERNAL,
                en=f"{self.folder.path}/{name} is missing; replay the job",
                zh=f"中间文件 {name} 丢失，需要重放任务",
            )
        return self._parsed(name, data, shape)

    def _parsed(self, name: str, data: bytes, shape: type[S]) -> S:
        """The artefact in these bytes; parsed once as long as they stay the same (a context takes milliseconds)."""
        known = self._known.get(name)
        if known is None or known[0] != data:
            known = self._known[name] = (data, read_artefact(data, shape, self.task_id, name))
        return cast("S", known[1])


def failure_of(error: JobError) -> Failure:
    """What the record and the result keep of an error. A job that ran out of time may be sent again (CONTRACT §2)."""
    return Failure(error.code, error.en, error.zh, retryable=error.retryable or error.code == Code.DEADLINE)


def read_artefact(data: bytes, shape: type[S], task_id: str, name: str) -> S:
    """An artefact out of a file's bytes.

    Raises ``BAD_PAYLOAD`` when it is no such document or belongs to another job.
    """
    try:
        document = strict_json.loads(data)
        artefact = shape.model_validate(document)
    except ValidationError as error:
        en, zh = describe(error)
        raise PermanentError(Code.BAD_PAYLOAD, en=f"{name}: {en}", zh=f"{name} 不合要求：{zh}") from error
    except (ValueError, RecursionError) as error:
        raise PermanentError(
            Code.BAD_PAYLOAD, en=f"{name} is not valid JSON: {error}", zh=f"{name} 不是合法的 JSON：{json_cause(error)}"
        ) from error
    owner = document.get("taskId", task_id) if isinstance(document, dict) else task_id
    if owner != task_id:
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"{name} belongs to task {owner!r}, not {task_id!r}",
            zh=f"{name} 属于另一个任务，拒绝使用",
        )
    return artefact
