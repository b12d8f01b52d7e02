"""Small payloads, evidence and answers for the tests of what a reader gets."""

from __future__ import annotations

from typing import Any

from tasks.contract.answer import Answer
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence, EvidencePage
from tasks.contract.pages import SourceTrace
from tasks.contract.payload import Payload

TASK = "query-7-8"
NOW = "2026-11-30T08:00:00Z"
QUESTION = "主键自增导致写入热点，怎么打散？"

PAGE_A = EvidencePage(
    path="tech-notes/auto-random.md",
    title="AUTO_RANDOM",
    type="tech-note",
    keywords=("热点",),
    source_ids=(1,),
    source_traces=(
        SourceTrace(
            source_id=1,
            file_name="设计.docx",
            archived_path="source_files/local_folder/设计.docx",
            url="https://docs.example.com/auto-random",
            commit_hash="0a1b2c3",
        ),
    ),
    content="用 AUTO_RANDOM 可以把\n写入 分散到多个 Region。",
)
PAGE_B = EvidencePage(path="tech-notes/hot-spot.md", title="热点处理", type="tech-note", content="热点的定位办法。")


def payload(question: str = QUESTION, **policy: bool) -> Payload:
    """One attachment; all of the policy allowed unless it is said otherwise."""
    return Payload.model_validate(
        {
            "taskId": TASK,
            "conversationId": 7,
            "messageId": 8,
            "skill": "kb_query",
            "question": question,
            "attachments": [{"attachmentId": 1, "fileName": "慢日志.txt"}],
            "answerPolicy": {
                "allowNonKbSupplementWhenInsufficient": policy.get("supplement", True),
                "writeHighValueAnswerToQa": policy.get("qa", True),
            },
        }
    )


def evidence(*pages: EvidencePage, **fields: Any) -> Evidence:
    return Evidence(**{"task_id": TASK, "question": QUESTION, "commit": "0" * 40, "evidence_pages": pages, **fields})


def context(**fields: Any) -> Context:
    document = {
        "taskId": TASK,
        "question": QUESTION,
        "conversation": {"conversationId": "7", "messageId": "8"},
        "kb": {
            "repo": "team/kb",
            "commit": "0" * 40,
            "catalogPages": [{"path": "concepts/region.md", "title": "Region"}],
        },
        **fields,
    }
    return Context.model_validate(document)


def answer(text: str = "用 AUTO_RANDOM 打散写入。", **fields: Any) -> Answer:
    """A sufficient answer from page A that asks to be kept, and may be."""
    document = {
        "answer": text,
        "knowledgeSufficient": True,
        "sources": [{"path": PAGE_A.path}],
        "qaEvaluation": {
            "reuseValue": 1, "synthesisDepth": 1, "evidenceQuality": 1, "stability": 1, "actionability": 0,
            "reason": "会被反复问到",
        },
        "qa": {"write": True, "path": "qa/hotspot.md", "title": "写入热点如何打散"},
        **fields,
    }  # fmt: skip
    return Answer.model_validate(document)
