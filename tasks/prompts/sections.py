"""What stands in a prompt as data, section by section, ranked for when space is short; must not cut anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.contract.context import AttachmentView, Context
from tasks.contract.evidence import Evidence, EvidencePage
from tasks.contract.pages import PageCard, PageFacts
from tasks.contract.payload import HistoryMessage, Team

_STATE = {"ok": "完整", "truncated": "已截断", "unavailable": "无法读取"}


@dataclass(frozen=True)
class Section:
    """One data block. ``rank`` 0 is served first when the prompt's budget is short."""

    label: str
    text: str
    rank: int = 0


def selection_sections(context: Context) -> list[Section]:
    """All that the model may know when it chooses pages; empty sections are left out."""
    kb = context.kb
    ranked = {page.path for page in kb.ranked_catalog_pages}
    rest = [page for page in kb.catalog_pages if page.path not in ranked]
    return _filled(
        [
            *_asked(context),
            Section("按与问题的相关程度排序的页面（每行一个 JSON）", _page_lines(kb.ranked_catalog_pages), 2),
            Section("探索卡片 starterPageCards（不是证据）", _cards(kb.starter_page_cards), 3),
            Section(f"目录中的其他页面（知识库共 {kb.catalog_page_count} 页，每行一个 JSON）", _page_lines(rest), 4),
            Section("索引 index.md 的开头", kb.index_preview, 5),
            Section("问题", context.question),
        ]
    )


def answer_sections(context: Context, evidence: Evidence) -> list[Section]:
    """All that the model may know when it answers. Of the knowledge base only the evidence pages: cards are none."""
    pages = evidence.evidence_pages
    return _filled(
        [
            *_asked(context),
            Section("选择页面时的思路", _selection_thoughts(evidence), 2),
            *(
                Section(f"证据页 {number}/{len(pages)}{'（已截断）' if page.truncated else ''}", _evidence(page))
                for number, page in enumerate(pages, 1)
            ),
            Section("证据页数量", "没有读取到任何证据页。" if not pages else f"共 {len(pages)} 页。"),
            Section("问题", context.question),
        ]
    )


def _filled(sections: Iterable[Section]) -> list[Section]:
    return [section for section in sections if section.text.strip()]


def _asked(context: Context) -> list[Section]:
    return [
        Section("团队", _team(context.team), 1),
        Section("历史对话（从早到晚，每行一个 JSON）", _history(context.conversation.history), 1),
        *(
            Section(
                f"本轮参考附件 {number}/{len(context.attachments)}（{_STATE[view.preview_status]}，不是知识库来源）",
                _attachment(view),
                1,
            )
            for number, view in enumerate(context.attachments, 1)
        ),
    ]


def _team(team: Team) -> str:
    given = {"name": team.name, "researchDirection": team.research_direction}
    return "\n".join(f"{key}: {value}" for key, value in given.items() if value)


def _history(messages: Sequence[HistoryMessage]) -> str:
    """A role that is neither ``user`` nor ``assistant`` counts as ``user``: nobody gets to speak as the system.

    One JSON object a line, so that a message cannot pose as another one.
    """
    return "\n".join(
        _json({"role": "assistant" if message.role == "assistant" else "user", "content": message.content})
        for message in messages
        if message.content.strip()
    )


def _attachment(view: AttachmentView) -> str:
    head: dict[str, object] = {"attachmentId": view.attachment_id, "fileName": view.file_name}
    fault = f"无法读取：{view.error.message}" if view.error else ""
    return "\n".join(part for part in (_json(head), fault, view.text_preview) if part)


def _page_lines(pages: Sequence[PageFacts]) -> str:
    return "\n".join(_json(_facts(page)) for page in pages)


def _facts(page: PageFacts) -> dict[str, object]:
    facts = {"path": page.path, "title": page.title, "type": page.type, "keywords": list(page.keywords)}
    return {key: value for key, value in facts.items() if value}


def _cards(cards: Sequence[PageCard]) -> str:
    return "\n\n".join(f"{_json(_facts(card))}\n{card.content_preview}" for card in cards)


def _selection_thoughts(evidence: Evidence) -> str:
    missing = [f"未读取：{page.path}（{page.reason}）" for page in evidence.missing_pages]
    questions = [f"待确认：{question}" for question in evidence.unresolved_questions]
    return "\n".join(line for line in (evidence.selection_rationale, *questions, *missing) if line)


def _evidence(page: EvidencePage) -> str:
    traces = [
        {key: value for key, value in trace.document().items() if value not in (None, "")}
        for trace in page.source_traces
    ]
    head: dict[str, object] = {
        "path": page.path,
        "title": page.title,
        "type": page.type,
        "updatedAt": page.updated_at,
        "sources": traces,
    }
    return f"{_json({key: value for key, value in head.items() if value})}\n正文：\n{page.content}"


def _json(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)
