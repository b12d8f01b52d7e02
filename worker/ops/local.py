"""``run`` and the file commands (CONTRACT §5): one process, no Redis, no Celery; the same stages and commit code."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tasks.accept import accept_event, as_kept, conflict, deliver_again, digest_of
from tasks.causes import os_cause
from tasks.contract import strict_json
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.payload import Payload, content_digest, read_payload
from tasks.contract.result import Result, is_result_of
from tasks.contract.shape import JsonObject, Shape
from tasks.contract.trace import fresh_traceparent, sent_traceparent
from tasks.errors import Code, JobError, PermanentError, TransientError
from tasks.pipeline import Pipeline, note, run_inline, timestamp
from tasks.ports import Ports, Record
from tasks.query import visible_in
from tasks.recovery import read_history, stands_at
from tasks.registry import pipeline_of
from tasks.rules.explain import explain
from tasks.rules.reply import read_answer, read_selection
from tasks.rules.reply_fault import ReplyFault
from tasks.stages import apply as applying
from tasks.stages import commit as committing
from tasks.stages import fetch as fetching
from tasks.stages import mounting
from tasks.stages import prepare as preparing
from tasks.stages.apply import TEAM_KB
from tasks.stages.job import EVENTS, PAYLOAD, RESULT, Job, failure_of, read_artefact
from tasks.stages.publish import result_of, result_of_failure
from worker.bootstrap import Workshop, workshop
from worker.intake.document import refuse_double_names
from worker.intake.refusal import payload_shared_dir
from worker.paths import write_atomic
from worker.settings import Settings

S = TypeVar("S", bound=Shape)


class AnsweredError(PermanentError):
    """The command cannot be carried out; ``result_file`` is where its error result lies, ``""`` when nowhere."""

    def __init__(self, error: JobError, result_file: str) -> None:
        super().__init__(error.code, en=error.en, zh=error.zh)
        self.result_file = result_file


@dataclass(frozen=True)
class Answered:
    """What a command came to: where its result lies, and what went wrong, for the person at the terminal."""

    result_file: str
    success: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Opened:
    """A payload file given by an operator: what is in it, and the workshop for its shared directory.

    ``document`` and ``payload`` are as a job's folder keeps them: without secrets.
    """

    content: bytes
    document: JsonObject
    payload: Payload
    shop: Workshop


def open_payload(path: Path, settings: Settings) -> Opened:
    """Read the payload; the operator's own path needs no root.

    Without ``OPENCLAW_SHARED_DIR`` the payload's ``sharedDir`` (relative to its folder) is the shared directory, else
    its folder. Raises ``BAD_PAYLOAD``; an error result is written to its ``resultFile`` when that may be.
    """
    content = read_file(path, "payload")
    document = _object(content)
    shop = workshop(settings, _shared_dir(path, document, settings))
    try:
        if document is not None:
            refuse_double_names(content)
        kept = as_kept(document, shop.mask.value) if document is not None else {}
        payload = read_payload(kept if document is not None else content)
    except JobError as error:
        raise refused(error, content, path, document, shop) from error
    return Opened(content, kept, payload, shop)


def refused(
    error: JobError,
    content: bytes,
    path: Path,
    document: JsonObject | None,
    shop: Workshop,
    first: Record | None = None,
) -> AnsweredError:
    """Report a payload that is not taken, and answer it where that may be; ``first`` is the job it conflicts with."""
    try:
        told = shop.refusals.refuse(
            error, content=content, path=str(path), document=document, asked_again=True, first=first
        )
    except TransientError:  # no shared directory to tell it in: the operator hears it anyway
        return AnsweredError(error, "")
    return AnsweredError(error, told.result_file)


def run(path: Path, settings: Settings) -> Answered:
    """The whole pipeline for one payload.

    A job that is over is answered with the bytes it has; one that ``run`` itself began and that failed is run again
    where it failed, for whoever mended the cause has nothing else to replay it with.
    """
    opened = open_payload(path, settings)
    payload, shop = opened.payload, opened.shop
    folder = shop.folders.open(payload.task_id)
    known = digest_of(folder.write_once(PAYLOAD, strict_json.dumps(opened.document)))
    if known is None:
        folder.write(PAYLOAD, strict_json.dumps(opened.document))
    elif known != content_digest(opened.document):
        raise refused(conflict(payload.task_id), opened.content, path, opened.document, shop)
    ports, pipeline = shop.ports(fresh_kb=True), pipeline_of(payload.skill)
    now = ports.clock.now()
    trace = read_history(folder).traceparent or sent_traceparent(opened.document)
    trace = trace or fresh_traceparent(ports.clock.token(16))
    deadline = ports.clock.monotonic() + payload.deadline_seconds
    job = Job(payload.task_id, folder, ports, deadline, traceparent=trace)
    over = _object(folder.read(RESULT) or b"")
    if not is_result_of(payload.task_id, over):  # nothing, or somebody's own file: it must not go out as our result
        folder.archive([RESULT], read_history(folder).generation)
        over = None
    rest = ""
    if over is not None and not _runs_again(job, pipeline, over, f"run:{path}"):
        deliver_again(payload, folder, shop.sink)
        rest = f"; the running system answered this job already: `kbw replay {payload.task_id}` runs it once more"
    else:
        if folder.read(EVENTS) is None:
            folder.append(EVENTS, accept_event(now, pipeline.first.name, f"run:{path}", trace))
        run_inline(pipeline, job, max_attempts=settings.job.max_attempts)
    result = _object(folder.read(RESULT) or b"") or {}
    told = _told_path(opened) or f"{folder.path}/{RESULT}"
    if result.get("success") is True:
        return Answered(told, success=True)
    cause = job.failure.en if job.failure else _told_before(result)
    return Answered(told, reason=f"{result.get('errorCode')}: {cause}{rest}")


def _told_before(result: JsonObject) -> str:
    """What an earlier error result means, and its sentences for the team member, marked as theirs."""
    errors = result.get("errors")
    quoted = " ".join(f"“{error}”" for error in (errors if isinstance(errors, list) else []))
    return explain(str(result.get("errorCode"))).en + (f"; the team was told {quoted}" if quoted else "")


def _runs_again(job: Job, pipeline: Pipeline, result: JsonObject, actor: str) -> bool:
    """Make ready a job that ``run`` began and that failed: a new generation, as in a replay. False: let it rest."""
    history = read_history(job.folder)
    if result.get("success") is True or not history.source.startswith("run:"):
        return False
    code = str(result.get("errorCode") or "")
    begin = pipeline.mends(stands_at(pipeline, job).name, code)
    anew = [step.writes for step in pipeline.steps[pipeline.steps.index(begin) :] if step.writes]
    job.generation = history.generation + 1
    note(job, None, "replay", stage=begin.name, attempt=0, actor=actor, reason=f"was failed {code}")
    job.folder.archive([*anew, RESULT], history.generation)
    return True


def prepare(path: Path, context_output: Path, settings: Settings) -> Context:
    """Write ``context.json`` for a payload."""
    return _file_command(path, settings, context_output, _prepare)


def fetch(path: Path, context: Path, selection: Path, evidence_output: Path, settings: Settings) -> Evidence:
    """Write ``evidence.json`` for a context and a selection, both as an agent or we wrote them."""

    def work(opened: Opened, ports: Ports) -> Evidence:
        payload = opened.payload
        chosen = _readable(lambda: read_selection(read_file(selection, "selection"), name=selection.name))
        return fetching.fetch(
            payload,
            _artefact(context, Context, payload),
            chosen,
            kb=ports.kb,
            repo=ports.resolve_repo(payload),
        )

    return _file_command(path, settings, evidence_output, work, context, selection)


def apply(
    path: Path, context: Path, evidence: Path, answer: Path, result_output: Path | None, settings: Settings
) -> Answered:
    """Check the answer, commit its QA page, write the result."""
    if result_output is not None:
        _keep_apart(result_output, path, context, evidence, answer)
    opened = open_payload(path, settings)
    payload, ports = opened.payload, opened.shop.ports(fresh_kb=True)
    reason = ""
    try:
        if result_output is None:
            ports.sink.check(payload)
        repo = ports.resolve_repo(payload)
        found = _artefact(context, Context, payload)
        outcome = applying.apply(
            payload,
            found,
            _without_secrets(_artefact(evidence, Evidence, payload), opened),
            _without_secrets(_readable(lambda: read_answer(read_file(answer, "answer"), name=answer.name)), opened),
            now=timestamp(ports.clock.now()),
            is_page=visible_in(ports.kb.at(repo, found.kb.commit)),
        )
        receipt = committing.commit([outcome], repo=repo, writer=ports.writer)[0]
        result = result_of(outcome, receipt, {})
    except JobError as error:
        reason = f"{error.code}: {error.en}"
        result = _failed(payload, error, context)
    body = _bytes_of(result, opened)
    if result_output is not None:
        _write(result_output, body)
        return Answered(str(result_output), result.success, reason)
    ports.sink.deliver(payload, payload.task_id, body)
    return Answered(_told_path(opened), result.success, reason)


def read_file(path: Path, what: str) -> bytes:
    """An operator's file. Raises ``BAD_PAYLOAD`` that names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PermanentError(
            Code.BAD_PAYLOAD, en=f"{what} {path}: {error.strerror}", zh=f"无法读取文件 {path.name}：{os_cause(error)}"
        ) from error


def _prepare(opened: Opened, ports: Ports) -> Context:
    repo = ports.resolve_repo(opened.payload)
    return preparing.prepare(
        opened.payload,
        repo=repo,
        snapshot=ports.kb.latest(repo, fresh=True),
        attachments=ports.attachments,
        limits=ports.limits,
        knowledge=mounting.gather(
            preparing.SKILL, opened.payload.question, ports.knowledge, seconds_left=opened.payload.deadline_seconds
        ),
    )


def _file_command(path: Path, settings: Settings, output: Path, work: Callable[[Opened, Ports], S], *read: Path) -> S:
    """Run one stage; on failure the error result goes to ``resultFile`` and no output file is written.

    ``read``: the files besides the payload that are read, the context first.
    """
    opened = open_payload(path, settings)
    ports = opened.shop.ports(fresh_kb=True)
    try:
        _keep_apart(output, path, *read)
        artefact = work(opened, ports)
        _write(output, strict_json.dumps(opened.shop.mask.value(artefact.document())))
    except JobError as error:
        body = _bytes_of(_failed(opened.payload, error, *read[:1]), opened)
        with suppress(JobError):  # it must not go there: what went wrong first is what the operator has to hear
            ports.sink.deliver(opened.payload, opened.payload.task_id, body)
        raise
    return artefact


def _failed(payload: Payload, error: JobError, context: Path | None = None) -> Result:
    """The error result. The knowledge base was read once there is a context of this job (CONTRACT §4.7)."""
    processed: tuple[str, ...] = ()
    if context is not None:
        with suppress(PermanentError):
            _artefact(context, Context, payload)
            processed = (TEAM_KB,)
    return result_of_failure(payload.task_id, failure_of(error), {}, processed)


def _bytes_of(result: Result, opened: Opened) -> bytes:
    return strict_json.dumps(opened.shop.mask.value(result.document_for(sent_traceparent(opened.document))))


def _readable(read: Callable[[], S]) -> S:
    try:
        return read()
    except ReplyFault as fault:
        raise fault.as_error() from fault


def _artefact(path: Path, shape: type[S], payload: Payload) -> S:
    return read_artefact(read_file(path, "file"), shape, payload.task_id, path.name)


def _without_secrets(artefact: S, opened: Opened) -> S:
    """As a job's folder would keep it: what is committed must hold no more than what is written to files."""
    return artefact.model_validate(opened.shop.mask.value(artefact.document()))


def _keep_apart(output: Path, *inputs: Path) -> None:
    """Refuse to write over what is read, however the path is spelt: a payload is the backend's own file."""
    if os.path.realpath(output) in {os.path.realpath(path) for path in inputs}:
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"{output} is an input of this command; name another output file",
            zh=f"输出文件 {output.name} 同时是本命令的输入，请换一个文件名",
        )


def _write(path: Path, body: bytes) -> None:
    try:
        write_atomic(path, body)
    except OSError as error:
        raise PermanentError(
            Code.RESULT_DIR_MISSING, en=f"{path}: {error.strerror}", zh=f"无法写入文件 {path.name}：{os_cause(error)}"
        ) from error


def _told_path(opened: Opened) -> str:
    named = opened.payload.result_file
    if not named:
        return ""
    theirs = opened.payload.shared_dir or opened.payload.platform.shared_dir
    return str(opened.shop.roots.rebase(named, theirs))


def _object(content: bytes) -> JsonObject | None:
    try:
        found = strict_json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _shared_dir(path: Path, document: JsonObject | None, settings: Settings) -> Path:
    if settings.shared.directory:
        return Path(settings.shared.directory).expanduser()
    named = payload_shared_dir(document)
    return path.absolute().parent / named if named and "\0" not in named else path.absolute().parent
