"""fetch: the chosen pages, read at the pinned commit (CONTRACT §4.3); must not add to or judge the model's choice."""

from __future__ import annotations

from tasks.contract.context import Context, Limits
from tasks.contract.evidence import Evidence, EvidencePage
from tasks.contract.payload import Payload
from tasks.contract.selection import MissingPage, PageSelection, SelectedPage
from tasks.contract.shape import Note
from tasks.errors import Code, PermanentError
from tasks.kb.page import read_page, source_traces
from tasks.ports import KbReader, RepoRef, Snapshot
from tasks.rules.budget import fit_evidence
from tasks.rules.selection import choose_pages


def fetch(payload: Payload, context: Context, selection: PageSelection, *, kb: KbReader, repo: RepoRef) -> Evidence:
    """``evidence.json``: each chosen page once, within the budgets; every other path with the reason it was not read.

    Raises ``BAD_PAYLOAD`` for a context of another job or repository and ``COMMIT_GONE`` when the pinned commit cannot
    be had any more; a page that cannot be read is an entry of ``missingPages``.
    """
    refuse_foreign(payload, context.task_id, "context.json")
    if context.kb.repo != str(repo):
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"context.json was prepared for repository {context.kb.repo!r}, not {str(repo)!r}; run prepare again",
            zh=f"context.json 属于知识库 {context.kb.repo}，与任务的 {repo} 不一致，请重新执行 prepare",
        )
    limits = context.analysis_limits
    snapshot = kb.at(repo, context.kb.commit)
    chosen = choose_pages(
        selection, visible=lambda path: snapshot.lookup(path) is not None, limit=limits.max_selected_pages
    )
    read = [(choice, _page(snapshot, choice, limits)) for choice in chosen.pages]
    pages = fit_evidence([page for _, page in read if page], limits)
    unread = tuple(MissingPage(path=choice.path, reason="unknown") for choice, page in read if page is None)
    return Evidence(
        task_id=payload.task_id,
        question=payload.question,
        commit=snapshot.commit,
        selection_rationale=selection.rationale,
        unresolved_questions=selection.unresolved_questions,
        selected_page_count=len(pages),
        evidence_pages=pages,
        missing_pages=(*chosen.missing, *unread),
        attachments=context.attachments,
        analysis_limits=limits,
        instructions=context.instructions,
        read_level=chosen.read_level,
        warnings=(*selection.warnings, *chosen.notes, *_page_notes(snapshot, pages)),
    )


def refuse_foreign(payload: Payload, task_id: str, name: str) -> None:
    """Artefacts of one job never serve another (CONTRACT §5)."""
    if task_id != payload.task_id:
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"{name} belongs to task {task_id!r}, not {payload.task_id!r}",
            zh=f"{name} 属于另一个任务，拒绝使用",
        )


def _page(snapshot: Snapshot, choice: SelectedPage, limits: Limits) -> EvidencePage | None:
    """The page without its frontmatter; ``None`` when its file is not there after all."""
    facts, text = snapshot.lookup(choice.path), snapshot.read(choice.path)
    if facts is None or text is None:
        return None
    page = read_page(text)
    return EvidencePage(
        path=facts.path,
        title=facts.title,
        type=facts.type,
        keywords=facts.keywords,
        project_ids=facts.project_ids,
        source_ids=facts.source_ids,
        source_traces=tuple(source_traces(page.metadata, limits.max_source_traces)),
        updated_at=facts.updated_at,
        selection_reason=choice.reason,
        content=page.body.strip("\r\n"),
    )


def _page_notes(snapshot: Snapshot, pages: tuple[EvidencePage, ...]) -> list[Note]:
    notes = snapshot.notes([page.path for page in pages])
    for page in pages:
        if page.truncated:
            message = f"页面 {page.path} 超过字符预算，只读取了前 {len(page.content)} 个字符"
            notes.append(Note(code="PAGE_TRUNCATED", path=page.path, message=message))
    return notes
