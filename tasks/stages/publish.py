"""publish: exactly one result a job (CONTRACT §4.7), whatever happened before; must not change what was decided."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.contract import strict_json
from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.result import Result
from tasks.ports import Failure
from tasks.stages.job import RESULT, Job


def publish(job: Job) -> None:
    """Write ``result.json`` once, then deliver those very bytes wherever this job was asked to.

    Raises ``RESULT_DIR_MISSING`` (transient: the job stays and is delivered later) and ``PATH_NOT_ALLOWED``.
    """
    body = job.folder.read(RESULT)
    if body is None:
        job.guard()
        body = job.folder.write_once(RESULT, strict_json.dumps(_result(job).document()))
    payload = job.payload
    for path in (payload.result_file, *job.more_result_files):
        job.ports.sink.deliver(payload.model_copy(update={"result_file": path}), job.task_id, body)


def _result(job: Job) -> Result:
    if job.failure is not None:
        return result_of_failure(job.task_id, job.failure, job.timings())
    return result_of(job.outcome, job.receipt, job.timings())


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


def result_of_failure(task_id: str, failure: Failure, timings: Mapping[str, int]) -> Result:
    """The result of a job that has none: what went wrong, and whether sending the question again may help."""
    return Result(
        success=False,
        task_id=task_id,
        errors=(failure.zh,),
        error_code=failure.code,
        retryable=failure.retryable,
        timings=dict(timings),
    )
