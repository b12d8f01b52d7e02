"""Tells a repeat of a job that is over; must not accept or deliver anything."""

from __future__ import annotations

from tasks.accept import OVER, Intake, as_kept
from tasks.contract.payload import content_digest
from tasks.contract.shape import JsonObject
from tasks.errors import JobError
from tasks.ports import JobViews, Record
from worker.intake.refusal import told_task_id


def finished_job(document: JsonObject | None, intake: Intake, views: JobViews) -> Record | None:
    """The record of the job that has this very content and is over, else ``None``.

    For a repeat whose ``resultFile`` cannot be written: the ways that answer by themselves still have an answer.
    """
    task_id = told_task_id(document)
    record = views.get(task_id) if task_id else None
    if document is None or record is None or record.state not in OVER or record.pruned:
        return None
    try:
        digest = content_digest(as_kept(document, intake.hide))
    except JobError:
        return None
    return record if digest == record.digest else None
