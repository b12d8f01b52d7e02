"""publish: exactly one result a job (CONTRACT §4.7), whatever happened before; must not change what was decided."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tasks.contract import strict_json
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.payload import Payload
from tasks.contract.result import Result
from tasks.contract.trace import given_by_sender
from tasks.errors import JobError, PermanentError, TransientError
from tasks.ports import Failure
from tasks.stages.apply import TEAM_KB
from tasks.stages.job import CONTEXT, RESULT, Job, failure_of

log = logging.getLogger("kbw.job")


def publish(job: Job, compose: Callable[[Job], Result] | None = None) -> None:
    """Write ``result.json`` once, then deliver those very bytes wherever this job was asked to.

    ``compose`` makes the result out of the job's artefacts; without it: that of a query.

    Raises ``RESULT_DIR_MISSING`` (transient: the job stays and is delivered later) and ``PATH_NOT_ALLOWED``.
    """
    body = job.folder.read(RESULT)
    if body is None:
        job.guard()
        result = (compose or _result)(job).document_for(given_by_sender(job.traceparent))
        body = job.folder.write_once(RESULT, strict_json.dumps(result))
    _deliver(job, body)
    fixed = job.folder.read(RESULT)
    if fixed and fixed != body:  # we slept through a replay, and what we have just put there is from before it
        _deliver(job, fixed)


def _result(job: Job) -> Result:
    if job.failure is None:
        try:
            return result_of(job.outcome, job.receipt, job.timings())
        except PermanentError as error:  # a lost or damaged artefact: the job still gets its one result
            job.failure = failure_of(error)
    processed = (TEAM_KB,) if job.holds(CONTEXT) else ()
    return result_of_failure(job.task_id, job.failure, job.timings(), processed)


def _deliver(job: Job, body: bytes) -> None:
    """To every place, whatever happens at one of them; then raise what has to be tried again, or what is for good."""
    payload = _addressed(job)
    later: JobError | None = None
    places = (payload.result_file, job.result_file or payload.result_file, *job.more_result_files)
    for path in dict.fromkeys(places):
        try:
            job.ports.sink.deliver(payload.model_copy(update={"result_file": path}), job.task_id, body)
        except TransientError as error:
            later = error
        except PermanentError as error:
            if path == payload.result_file:
                later = later or error
            else:  # only a repeat asked for it there: no reason to call the job failed
                fields = {"task_id": job.task_id, "code": error.code, "reason": error.en}
                log.warning("publish.refused", extra={"kbw": fields})
    if later:
        raise later


def _addressed(job: Job) -> Payload:
    """The payload, or what the record knows of it when its file is lost: the result still has to arrive."""
    try:
        return job.payload
    except PermanentError:
        known = job.result_file or None
        return Payload.model_construct(
            task_id=job.task_id, conversation_id="", message_id="", skill="", result_file=known
        )


def result_of(outcome: Outcome, receipt: Receipt | None, timings: Mapping[str, int]) -> Result:
    """The result of a job that has an answer."""
    receipt = receipt or Receipt(task_id=outcome.task_id)
    entry = (receipt.entry,) if receipt.path else ()
    return Result(
        success=True,
        task_id=outcome.task_id,
        answer=outcome.answer,
        sources=outcome.sources,
        created_qa_path=receipt.path,
        processed_sources=outcome.processed_sources,
        created_pages=entry if receipt.created else (),
        updated_pages=() if receipt.created else entry,
        skipped_sources=outcome.skipped_sources,
        errors=(*outcome.errors, *receipt.errors),
        commit_id=receipt.commit_id,
        knowledge_sufficient=outcome.knowledge_sufficient,
        used_attachments=outcome.used_attachments,
        qa_evaluation=outcome.qa_evaluation,
        timings=dict(timings),
        degraded=outcome.degraded,
    )


def result_of_failure(
    task_id: str, failure: Failure, timings: Mapping[str, int], processed: tuple[str, ...] = ()
) -> Result:
    """The result of a job that has none: what went wrong, and whether sending the question again may help."""
    return Result(
        success=False,
        task_id=task_id,
        processed_sources=processed,
        errors=(failure.zh,),
        error_code=failure.code,
        retryable=failure.retryable,
        timings=dict(timings),
    )
