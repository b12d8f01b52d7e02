"""The result that the backend reads (CONTRACT §4.7): all fields always present."""

from __future__ import annotations

from pydantic import Field

from tasks.contract.answer import AnswerSource, UsedAttachment
from tasks.contract.shape import JsonObject, Shape


class Result(Shape):
    """Exactly one a job. ``timings`` are milliseconds a stage; ``errors`` are Chinese sentences."""

    success: bool
    task_id: str
    answer: str = ""
    sources: tuple[AnswerSource, ...] = ()
    created_qa_path: str = ""
    processed_sources: tuple[str, ...] = ()
    created_pages: tuple[JsonObject, ...] = ()
    updated_pages: tuple[JsonObject, ...] = ()
    archived_files: tuple[str, ...] = ()
    skipped_sources: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    commit_id: str = ""
    knowledge_sufficient: bool = False
    used_attachments: tuple[UsedAttachment, ...] = ()
    qa_evaluation: JsonObject = Field(default_factory=dict)
    error_code: str = ""
    retryable: bool = False
    timings: dict[str, int] = Field(default_factory=dict)
    degraded: tuple[JsonObject, ...] = ()

    def document_for(self, traceparent: str) -> JsonObject:
        """The document, with the sender's ``traceparent`` (W3C) when it named one: else the shape has no such field."""
        return self.document() | ({"traceparent": traceparent} if traceparent else {})


def is_result_of(task_id: str, document: object) -> bool:
    """Whether a JSON document is a result of ``task_id``, ours or of whoever answered before us (CONTRACT §3).

    A payload may hold a field ``success`` too; what asks a question is no result.
    """
    if not isinstance(document, dict) or "success" not in document or document.get("question"):
        return False
    return document.get("taskId") == task_id
