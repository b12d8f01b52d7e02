"""``outcome.json`` and ``receipt.json``: the checked answer, the page to write, and what the commit did."""

from __future__ import annotations

from pydantic import Field

from tasks.contract.answer import AnswerSource, UsedAttachment
from tasks.contract.selection import ReadLevel
from tasks.contract.shape import JsonObject, Note, Shape


class QaPage(Shape):
    """A QA page to commit. ``path`` is the wanted name: the committer adds a suffix when another ``id`` holds it.

    ``frontmatter`` holds the fields of CONTRACT §4.5 except those that only the commit knows (``createdAt`` of a page
    that exists); ``body`` is the text below it; ``catalog_entry`` is what ``catalog.json`` gets.
    """

    id: str
    path: str
    title: str
    frontmatter: JsonObject
    body: str
    catalog_entry: JsonObject


class Outcome(Shape):
    """The whole of ``outcome.json``: all that the result needs, except what the commit adds."""

    task_id: str
    answer: str
    knowledge_sufficient: bool
    sources: tuple[AnswerSource, ...] = ()
    used_attachments: tuple[UsedAttachment, ...] = ()
    qa_evaluation: JsonObject = Field(default_factory=dict)
    qa_page: QaPage | None = None
    processed_sources: tuple[str, ...] = ()
    skipped_sources: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    degraded: tuple[JsonObject, ...] = ()
    read_level: ReadLevel = ReadLevel.EXACT
    warnings: tuple[Note, ...] = ()


class Receipt(Shape):
    """The whole of ``receipt.json``: what the commit did for this job; empty fields when there was nothing to write."""

    task_id: str
    commit_id: str = ""
    path: str = ""
    created: bool = False
    entry: JsonObject = Field(default_factory=dict)
    errors: tuple[str, ...] = ()
