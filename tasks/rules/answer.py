"""Whether an answer may go out (CONTRACT §4.5), and what remains of one that broke a rule; must not ask the model."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from tasks.contract.answer import Answer
from tasks.contract.evidence import Evidence
from tasks.contract.payload import Payload
from tasks.errors import Code


@dataclass(frozen=True)
class Violation:
    """One broken rule. ``message`` is a Chinese sentence that tells the model what to mend."""

    code: str
    message: str


def evidence_path(path: str, evidence: Evidence) -> str | None:
    """The evidence page that ``path`` means (``/a.md``, ``./a.md`` and ``a.md`` are one), else ``None``."""
    wanted = unicodedata.normalize("NFC", path).strip().replace("\\", "/")
    while wanted.startswith(("/", "./")):
        wanted = wanted.removeprefix("./").removeprefix("/")
    return next((page.path for page in evidence.evidence_pages if page.path == wanted), None)


def violations(answer: Answer, evidence: Evidence, payload: Payload) -> list[Violation]:  # noqa: ARG001 - policy next
    """Everything that the model has to mend in ``answer``, worst first; empty when it may go out as it is."""
    if not answer.answer.strip():
        return [Violation(Code.EMPTY_ANSWER, "answer 为空：请写出完整回答。")]
    found = []
    limit = evidence.analysis_limits.max_answer_chars
    if len(answer.answer) > limit:
        found.append(Violation(Code.ANSWER_TOO_LARGE, f"answer 超过 {limit} 个字符：请精简。"))
    unknown = [source.path for source in answer.sources if evidence_path(source.path, evidence) is None]
    if unknown:
        listed = "、".join(unknown)
        found.append(Violation(Code.UNKNOWN_SOURCE, f"sources 只能引用 evidencePages 中的页面，请去掉：{listed}。"))
    if answer.knowledge_sufficient and evidence.evidence_pages and not answer.sources:
        found.append(Violation(Code.SOURCES_REQUIRED, "knowledgeSufficient=true 时 sources 至少要有一个证据页面。"))
    return found
