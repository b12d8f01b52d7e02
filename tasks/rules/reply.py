"""Reading a model's reply, or a file that an agent wrote, as a contract shape; must not judge it against the evidence.

Any text gives a shape or a :class:`ReplyFault`. The shape says how far the reply had to be helped (``read_level``) and
what was changed (``warnings``). What it may cite and keep is decided elsewhere (``rules.selection``, ``rules.answer``).
"""

from __future__ import annotations

from typing import Any

from tasks.contract.answer import SCORES, Answer, AnswerSource, QaDraft, QaEvaluation, UsedAttachment
from tasks.contract.pages import SourceTrace
from tasks.contract.selection import PageSelection, ReadLevel, SelectedPage
from tasks.contract.shape import Shape
from tasks.rules import reply_fault as fault
from tasks.rules.reply_fault import ReplyFault
from tasks.rules.reply_fields import Fields, is_scalar
from tasks.rules.reply_text import JsonReply, decode, parse_reply, refuse_finish

__all__ = ["ReplyFault", "read_answer", "read_selection"]


def read_selection(reply: str | bytes, *, finish_reason: str = "", name: str = "page-selection.json") -> PageSelection:
    """The page selection in ``reply``. Paths stay as the model wrote them.

    ``finish_reason`` as the server said it; ``name`` is how messages call the reply. Raises :class:`ReplyFault`."""
    parsed = _parse(reply, finish_reason, name)
    fields = Fields(name)
    value = fields.json_value(parsed.value)
    if isinstance(value, list):
        fields.note("BARE_LIST", "selectedPages", "回复只是一个列表，按 selectedPages 处理")
        value = {"selectedPages": value}
    document = _object(fields, value, PageSelection, parsed.level)
    if "selectedPages" not in document:
        raise fault.misshapen(
            name, "selectedPages", None, zh="必须给出；不选页面时写 []", en="is required; [] is legal"
        )
    pages = fields.items(document["selectedPages"], "selectedPages")
    return PageSelection(
        rationale=fields.text(document.get("rationale", ""), "rationale"),
        selected_pages=tuple(_selected_page(fields, item, f"selectedPages[{at}]") for at, item in enumerate(pages)),
        unresolved_questions=fields.texts(document.get("unresolvedQuestions", []), "unresolvedQuestions"),
        read_level=_level(parsed, fields, document),
        warnings=tuple(fields.notes),
    )


def read_answer(reply: str | bytes, *, finish_reason: str = "", name: str = "answer.json") -> Answer:
    """The answer in ``reply``; its text may still be blank, too long or wrongly sourced. Raises :class:`ReplyFault`."""
    parsed = _parse(reply, finish_reason, name)
    fields = Fields(name)
    document = _object(fields, fields.json_value(parsed.value), Answer, parsed.level)
    text = document.get("answer")
    if not isinstance(text, str):
        raise fault.misshapen(name, "answer", text, zh="必须是文本", en="must be text")
    sources = fields.items(document.get("sources", []), "sources")
    attachments = fields.items(document.get("usedAttachments", []), "usedAttachments")
    found_sources = (_source(fields, item, f"sources[{at}]") for at, item in enumerate(sources))
    found_attachments = (_attachment(fields, item, f"usedAttachments[{at}]") for at, item in enumerate(attachments))
    return Answer(
        answer=text,
        knowledge_sufficient=_knowledge_sufficient(fields, document, parsed.level),
        sources=tuple(source for source in found_sources if source is not None),
        used_attachments=tuple(attachment for attachment in found_attachments if attachment is not None),
        high_value=fields.flag_or(document.get("highValue", False), "highValue", default=False),
        qa_evaluation=_evaluation(fields, document.get("qaEvaluation")),
        qa=_draft(fields, document.get("qa")),
        errors=fields.texts(document.get("errors", []), "errors"),
        read_level=_level(parsed, fields, document),
        warnings=tuple(fields.notes),
    )


# ---------------------------------------------------------------- the reply as a whole


def _parse(reply: str | bytes, finish_reason: str, name: str) -> JsonReply:
    refuse_finish(finish_reason, name)
    return parse_reply(decode(reply, name) if isinstance(reply, bytes) else reply, name)


def _object(fields: Fields, value: Any, shape: type[Shape], level: ReadLevel) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise fault.misshapen(fields.name, "(root)", value, zh="必须是一个 JSON 对象", en="must be a JSON object")
    document = fields.known_keys(value, shape, "")
    known = {info.alias or key for key, info in shape.model_fields.items()}
    strange = next((key for key in document if key not in known), None)
    if level is ReadLevel.GUESSED and strange is not None:  # text that fell out of its string and became a field
        raise fault.misshapen(
            fields.name,
            strange[:40],
            document[strange],
            zh="不是约定的字段，引号可能没有转义",
            en="is unknown; bad quotes?",
        )
    return document


def _level(parsed: JsonReply, fields: Fields, document: dict[str, Any]) -> ReadLevel:
    """The worst of: how the text was read, whether fields were changed, what our own artefact says of itself."""
    levels = [parsed.level, ReadLevel.NORMALIZED if fields.notes else ReadLevel.EXACT]
    stated = document.get("readLevel")
    if isinstance(stated, str) and stated in set(ReadLevel):
        levels.append(ReadLevel(stated))
    return max(levels, key=lambda level: level.rank)


# ---------------------------------------------------------------- its parts


def _selected_page(fields: Fields, item: Any, field: str) -> SelectedPage:
    if isinstance(item, str):
        fields.note("TEXT_AS_OBJECT", field, "文本已按页面路径处理")
        return SelectedPage(path=item)
    page = fields.known_keys(item, SelectedPage, field) if isinstance(item, dict) else {}
    path = page.get("path")
    if not isinstance(path, str):
        raise fault.misshapen(fields.name, f"{field}.path", path, zh="必须是页面路径", en="must be the path of a page")
    return SelectedPage(
        path=path,
        reason=fields.text(page.get("reason", ""), f"{field}.reason"),
        expected_use=fields.text(page.get("expectedUse", ""), f"{field}.expectedUse"),
    )


def _knowledge_sufficient(fields: Fields, document: dict[str, Any], level: ReadLevel) -> bool:
    field = "knowledgeSufficient"
    if field not in document and level is not ReadLevel.GUESSED:  # a guess without it may be half a reply
        fields.note("MISSING_FIELD", field, "没有给出，按 false 处理")
        return False
    value = document.get(field)
    meant = fields.flag(value, field) if field in document else None
    if meant is None:
        raise fault.misshapen(fields.name, field, value, zh="必须是 true 或 false", en="must be true or false")
    return meant


def _source(fields: Fields, item: Any, field: str) -> AnswerSource | None:
    if isinstance(item, str):
        fields.note("TEXT_AS_OBJECT", field, "文本已按来源路径处理")
        item = {"path": item}
    source = fields.known_keys(item, AnswerSource, field) if isinstance(item, dict) else {}
    path = source.get("path")
    if not isinstance(path, str) or not path.strip():
        fields.note("DROPPED", field, "没有页面路径的来源已略去")
        return None
    traces = fields.items(source.get("sourceTraces", []), f"{field}.sourceTraces")
    return AnswerSource(
        path=path,
        title=fields.text(source.get("title", ""), f"{field}.title"),
        type=fields.text(source.get("type", ""), f"{field}.type"),
        snippet=fields.text(source.get("snippet", ""), f"{field}.snippet"),
        source_ids=fields.ids(source.get("sourceIds", []), f"{field}.sourceIds"),
        source_traces=tuple(SourceTrace.model_validate(_scalars(trace)) for trace in traces if isinstance(trace, dict)),
    )


def _scalars(trace: dict[str, Any]) -> dict[str, Any]:
    """What can be part of a trace. The page's own traces replace the model's, so nothing is noted."""
    return {key: value for key, value in trace.items() if is_scalar(value)}


def _attachment(fields: Fields, item: Any, field: str) -> UsedAttachment | None:
    if is_scalar(item):
        fields.note("TEXT_AS_OBJECT", field, "已按附件编号或文件名处理")
        item = {"fileName": item} if isinstance(item, str) else {"attachmentId": item}
    if not isinstance(item, dict):
        fields.note("DROPPED", field, "无法识别的附件已略去")
        return None
    attachment = fields.known_keys(item, UsedAttachment, field)
    number = attachment.get("attachmentId")
    return UsedAttachment(
        attachment_id=number if is_scalar(number) else None,
        file_name=fields.text(attachment.get("fileName", ""), f"{field}.fileName"),
        role=fields.text(attachment.get("role", "query_reference"), f"{field}.role"),
    )


def _evaluation(fields: Fields, value: Any) -> QaEvaluation | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        fields.note("DROPPED", "qaEvaluation", "不是对象，按没有评估处理")
        return None
    given = fields.known_keys(value, QaEvaluation, "qaEvaluation")
    read: dict[str, Any] = dict(given)
    for name in SCORES:
        alias = QaEvaluation.model_fields[name].alias or name
        if alias in given:
            read[alias] = fields.score(given[alias], f"qaEvaluation.{alias}")
    for alias in ("attachmentDriven", "ephemeral"):
        if alias in given:
            read[alias] = fields.flag_or(given[alias], f"qaEvaluation.{alias}", default=True)
    read["reason"] = fields.text(given.get("reason", ""), "qaEvaluation.reason")
    return QaEvaluation.model_validate(read)


def _draft(fields: Fields, value: Any) -> QaDraft:
    if value is None:
        return QaDraft()
    if not isinstance(value, dict):
        write = fields.flag_or(value, "qa", default=False)
        return QaDraft(write=write)
    given = fields.known_keys(value, QaDraft, "qa")
    return QaDraft(
        write=fields.flag_or(given.get("write", False), "qa.write", default=False),
        path=fields.text(given.get("path", ""), "qa.path"),
        title=fields.text(given.get("title", ""), "qa.title"),
        content=fields.text(given.get("content", ""), "qa.content"),
    )
