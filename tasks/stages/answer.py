"""answer: the model answers from the evidence (CONTRACT §4.4); must not mend what it says."""

from __future__ import annotations

from tasks.contract.answer import Answer
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence
from tasks.contract.payload import Payload
from tasks.ports import RawReply
from tasks.prompts.prompt import Prompt, Repair, answer_prompt, chars_of
from tasks.prompts.schemas import answer_schema
from tasks.prompts.sections import answer_sections
from tasks.rules.answer import violations
from tasks.rules.budget import MAX_PROMPT_CHARS
from tasks.rules.reply import read_answer
from tasks.stages.ask import Asker, Inquiry, fitted


def answer(
    payload: Payload,
    context: Context,
    evidence: Evidence,
    *,
    ask: Asker,
    max_prompt_chars: int = MAX_PROMPT_CHARS,
) -> Answer:
    """The model's answer as it wrote it, with what still violates a rule after two re-asks.

    Raises what ``ask`` raises.
    """
    knowledge = context.knowledge.at("answer")

    def prompt(nonce: str, repair: Repair | None) -> Prompt:
        return answer_prompt(
            fitted(answer_sections(context, evidence), max_prompt_chars - chars_of(knowledge), repair),
            nonce=nonce,
            limits=context.analysis_limits,
            policy=payload.answer_policy,
            knowledge=knowledge,
            repair=repair,
        )

    def read(raw: RawReply, name: str) -> Answer:
        return read_answer(raw.text, finish_reason=raw.finish_reason, name=name)

    inquiry = Inquiry(
        prompt,
        read,
        judge=lambda found: violations(found, evidence, payload),
        schema_name="kb_answer",
        schema=answer_schema(),
    )
    return ask(inquiry)
