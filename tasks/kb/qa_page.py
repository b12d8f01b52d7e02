"""A QA page as text and as catalog entry (CONTRACT §4.5); must not decide whether a page is written.

Everything that comes from a question or a model is data here: it can neither end the frontmatter, open a section of
its own beside ours, nor become HTML.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from tasks.contract import strict_json
from tasks.contract.answer import QaEvaluation
from tasks.contract.evidence import EvidencePage
from tasks.contract.outcome import QaPage
from tasks.contract.shape import JsonObject, Scalar
from tasks.kb import paths

GENERATED_BY = "kbw"
MAX_TITLE_CHARS = 80
MAX_KEYWORDS = 8

_SCORES = (
    ("reuse_value", "复用价值"),
    ("synthesis_depth", "综合深度"),
    ("evidence_quality", "证据质量"),
    ("stability", "稳定性"),
    ("actionability", "可操作性"),
)
_SCENARIO = re.compile(r"^ {0,3}#{1,6}[ \t].*适用场景", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
# What PyYAML refuses in a stream, or takes for a line break inside a quoted scalar.
_NOT_PLAIN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")

_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def build_qa_page(
    *,
    task_id: str,
    question: str,
    wanted_path: str,
    title: str,
    content: str,
    scenario: str,
    evaluation: QaEvaluation,
    evidence: Sequence[EvidencePage],
    now: str,
) -> QaPage:
    """The page for one answered question.

    ``title``: ``qa.title``, may be blank · ``content``: ``qa.content``, or the answer without its 参考来源 ·
    ``scenario``: where it applies, taken when ``content`` has no such section (blank: ``evaluation.reason``) ·
    ``evidence``: the cited pages · ``now``: UTC text as CONTRACT §1 writes it.
    """
    title, question, content, scenario = (str(strict_json.clean(text)) for text in (title, question, content, scenario))
    name = _one_line(title) or _one_line(question)[:MAX_TITLE_CHARS].strip()
    page_id = paths.qa_id(question)
    path = paths.qa_path(wanted_path, title, question, page_id)
    body = _body(name, content, question, evidence, scenario, evaluation, now)
    keywords = _keywords(evidence, f"{name} {question} {content}")
    facts: JsonObject = {
        "title": name,
        "type": "qa",
        "kbType": "qa",
        "projectIds": _united(page.project_ids for page in evidence),
    }
    digest = content_hash(body)
    frontmatter: JsonObject = {
        "id": page_id,
        **facts,
        "tags": ["qa"],
        "keywords": keywords,
        "createdAt": now,
        "updatedAt": now,
        "generatedBy": GENERATED_BY,
        "contentHash": digest,
        "sourceStatus": "active",
        "taskId": task_id,
        "sources": [_source(page) for page in evidence],
    }
    entry: JsonObject = {
        "path": path,
        **{name: facts[name] for name in ("title", "type", "kbType")},
        "sourceIds": _united(page.source_ids for page in evidence),
        "updatedAt": now,
        "keywords": keywords,
        "projectIds": facts["projectIds"],
        **_related(evidence),
        "contentHash": digest,
        "sourceStatus": "active",
        "id": page_id,
    }
    return QaPage(id=page_id, path=path, title=name, frontmatter=frontmatter, body=body, catalog_entry=entry)


def render(page: QaPage, replaced: Mapping[str, object] | None = None) -> str:
    """The page file. ``replaced``: the frontmatter of the page it takes the place of.

    Its ``createdAt`` and the fields that we do not write (a person's ``reviewedBy``) are kept.
    """
    kept = dict(replaced or {})
    fields = {**page.frontmatter, **{name: value for name, value in kept.items() if name not in page.frontmatter}}
    fields["createdAt"] = kept.get("createdAt") or page.frontmatter.get("createdAt")
    lines = "".join(f"{_key(name)}: {_yaml(value)}\n" for name, value in fields.items())
    return f"---\n{lines}---\n\n{page.body}"


def entry_at(page: QaPage, path: str) -> JsonObject:
    """The catalog entry of ``page`` when it is kept under ``path``."""
    return {**page.catalog_entry, "path": path}


def content_hash(body: str) -> str:
    """64 hex digits: sha256 over the body as every frontmatter reader sees it (LF, no white space around it)."""
    text = body.replace("\r\n", "\n").strip()
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


# ---------------------------------------------------------------- the body


def _body(
    title: str,
    content: str,
    question: str,
    evidence: Sequence[EvidencePage],
    scenario: str,
    evaluation: QaEvaluation,
    now: str,
) -> str:
    text = _closed(content.replace("\r\n", "\n").replace("\r", "\n").strip("\n").rstrip())
    text = _from_qa(text, evidence)
    parts = [text] if re.match(r" {0,3}# ", text) else [f"# {_inert(title)}", text]
    parts += ["## 问题", _quoted(question)]
    parts += ["## 证据页面", "\n".join(_evidence_line(page) for page in evidence) or "无"]
    if not _SCENARIO.search(text):
        parts += ["## 适用场景", _quoted(scenario.strip() or evaluation.reason) or "未说明"]
    parts += ["## 评估", _evaluation(evaluation), "## 更新时间", now]
    return str(strict_json.clean("\n\n".join(parts) + "\n")).replace("\x00", "\ufffd")


def _evaluation(evaluation: QaEvaluation) -> str:
    scores = "\n".join(f"- {label}：{getattr(evaluation, name)}" for name, label in _SCORES)
    reason = _one_line(evaluation.reason)
    return f"{scores}\n- 合计：{evaluation.total}/5" + (f"\n\n{_quoted(reason)}" if reason else "")


def _evidence_line(page: EvidencePage) -> str:
    return f"- [{_inert(page.title or page.path)}]({_target(page.path)})"


def _target(path: str) -> str:
    """A link that works from inside ``qa/``: readers resolve it against the page's own folder."""
    target = "../" + re.sub(r"[%#?]", lambda found: f"%{ord(found[0]):02X}", path)
    if any(char.isspace() or char in "()<>" for char in target):
        return "<" + re.sub(r"([<>\\])", r"\\\1", target) + ">"
    return target


def _from_qa(text: str, evidence: Sequence[EvidencePage]) -> str:
    """Links to cited pages, written from the repository's root, as they must stand inside ``qa/``."""
    for page in evidence:
        for written in (page.path, f"<{page.path}>"):
            text = text.replace(f"]({written})", f"]({_target(page.path)})")
    return text


def _quoted(text: str) -> str:
    """Foreign text shown exactly as it was written: a quote, and inside it a code block when it holds any markup."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip().split("\n")
    if len(lines) > 1 or re.search(r"[<>\[\]`*_|\\&~]|^[#=+-]", lines[0]):
        longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
        fence = "`" * max(3, longest + 1)
        lines = [f"{fence}text", *lines, fence]
    return "\n".join(f"> {line}".rstrip() for line in lines) if any(lines) else ""


def _inert(text: str) -> str:
    """One line in which no character is markup."""
    return re.sub(r"([\\`*_\[\]<>]|(?:^|(?<= ))#)", r"\\\1", _one_line(text))


def _closed(text: str) -> str:
    """``text`` with its last code block closed, so that it does not swallow what we write below it."""
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = "" if mark[1][0] == "`" and "`" in mark[2] else mark[1]
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


# ---------------------------------------------------------------- the metadata


def _yaml(value: object) -> str:
    """A value on one line of YAML: JSON is YAML's flow style, save for a few characters that must be escaped."""
    text = json.dumps(strict_json.clean(value), ensure_ascii=False, allow_nan=False)
    return _NOT_PLAIN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and name.lower() not in _YAML_WORDS else _yaml(name)


def _source(page: EvidencePage) -> JsonObject:
    return {
        "sourceType": "kb_page",
        "path": page.path,
        "title": page.title,
        "type": page.type,
        "sourceIds": list(page.source_ids),
    }


def _related(evidence: Sequence[EvidencePage]) -> JsonObject:
    """The cited pages, sorted into the catalog's four fields by their type."""
    fields: dict[str, list[str]] = {
        "relatedConcepts": [], "relatedResources": [], "relatedCodePages": [], "relatedPages": [],
    }  # fmt: skip
    for page in evidence:
        kind = page.type.lower()
        name = "relatedPages"
        if kind == "concept":
            name = "relatedConcepts"
        elif kind == "resource":
            name = "relatedResources"
        elif kind.startswith("code"):
            name = "relatedCodePages"
        fields[name].append(page.path)
    return {name: list(_united([found])) for name, found in fields.items()}


def _keywords(evidence: Sequence[EvidencePage], text: str) -> list[str]:
    """Keywords of the cited pages that the page itself speaks of; without any, the first of each cited page."""
    words = [clean for page in evidence for word in page.keywords if (clean := _one_line(word))]
    lowered = text.lower()
    spoken = [word for word in words if word.lower() in lowered]
    first = [clean for page in evidence for word in page.keywords[:1] if (clean := _one_line(word))]
    return [str(word) for word in _united([spoken or first])][:MAX_KEYWORDS]


def _united(groups: Iterable[Iterable[Scalar]]) -> list[Scalar]:
    return list(dict.fromkeys(item for group in groups for item in group))
