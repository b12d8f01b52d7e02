"""``answer.json``: what the model answers, in the shape of seed 003 (CONTRACT §4.4)."""

from __future__ import annotations

from pydantic import Field

from tasks.contract.pages import SourceTrace
from tasks.contract.selection import ReadLevel
from tasks.contract.shape import Note, OpenShape, Scalar, Shape

SCORES = ("reuse_value", "synthesis_depth", "evidence_quality", "stability", "actionability")


class AnswerSource(Shape):
    """A page that the answer rests on. All but ``path`` and ``snippet`` are replaced by the evidence's own facts."""

    path: str
    title: str = ""
    type: str = ""
    snippet: str = ""
    source_ids: tuple[Scalar, ...] = ()
    source_traces: tuple[SourceTrace, ...] = ()


class UsedAttachment(Shape):
    """An attachment that helped to understand the question; never a stable source."""

    attachment_id: Scalar | None = None
    file_name: str = ""
    role: str = "query_reference"


class QaEvaluation(OpenShape):
    """Five scores of 0 or 1 and three judgements; a total that the model states is kept as text and never believed."""

    reuse_value: int = Field(default=0, ge=0, le=1)
    synthesis_depth: int = Field(default=0, ge=0, le=1)
    evidence_quality: int = Field(default=0, ge=0, le=1)
    stability: int = Field(default=0, ge=0, le=1)
    actionability: int = Field(default=0, ge=0, le=1)
    attachment_driven: bool = False
    ephemeral: bool = False
    reason: str = ""

    @property
    def total(self) -> int:
        """The sum of the five scores, 0-5."""
        return sum(int(getattr(self, name)) for name in SCORES)


class QaDraft(Shape):
    """The page that the model proposes to keep."""

    write: bool = False
    path: str = ""
    title: str = ""
    content: str = ""


class Answer(Shape):
    """The whole of ``answer.json``; ``qa_evaluation`` is ``None`` when the model gave none."""

    answer: str
    knowledge_sufficient: bool = False
    sources: tuple[AnswerSource, ...] = ()
    used_attachments: tuple[UsedAttachment, ...] = ()
    high_value: bool = False
    qa_evaluation: QaEvaluation | None = None
    qa: QaDraft = QaDraft()
    errors: tuple[str, ...] = ()
    read_level: ReadLevel = ReadLevel.EXACT
    warnings: tuple[Note, ...] = ()
