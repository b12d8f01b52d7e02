"""``instructions`` and ``resultContract`` of the artefacts: the rules for an agent that drives the file commands.

Must not say anything that the prompts do not say: both come from the same templates.
"""

from __future__ import annotations

from tasks.contract.context import Limits
from tasks.contract.payload import AnswerPolicy
from tasks.contract.result import Result
from tasks.contract.shape import JsonObject
from tasks.prompts.prompt import answer_rules, qa_rules, selection_rules
from tasks.prompts.template import PROMPT_VERSION, load


def context_instructions(policy: AnswerPolicy, limits: Limits) -> JsonObject:
    """``context.instructions`` (repeated in the evidence): how to write ``page-selection.json`` and ``answer.json``."""
    return {
        "promptVersion": PROMPT_VERSION,
        "principles": _lines(load("system")),
        "selectionRules": _lines(selection_rules(limits)),
        "selectionFormat": load("select_format"),
        "answerRules": _lines(answer_rules(limits, policy)),
        "qaRules": _lines(qa_rules(policy)),
        "answerFormat": load("answer_format"),
    }


def result_contract() -> JsonObject:
    """``context.resultContract``: the fields of the result, and what of it is decided by the program alone."""
    example = Result(success=True, task_id="").document()
    return {
        "fields": list(example),
        "writtenBy": "结果文件由程序写入 payload.resultFile；不要自己写结果文件，也不要自己提交知识库",
        "checkedByProgram": [
            "sources 必须是 evidencePages 中的页面，标题、类型和来源线索以证据页为准",
            "snippet 必须在证据页中出现，否则删除并记录",
            "结尾的“## 参考来源”按核对后的来源重写",
            "qa/ 页面只在全部门槛通过时写入，五项评分由程序相加",
        ],
        "finalReply": {"success": True, "resultFile": "<resultFile>"},
    }


def _lines(rules: str) -> list[str]:
    return [line.removeprefix("- ") for line in rules.splitlines() if line.strip()]
