"""``context.json``: all that the model may know when it chooses pages (CONTRACT §4.1)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.contract.knowledge import KnowledgeView
from tasks.contract.pages import PageCard, PageFacts
from tasks.contract.payload import AnswerPolicy, HistoryMessage, Team
from tasks.contract.shape import JsonObject, Note, OpenShape, Scalar, Shape

CONTEXT_SCHEMA = "kbw/query-context@1"


class Limits(OpenShape):
    """``analysisLimits``: every budget of the contract that the model or an artefact is held to; all are settings."""

    max_selected_pages: int = 6
    recommended_selected_pages: str = "1-4"
    max_evidence_page_chars: int = 8_000
    max_total_evidence_chars: int = 45_000
    max_attachment_chars_per_file: int = 8_000
    max_total_attachment_chars: int = 16_000
    max_history_messages: int = 6
    max_history_message_chars: int = 1_500
    max_catalog_pages: int = 350
    max_ranked_pages: int = 60
    max_starter_cards: int = 10
    max_starter_card_chars: int = 1_200
    max_index_preview_chars: int = 8_000
    max_list_items: int = 10
    max_answer_chars: int = 200_000
    max_source_traces: int = 10


class AttachmentFault(Shape):
    """Why an attachment gave no text: one typed code and a Chinese sentence that names the file."""

    code: str
    message: str


class AttachmentView(Shape):
    """What could be read of one attachment. ``attachment_id``, ``sha256`` and ``size`` are as verified or as given."""

    attachment_id: Scalar | None = None
    file_name: str = ""
    mime_type: str = ""
    sha256: str = ""
    size: int = 0
    temporary: bool = True
    text_preview: str = ""
    preview_available: bool = False
    preview_status: Literal["ok", "truncated", "unavailable"] = "unavailable"
    error: AttachmentFault | None = None
    metadata: JsonObject = Field(default_factory=dict)


class Conversation(Shape):
    """The conversation around the question: the last messages, each cut to its budget."""

    conversation_id: str
    message_id: str
    history: tuple[HistoryMessage, ...] = ()


class KbView(Shape):
    """The knowledge base at one commit, as far as the model sees it before it chooses."""

    repo: str
    commit: str
    catalog_page_count: int = 0
    index_preview: str = ""
    catalog_pages: tuple[PageFacts, ...] = ()
    ranked_catalog_pages: tuple[PageFacts, ...] = ()
    starter_page_cards: tuple[PageCard, ...] = ()
    evidence_pages: tuple[object, ...] = ()


class Context(Shape):
    """The whole of ``context.json``."""

    schema_id: str = Field(default=CONTEXT_SCHEMA, alias="schema")
    task_id: str
    question: str
    conversation: Conversation
    answer_policy: AnswerPolicy = AnswerPolicy()
    team: Team = Team()
    kb: KbView
    knowledge: KnowledgeView = KnowledgeView()
    attachments: tuple[AttachmentView, ...] = ()
    analysis_limits: Limits = Limits()
    instructions: JsonObject = Field(default_factory=dict)
    result_contract: JsonObject = Field(default_factory=dict)
    warnings: tuple[Note, ...] = ()
