"""apply: the model's answer, checked and made safe, and the page to keep of it (CONTRACT §4.5); must not commit it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace

from tasks.contract.answer import Answer, QaEvaluation
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.outcome import Outcome, QaPage
from tasks.contract.payload import Payload
from tasks.contract.selection import ReadLevel
from tasks.contract.shape import JsonObject, Note
from tasks.errors import Code, PermanentError
from tasks.kb.paths import problem_with_qa_path
from tasks.kb.qa_page import MAX_TITLE_CHARS, build_qa_page
from tasks.rules import high_value
from tasks.rules.answer import Settled, settle
from tasks.rules.links import NO_LINKS, Links
from tasks.rules.safe_markdown import SafeText, make_safe, safe_line
from tasks.rules.sources import with_section, without_sections
from tasks.stages.fetch import refuse_foreign
from tasks.stages.mounting import degradations

TEAM_KB = "team-kb"
_MAX_ROUNDS = 4
_MAX_TITLE = 200
_MAX_ERROR = 500
_MAX_ERRORS = 20


def apply(
    payload: Payload,
    context: Context,
    evidence: Evidence,
    answer: Answer,
    *,
    now: str,
    is_page: Callable[[str], bool] | None = None,
    degraded: Sequence[JsonObject] = (),
) -> Outcome:
    """``outcome.json``: all that the result needs, except what the commit adds.

    ``now``: UTC text as CONTRACT §1 writes it · ``is_page``: whether a path is a visible page (without it, those that
    context and evidence name) · ``degraded``: what the result has to tell (the recorded driver, a source in trouble).
    Raises ``BAD_PAYLOAD`` for artefacts of another job, and what :func:`~tasks.rules.answer.settle` refuses.
    """
    refuse_foreign(payload, context.task_id, "context.json")
    refuse_foreign(payload, evidence.task_id, "evidence.json")
    links = _links(payload, context, evidence, is_page)
    settled = settle(answer, evidence, payload)
    body = _safe_body(settled.text, links)
    if not body.text.strip():
        raise PermanentError(
            Code.EMPTY_ANSWER,
            en="nothing readable is left of the model's answer; replay the job or ask again",
            zh="模型的回答没有可读的正文，请重新提问",
        )
    decision = high_value.decide(answer, settled, payload.answer_policy)
    page: QaPage | None = None
    page_notes: list[Note] = []
    if decision.write:
        limit = evidence.analysis_limits.max_answer_chars
        page, page_notes = _qa_page(payload, answer, settled, body, links, now, limit)
    dropped = _dropped_notes(body)
    rebuilt = _rebuilt_notes(answer)
    return Outcome(
        task_id=payload.task_id,
        answer=with_section(body.text, settled.sources),
        knowledge_sufficient=settled.knowledge_sufficient,
        sources=settled.sources,
        used_attachments=settled.used_attachments,
        qa_evaluation=high_value.evaluation_document(_safe_evaluation(answer.qa_evaluation)),
        qa_page=page,
        processed_sources=(TEAM_KB,),
        skipped_sources=decision.refusals,
        errors=(*settled.errors, *(note.message for note in (*dropped, *page_notes)), *_own_errors(answer)),
        degraded=(*degraded, *degradations(context.knowledge)),
        read_level=max(answer.read_level, ReadLevel.NORMALIZED, key=lambda level: level.rank)
        if rebuilt
        else answer.read_level,
        warnings=(*answer.warnings, *settled.notes, *rebuilt, *dropped, *page_notes),
    )


# ---------------------------------------------------------------- the text


def _links(payload: Payload, context: Context, evidence: Evidence, is_page: Callable[[str], bool] | None) -> Links:
    """Targets that a reader may be given: visible pages, and addresses out of evidence, traces and question."""
    kb = context.kb
    known = {page.path for page in (*kb.catalog_pages, *kb.ranked_catalog_pages, *kb.starter_page_cards)}
    known |= {page.path for page in evidence.evidence_pages}
    traces = [trace.url for page in evidence.evidence_pages for trace in page.source_traces if trace.url]
    contents = [page.content for page in evidence.evidence_pages]
    return Links(is_page=is_page or known.__contains__, seen=(*contents, *traces, payload.question))


def _safe_body(text: str, links: Links) -> SafeText:
    """Safe text without any 参考来源 section of the model's own.

    Each of the two can lay bare work for the other (``## 参考<b></b>来源``), so they take turns until nothing changes.
    """
    dropped_links = dropped_images = 0
    text = without_sections(text)
    for _ in range(_MAX_ROUNDS):
        safe = make_safe(text, links)
        dropped_links, dropped_images = dropped_links + safe.dropped_links, dropped_images + safe.dropped_images
        text = without_sections(safe.text)
        if text == safe.text:
            break
    else:
        text = make_safe(text, links).text  # never the last word to the one that does not look for harm
    return SafeText(text, dropped_links, dropped_images)


def _dropped_notes(body: SafeText) -> list[Note]:
    codes = ("LINK_TARGETS_DROPPED", "IMAGES_DROPPED")
    pairs = zip(codes, _sentences(body), strict=True)
    return [Note(code=code, field="answer", message=text) for code, text in pairs if text]


def _sentences(body: SafeText) -> tuple[str, str]:
    links, images = body.dropped_links, body.dropped_images
    return (
        f"回答中有 {links} 个链接的地址既不是知识库页面，也没有出现在证据、来源或问题中，已只保留文字" if links else "",
        f"回答中有 {images} 张图片，已只保留其文字说明" if images else "",
    )


def _rebuilt_notes(answer: Answer) -> list[Note]:
    """A section at the end is what the model was asked for; one with text after it had to be taken out."""
    if answer.answer.strip().startswith(without_sections(answer.answer).strip()):
        return []
    return [Note(code="REFERENCES_REBUILT", field="answer", message="正文中间的参考来源小节已移除，统一放在结尾")]


def _own_errors(answer: Answer) -> list[str]:
    """What the model itself reports, as harmless single lines."""
    cut = (text[:_MAX_ERROR] for text in answer.errors[:_MAX_ERRORS])
    return [line for text in cut if (line := safe_line(text, NO_LINKS).text)]


def _safe_evaluation(evaluation: QaEvaluation | None) -> QaEvaluation | None:
    return evaluation and evaluation.model_copy(update={"reason": safe_line(evaluation.reason, NO_LINKS).text})


# ---------------------------------------------------------------- the page to keep


def _qa_page(
    payload: Payload, answer: Answer, settled: Settled, body: SafeText, links: Links, now: str, limit: int
) -> tuple[QaPage, list[Note]]:
    """The page, as safe as the answer itself, and what of the model's proposal was not followed."""
    draft = answer.qa
    notes = []
    links = replace(links, in_qa=True)
    content = _safe_body(draft.content, links).text if len(draft.content) <= limit else ""
    if len(draft.content) > limit:
        message = f"qa.content 超过 {limit} 个字符，QA 页面改用回答正文"
        notes.append(Note(code="QA_CONTENT_TOO_LARGE", field="qa.content", message=message))
    question = " ".join(payload.question.split())[:MAX_TITLE_CHARS]
    page = build_qa_page(
        task_id=payload.task_id,
        question=payload.question,
        wanted_path=draft.path,
        title=safe_line(draft.title[:_MAX_TITLE], NO_LINKS).text or safe_line(question, NO_LINKS).text,
        content=content if content.strip() else make_safe(body.text, links).text,
        scenario="",
        evaluation=_safe_evaluation(answer.qa_evaluation) or QaEvaluation(),
        evidence=settled.pages,
        now=now,
    )
    wanted = unicodedata.normalize("NFC", draft.path.strip())
    if wanted and problem_with_qa_path(wanted):
        message = f"模型建议的 QA 路径不安全，未采用，改用 {page.path}"
        notes.append(Note(code="QA_PATH_IGNORED", field="qa.path", path=page.path, message=message))
    return page, notes
