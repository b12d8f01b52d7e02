"""Whether an answer may go out (CONTRACT §4.5), and what remains of one that broke a rule; must not ask the model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from tasks.contract.answer import Answer, AnswerSource, UsedAttachment
from tasks.contract.evidence import Evidence, EvidencePage
from tasks.contract.payload import Payload
from tasks.contract.shape import Note
from tasks.errors import Code, PermanentError
from tasks.rules import insufficient
from tasks.rules.inline_scan import INVISIBLE
from tasks.rules.language import due_language, is_mainly_chinese
from tasks.rules.selection import resolve_path
from tasks.rules.sources import without_sections
from tasks.rules.wordings import ATTACHMENT_LABEL, CHINESE, Wording, wording_of

QUERY_REFERENCE = "query_reference"
MISSING_OPENING = "MISSING_OPENING"
MISSING_EVIDENCE_UNNAMED = "MISSING_EVIDENCE_UNNAMED"
UNLABELLED_SUPPLEMENT = "UNLABELLED_SUPPLEMENT"
SUPPLEMENT_NOT_ALLOWED = "SUPPLEMENT_NOT_ALLOWED"
WRONG_LANGUAGE = "WRONG_LANGUAGE"

_MAX_SHOWN = 5


@dataclass(frozen=True)
class Violation:
    """One broken rule. ``message`` is a Chinese sentence that tells the model what to mend."""

    code: str
    message: str


@dataclass(frozen=True)
class Settled:
    """What goes out. ``errors`` and ``notes`` say what was changed; ``pages`` are the evidence pages of ``sources``.

    ``foreign_sources``: cited pages outside the evidence that were dropped; any of them bars the QA page.
    """

    text: str
    knowledge_sufficient: bool
    sources: tuple[AnswerSource, ...] = ()
    pages: tuple[EvidencePage, ...] = ()
    used_attachments: tuple[UsedAttachment, ...] = ()
    foreign_sources: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass
class _Changes:
    errors: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


# ---------------------------------------------------------------- what the model has to mend


def violations(answer: Answer, evidence: Evidence, payload: Payload) -> list[Violation]:
    """Everything that the model has to mend in ``answer``, worst first; empty when it may go out as it is."""
    text = _body(answer)
    if not text:
        return [Violation(Code.EMPTY_ANSWER, "answer 没有正文：请写出完整回答（参考来源小节不算正文）。")]
    return [
        *_size(answer, evidence),
        *_source_violations(answer, evidence),
        *([] if is_sufficient(answer, evidence) else _insufficient_violations(answer, text, evidence, payload)),
        *_language(text, payload),
    ]


def is_sufficient(answer: Answer, evidence: Evidence) -> bool:
    """``knowledgeSufficient``, which is never true when no page was read."""
    return answer.knowledge_sufficient and bool(evidence.evidence_pages)


def evidence_page(path: str, evidence: Evidence) -> EvidencePage | None:
    """The evidence page that ``path`` names, in any spelling that ``rules.selection`` resolves."""
    pages = {unicodedata.normalize("NFC", page.path): page for page in evidence.evidence_pages}
    found, _ = resolve_path(path, pages.__contains__)
    return pages.get(found)


def _size(answer: Answer, evidence: Evidence) -> Iterator[Violation]:
    limit = evidence.analysis_limits.max_answer_chars
    if len(answer.answer) > limit:
        yield Violation(
            Code.ANSWER_TOO_LARGE, f"answer 有 {len(answer.answer)} 个字符，超过 {limit} 个的上限：请精简。"
        )


def _source_violations(answer: Answer, evidence: Evidence) -> Iterator[Violation]:
    if unknown := _foreign(answer, evidence):
        allowed = "、".join(page.path for page in evidence.evidence_pages) or "（无，sources 应为 []）"
        yield Violation(
            Code.UNKNOWN_SOURCE,
            f"sources 只能引用实际读取的证据页面，请去掉 {_listed(unknown)} 及依赖它们的内容；可引用：{allowed}。",
        )
    elif is_sufficient(answer, evidence) and not answer.sources:
        yield Violation(
            Code.SOURCES_REQUIRED,
            "knowledgeSufficient=true 时 sources 至少要列出一个证据页面；没有页面能支撑时请改为 false。",
        )


def _insufficient_violations(answer: Answer, text: str, evidence: Evidence, payload: Payload) -> Iterator[Violation]:
    wording = wording_of(due_language(payload.question))
    forced = "没有读取到任何证据页面，knowledgeSufficient 必须为 false；" if answer.knowledge_sufficient else ""
    if not insufficient.has_opening(text, wording):
        yield Violation(
            MISSING_OPENING, f"{forced}知识库证据不足时，正文第一行必须先写明“{wording.opening}”或等价的说法。"
        )
    if not insufficient.names_what_is_missing(text, wording):
        yield Violation(MISSING_EVIDENCE_UNNAMED, "开头之后必须说明知识库缺少哪些证据。")
    supplement = insufficient.find_supplement(text, wording, _names(evidence))
    if supplement and not payload.answer_policy.allow_non_kb_supplement_when_insufficient:
        yield Violation(
            SUPPLEMENT_NOT_ALLOWED, "本次不允许补充非知识库内容：请删除补充部分，只保留开头说明和缺少的证据。"
        )
    elif supplement and not supplement.labelled:
        yield Violation(
            UNLABELLED_SUPPLEMENT,
            "非知识库的补充内容必须放在单独一行的标注之下：“以下为非知识库结论”或“本轮参考附件推断”（可同时写）。",
        )


def _language(text: str, payload: Payload) -> Iterator[Violation]:
    if due_language(payload.question) == CHINESE and not is_mainly_chinese(text):
        yield Violation(WRONG_LANGUAGE, "用户没有要求其他语言，回答必须以中文为主（代码和专有名词可保留原文）。")


def _body(answer: Answer) -> str:
    return without_sections(INVISIBLE.sub("", answer.answer)).strip()


def _foreign(answer: Answer, evidence: Evidence) -> list[str]:
    return [source.path for source in answer.sources if evidence_page(source.path, evidence) is None]


def _names(evidence: Evidence) -> list[str]:
    """How an answer names the pages that were read."""
    return [name for page in evidence.evidence_pages for name in (page.path, f"《{page.title}》")]


def _listed(paths: list[str]) -> str:
    shown = [" ".join(INVISIBLE.sub("", path).split())[:120] or "（空路径）" for path in paths[:_MAX_SHOWN]]
    return "、".join(shown) + (f" 等 {len(paths)} 个" if len(paths) > _MAX_SHOWN else "")


# ---------------------------------------------------------------- what remains


def settle(answer: Answer, evidence: Evidence, payload: Payload) -> Settled:
    """What goes out of an answer that is not asked for again.

    Raises :class:`~tasks.errors.PermanentError` ``EMPTY_ANSWER``, ``ANSWER_TOO_LARGE``, and ``UNKNOWN_SOURCE`` or
    ``SOURCES_REQUIRED`` when a sufficient answer is left without any page to rest on.
    """
    _refuse(answer, evidence)
    changes = _Changes()
    sources, pages = _checked_sources(answer, evidence, changes)
    sufficient = is_sufficient(answer, evidence)
    text = answer.answer
    if not sufficient:
        if answer.knowledge_sufficient:
            changes.errors.append("没有读取到任何知识库页面，按“知识库证据不足”处理")
        text = _mended(text, evidence, payload, changes, has_sources=bool(sources))
    if violation := next(_language(_body(answer), payload), None):
        changes.errors.append(f"回答没有以中文为主（{violation.code}）")
    return Settled(
        text=text,
        knowledge_sufficient=sufficient,
        sources=sources,
        pages=pages,
        used_attachments=_used_attachments(answer, payload, changes),
        foreign_sources=tuple(_foreign(answer, evidence)),
        errors=tuple(changes.errors),
        notes=tuple(changes.notes),
    )


def _refuse(answer: Answer, evidence: Evidence) -> None:
    if not _body(answer):
        raise PermanentError(
            Code.EMPTY_ANSWER,
            en="the model's answer has no text; replay the job or ask again",
            zh="模型没有给出回答正文，请重新提问",
        )
    if too_large := next(_size(answer, evidence), None):
        raise PermanentError(
            Code.ANSWER_TOO_LARGE,
            en=f"field answer has {len(answer.answer)} characters, limit {evidence.analysis_limits.max_answer_chars}",
            zh=too_large.message,
        )
    if not is_sufficient(answer, evidence):
        return
    foreign = _foreign(answer, evidence)
    if len(foreign) < len(answer.sources):
        return
    if not foreign:
        raise PermanentError(
            Code.SOURCES_REQUIRED,
            en="knowledgeSufficient is true but sources is empty: no page supports the answer",
            zh="回答声称知识库足以支撑，但没有给出任何来源页面，请重新提问",
        )
    raise PermanentError(
        Code.UNKNOWN_SOURCE,
        en=f"none of the {len(foreign)} cited sources was read as evidence; sources may only name evidencePages",
        zh=f"回答引用的页面都没有作为证据读取过：{_listed(foreign)}，请重新提问",
    )


def _checked_sources(
    answer: Answer, evidence: Evidence, changes: _Changes
) -> tuple[tuple[AnswerSource, ...], tuple[EvidencePage, ...]]:
    """Each cited page once, all facts from the evidence; the snippet only if it stands in the page."""
    found: dict[str, AnswerSource] = {}
    pages: dict[str, EvidencePage] = {}
    for at, source in enumerate(answer.sources):
        page = evidence_page(source.path, evidence)
        if page is None:
            continue
        if page.path != source.path:
            changes.notes.append(
                Note(
                    code="PATH_NORMALIZED",
                    path=page.path,
                    field=f"sources[{at}].path",
                    message=f"来源路径按 {page.path} 处理",
                )
            )
        snippet = source.snippet
        if snippet.strip() and not _stands_in(snippet, page.content):
            message = f"来源 {page.path} 的引用片段在页面中找不到原文，已移除"
            changes.notes.append(
                Note(code="SNIPPET_REMOVED", path=page.path, field=f"sources[{at}].snippet", message=message)
            )
            changes.errors.append(message)
            snippet = ""
        if page.path not in found or (snippet and not found[page.path].snippet):
            found[page.path] = _from_evidence(page, snippet)
            pages[page.path] = page
    if foreign := _foreign(answer, evidence):
        changes.errors.append(f"回答引用了没有读取过的页面，已从来源中去掉：{_listed(foreign)}")
    return tuple(found.values()), tuple(pages.values())


def _from_evidence(page: EvidencePage, snippet: str) -> AnswerSource:
    return AnswerSource(
        path=page.path,
        title=page.title,
        type=page.type,
        snippet=snippet.strip(),
        source_ids=page.source_ids,
        source_traces=page.source_traces,
    )


def _stands_in(snippet: str, content: str) -> bool:
    return _dense(snippet) in _dense(content)


def _dense(text: str) -> str:
    return re.sub(r"\s+", "", unicodedata.normalize("NFC", text))


def _mended(text: str, evidence: Evidence, payload: Payload, changes: _Changes, *, has_sources: bool) -> str:
    """The form of CONTRACT §4.5 for an answer that the knowledge base cannot give."""
    wording = wording_of(due_language(payload.question))
    text = without_sections(text)
    named = insufficient.names_what_is_missing(text, wording)
    if not insufficient.has_opening(text, wording):
        changes.errors.append("知识库证据不足，但回答没有先说明这一点，已在开头补上说明")
        text = f"{wording.opening}\n\n{text.lstrip()}"
    if not named:
        changes.errors.append("回答没有说明知识库缺少哪些证据")
    return _with_lawful_supplement(text, wording, evidence, payload, changes, has_sources=has_sources)


def _with_lawful_supplement(
    text: str,
    wording: Wording,
    evidence: Evidence,
    payload: Payload,
    changes: _Changes,
    *,
    has_sources: bool,
) -> str:
    """A supplement stands under its label. Where the policy allows none it is cut, as far as it surely is one:

    it says so itself, or the answer has no source at all. Beside checked sources an unlabelled text may still rest on
    them, so it is labelled and not lost.
    """
    supplement = insufficient.find_supplement(text, wording, _names(evidence))
    if supplement is None:
        return text
    allowed = payload.answer_policy.allow_non_kb_supplement_when_insufficient
    if not allowed and (supplement.labelled or not has_sources):
        changes.errors.append("本次不允许补充非知识库内容，已删除回答中的补充部分")
        return insufficient.without_supplement(text, supplement, wording)
    if supplement.labelled:
        return text
    changes.errors.append("非知识库的补充内容没有标注，已在其前面补上标注")
    label = wording.label
    if payload.attachments:
        label += f"/{ATTACHMENT_LABEL}"
    return insufficient.labelled(text, supplement, label)


def _used_attachments(answer: Answer, payload: Payload, changes: _Changes) -> tuple[UsedAttachment, ...]:
    """Only attachments of this job, under the names that the backend gave them."""
    used: dict[str, UsedAttachment] = {}
    for at, item in enumerate(answer.used_attachments):
        real = next((ref for ref in payload.attachments if _is_same(item, ref.attachment_id, ref.file_name)), None)
        if real is None or item.role != QUERY_REFERENCE:
            reason = "不在本轮附件中" if real is None else f"role 只能是 {QUERY_REFERENCE}"
            changes.notes.append(
                Note(
                    code="ATTACHMENT_DROPPED",
                    field=f"usedAttachments[{at}]",
                    message=f"usedAttachments 第 {at + 1} 项{reason}，已去掉",
                )
            )
            continue
        attachment = UsedAttachment(attachment_id=real.attachment_id, file_name=real.file_name, role=QUERY_REFERENCE)
        used[f"{real.attachment_id}/{real.file_name}"] = attachment
    return tuple(used.values())


def _is_same(item: UsedAttachment, attachment_id: int | str | None, file_name: str) -> bool:
    """By id, which may be a number on one side and text on the other; by file name only without an id."""
    if item.attachment_id is None:
        return bool(item.file_name) and item.file_name == file_name
    return attachment_id is not None and str(item.attachment_id) == str(attachment_id)
