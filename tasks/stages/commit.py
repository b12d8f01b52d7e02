"""commit: the QA pages of one or many jobs become one commit (CONTRACT §4.6); must not know how git does it."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.contract.outcome import Outcome, Receipt
from tasks.errors import PermanentError
from tasks.ports import Change, KbWriter, RepoRef


def commit(outcomes: Sequence[Outcome], *, repo: RepoRef, writer: KbWriter) -> list[Receipt]:
    """One receipt for each outcome, in order; an outcome without a page gets an empty one.

    What is refused for good does not fail the job: its answer goes out, the reason stands in the receipt's ``errors``.
    Raises ``TransientError`` when the whole batch may be tried again.
    """
    changes = [Change(outcome.task_id, outcome.qa_page) for outcome in outcomes if outcome.qa_page is not None]
    try:
        receipts = {receipt.task_id: receipt for receipt in writer.commit(repo, changes)} if changes else {}
    except PermanentError as error:
        reason = f"QA 页面没有写入知识库：{error.zh}"
        receipts = {change.task_id: Receipt(task_id=change.task_id, errors=(reason,)) for change in changes}
    return [receipts.get(outcome.task_id, Receipt(task_id=outcome.task_id)) for outcome in outcomes]
