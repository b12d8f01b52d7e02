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
