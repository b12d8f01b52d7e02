"""``evidence.json``: the chosen pages, read at the pinned commit (CONTRACT §4.3)."""

from __future__ import annotations

from pydantic import Field

from tasks.contract.context import AttachmentView, Limits
from tasks.contract.pages import SourceTrace
from tasks.contract.selection import MissingPage, ReadLevel
from tasks.contract.shape import JsonObject, Note, Scalar, Shape

EVIDENCE_SCHEMA = "kbw/query-evidence@1"


class EvidencePage(Shape):
    """One page that was really read; only these may be cited."""

    path: str
    title: str
    type: str = ""
    keywords: tuple[str, ...] = ()
    project_ids: tuple[Scalar, ...] = ()
    source_ids: tuple[Scalar, ...] = ()
    source_traces: tuple[SourceTrace, ...] = ()
    updated_at: str = ""
    selection_reason: str = ""
    content: str = ""
    truncated: bool = False


class Evidence(Shape):
    """The whole of ``evidence.json``."""

    schema_id: str = Field(default=EVIDENCE_SCHEMA, alias="schema")
    task_id: str
    question: str
    commit: str
    selection_rationale: str = ""
    unresolved_questions: tuple[str, ...] = ()
    selected_page_count: int = 0
    evidence_pages: tuple[EvidencePage, ...] = ()
    missing_pages: tuple[MissingPage, ...] = ()
    attachments: tuple[AttachmentView, ...] = ()
    analysis_limits: Limits = Limits()
    instructions: JsonObject = Field(default_factory=dict)
    read_level: ReadLevel = ReadLevel.EXACT
    warnings: tuple[Note, ...] = ()
