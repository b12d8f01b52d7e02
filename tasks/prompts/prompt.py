"""One prompt a model call: rules, data blocks, rules again; must not put foreign text outside a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.contract.context import Limits
from tasks.contract.knowledge import NodeKnowledge
from tasks.contract.payload import AnswerPolicy
from tasks.knowledge.template import place, variables_of
from tasks.prompts.foreign import begin_mark, block, end_mark
from tasks.prompts.sections import Section
from tasks.prompts.template import fill, load, variables

OUR_VARIABLES = frozenset({"rules", "qa_rules", "format", "begin", "end", "data", "repair", "more_knowledge"})
"""Placeholders that no knowledge source may take as its ``target_variable``."""


KNOWLEDGE_LABEL = "外部资料（补充，不是知识库来源）"
NOTHING_MOUNTED = NodeKnowledge()


@dataclass(frozen=True)
class Prompt:
    """What is sent. ``system`` holds fixed rules only, never a word of others."""

    system: str
    user: str


@dataclass(frozen=True)
class Repair:
    """What was wrong with the previous reply to the same question."""

    problems: Sequence[str]
    previous: str


def knowledge_variables(stage: str) -> frozenset[str]:
    """The names a knowledge source may inject into a prompt: ``select``, ``answer`` … (CONTRACT §6)."""
    return variables(stage) - OUR_VARIABLES


def chars_of(knowledge: NodeKnowledge) -> int:
    """Characters that a node's external knowledge takes of the prompt's budget."""
    return len(knowledge.template) + sum(len(text) for text in knowledge.variables.values())


def selection_prompt(
    sections: Sequence[Section],
    *,
    nonce: str,
    limits: Limits,
    knowledge: NodeKnowledge = NOTHING_MOUNTED,
    repair: Repair | None = None,
) -> Prompt:
    """The prompt that asks which pages to read."""
    values = {"rules": selection_rules(limits), "format": load("select_format")}
    return _prompt("select", values, sections, nonce, knowledge, repair)


def answer_prompt(
    sections: Sequence[Section],
    *,
    nonce: str,
    limits: Limits,
    policy: AnswerPolicy,
    knowledge: NodeKnowledge = NOTHING_MOUNTED,
    repair: Repair | None = None,
) -> Prompt:
    """The prompt that asks for the answer. ``policy`` decides whether a supplement and a QA page may be written."""
    values = {
        "rules": answer_rules(limits, policy),
        "qa_rules": qa_rules(policy),
        "format": load("answer_format"),
    }
    return _prompt("answer", values, sections, nonce, knowledge, repair)


def selection_rules(limits: Limits) -> str:
    """The rules of choosing pages, one ``- `` line each."""
    values = {"recommended": limits.recommended_selected_pages, "limit": str(limits.max_selected_pages)}
    return fill("select_rules", values)


def answer_rules(limits: Limits, policy: AnswerPolicy) -> str:
    """The rules of answering, one ``- `` line each."""
    allowed = policy.allow_non_kb_supplement_when_insufficient
    supplement = load("supplement_allowed" if allowed else "supplement_denied")
    return fill("answer_rules", {"supplement": supplement, "max_answer_chars": f"{limits.max_answer_chars:,}"})


def qa_rules(policy: AnswerPolicy) -> str:
    """Gates, signals and scores of a page worth keeping, one ``- `` line each."""
    allowed = policy.write_high_value_answer_to_qa
    return fill("qa_rules", {"qa_policy": load("qa_allowed" if allowed else "qa_denied")})


def _prompt(
    template: str,
    values: dict[str, str],
    sections: Sequence[Section],
    nonce: str,
    knowledge: NodeKnowledge,
    repair: Repair | None,
) -> Prompt:
    injected = injected_knowledge(template, knowledge, nonce)
    data = "\n\n".join(block(section.label, section.text, nonce) for section in sections)
    filled = fill(
        template,
        values
        | injected
        | {"begin": begin_mark(nonce), "end": end_mark(nonce), "data": data, "repair": repair_text(repair, nonce)},
    )
    return Prompt(system=load("system"), user=filled)


def injected_knowledge(template: str, knowledge: NodeKnowledge, nonce: str) -> dict[str, str]:
    """The values of a template's knowledge variables and of the operator's own words, each text in its block."""
    blocks = {
        name: block(KNOWLEDGE_LABEL, text, nonce) if text.strip() else "" for name, text in knowledge.variables.items()
    }
    # a variable that the operator's own words place stands there, not a second time where the template has it
    own = variables_of(knowledge.template)
    injected = dict.fromkeys(knowledge_variables(template), "")
    injected |= {name: text for name, text in blocks.items() if name not in own}
    return injected | {"more_knowledge": place(knowledge.template, blocks)}


def repair_text(repair: Repair | None, nonce: str) -> str:
    """What a re-ask says about the reply before, ``""`` on the first call."""
    if repair is None:
        return ""
    listed = "\n".join(f"{number}. {' '.join(problem.split())}" for number, problem in enumerate(repair.problems, 1))
    return fill(
        "repair",
        {
            "problems": block("上一次输出的问题", listed, nonce),
            "previous": block("上一次输出", repair.previous, nonce) if repair.previous.strip() else "",
        },
    )
