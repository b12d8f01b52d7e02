"""publish: exactly one result a job (CONTRACT §4.7), whatever happened before; must not change what was decided."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.contract.outcome import Outcome, Receipt
from tasks.contract.result import Result
from tasks.ports import Failure


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
