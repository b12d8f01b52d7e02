"""prepare: what the model may know before it chooses pages (CONTRACT §4.1); must not judge what is relevant for it."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.contract.context import Context, Conversation, KbView, Limits
from tasks.contract.knowledge import KnowledgeView
from tasks.contract.pages import PageCard, PageFacts
from tasks.contract.payload import HistoryMessage, Payload
from tasks.contract.shape import JsonObject, Note
from tasks.errors import Code, PermanentError
from tasks.ports import AttachmentReader, RankedPage, RepoRef, Snapshot
from tasks.prompts import context_instructions, result_contract
from tasks.rules.budget import cut_history, cut_text

SKILL = "kb_query"
NOTHING_MOUNTED = KnowledgeView()


def prepare(
    payload: Payload,
    *,
    repo: RepoRef,
    snapshot: Snapshot,
    attachments: AttachmentReader,
    limits: Limits,
    knowledge: KnowledgeView = NOTHING_MOUNTED,
) -> Context:
    """``context.json``: conversation, knowledge base at one commit, attachments, limits and rules.

    Raises ``UNKNOWN_SKILL`` for a payload that is not ours; a file or a page that cannot be read is a note or an entry
    with an error, never a failed job.
    """
    check_skill(payload)
    history = cut_history(payload.conversation_history, limits)
    kb, notes = view(snapshot, str(repo), payload.question, limits, said_before(history))
    return Context(
        task_id=payload.task_id,
        question=payload.question,
        conversation=Conversation(
            conversation_id=payload.conversation_id,
            message_id=payload.message_id,
            history=tuple(history),
        ),
        answer_policy=payload.answer_policy,
        team=payload.team,
        kb=kb,
        knowledge=knowledge,
        attachments=tuple(attachments.read(payload.attachments, _shared_dir(payload), limits)),
        analysis_limits=limits,
        instructions=instructions(payload, limits),
        result_contract=result_contract(),
        warnings=(*payload.policy_notes(), *notes),
    )


def check_skill(payload: Payload) -> None:
    """Raises ``UNKNOWN_SKILL`` for a job that came here only because no pipeline serves its skill."""
    if payload.skill != SKILL:
        raise PermanentError(
            Code.UNKNOWN_SKILL,
            en=f"skill {payload.skill!r} is not served here; this worker serves {SKILL!r} and 'material_search'",
            zh=f"不支持的任务类型 skill={payload.skill}，本服务支持 {SKILL} 和 material_search",
        )


def view(
    snapshot: Snapshot, repo: str, question: str, limits: Limits, history: Sequence[str] = ()
) -> tuple[KbView, list[Note]]:
    """The knowledge base as the model sees it, and the warnings of the pages shown."""
    ranked = snapshot.rank(question, limits.max_ranked_pages, history, limits.max_starter_cards)
    listed = snapshot.listing(limits.max_catalog_pages, [page.facts.path for page in ranked])
    cards = [page for page in ranked if page.passage.strip()][: limits.max_starter_cards]
    kb = KbView(
        repo=repo,
        commit=snapshot.commit,
        catalog_page_count=snapshot.page_count,
        index_preview=snapshot.index_text(limits.max_index_preview_chars),
        catalog_pages=tuple(listed),
        ranked_catalog_pages=tuple(page.facts for page in ranked),
        starter_page_cards=tuple(card(page, limits) for page in cards),
    )
    return kb, snapshot.notes(_paths(listed))


def said_before(history: Sequence[HistoryMessage]) -> list[str]:
    """What earlier messages were about, the newest last: the titles of cited pages, and what people asked."""
    texts = []
    for message in history:
        cited = [str(source.get("title") or "") for source in message.sources if isinstance(source, dict)]
        texts.append(" ".join(cited) if message.role == "assistant" else message.content)
    return [text for text in texts if text.strip()]


def card(page: RankedPage, limits: Limits) -> PageCard:
    """A page with the passage that matches the question best."""
    preview = cut_text(page.passage, limits.max_starter_card_chars)[0]
    return PageCard(**page.facts.model_dump(), content_preview=preview)


def instructions(payload: Payload, limits: Limits) -> JsonObject:
    """The rules of both model stages, for an agent that drives the file commands itself."""
    return context_instructions(payload.answer_policy, limits)


def _paths(pages: Sequence[PageFacts]) -> list[str]:
    return [page.path for page in pages]


def _shared_dir(payload: Payload) -> str | None:
    return payload.shared_dir or payload.platform.shared_dir
