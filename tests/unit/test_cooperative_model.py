"""The willing model of tests and benches finds its way in our real prompts, which it does not know."""

from __future__ import annotations

import json
from typing import Any

from tasks.contract.context import Context, Conversation, KbView, Limits
from tasks.contract.evidence import Evidence, EvidencePage
from tasks.contract.pages import PageCard, PageFacts
from tasks.contract.payload import AnswerPolicy
from tasks.ports import ModelCall
from tasks.prompts.prompt import Prompt, answer_prompt, selection_prompt
from tasks.prompts.sections import answer_sections, selection_sections
from tests.cooperative_model import answer_from_pages
from tests.fakes_model import FakeModel

CONTEXT = Context(
    task_id="query-1-2",
    question="怎么发布？",
    conversation=Conversation(conversation_id="1", message_id="2"),
    kb=KbView(
        repo="team/kb",
        commit="0" * 40,
        catalog_page_count=3,
        ranked_catalog_pages=(
            PageFacts(path="concepts/词汇.md", title="词汇"),
            PageFacts(path="guide/发 布.md", title="发布"),
        ),
        starter_page_cards=(PageCard(path="guide/发 布.md", title="发布", content_preview="见 [别处](../other/x.md)"),),
        index_preview="- [别的](z/other.md)",
    ),
)


def ask(prompt: Prompt, schema_name: str) -> dict[str, Any]:
    model = FakeModel(answer_from_pages())
    call = ModelCall("", prompt.system, prompt.user, schema_name, {}, "query-1-2", 5.0)
    return dict(json.loads(model.complete(call).text))


def test_it_chooses_the_pages_that_have_cards_first() -> None:
    prompt = selection_prompt(selection_sections(CONTEXT), nonce="abcdef", limits=Limits())
    chosen = ask(prompt, "page_selection")
    assert [page["path"] for page in chosen["selectedPages"]] == ["guide/发 布.md", "concepts/词汇.md"]


def test_it_cites_only_evidence_pages_with_a_sentence_of_theirs() -> None:
    content = "# 发布\n\n见 [别处](../other/x.md)。\n\n发布前必须先通过全部检查，然后打标签再推送。\n"
    pages = (EvidencePage(path="guide/发 布.md", title="发布流程与回滚流程的一个长标题", content=content),)
    evidence = Evidence(task_id="query-1-2", question="怎么发布？", commit="0" * 40, evidence_pages=pages)
    sections = answer_sections(CONTEXT, evidence)
    said = ask(answer_prompt(sections, nonce="abcdef", limits=Limits(), policy=AnswerPolicy()), "kb_answer")
    assert [(source["path"], source["snippet"]) for source in said["sources"]] == [
        ("guide/发 布.md", "发布前必须先通过全部检查，然后打标签再推送。")
    ]
    assert said["knowledgeSufficient"] is True
    assert said["qa"]["write"] is True


def test_without_evidence_it_says_so() -> None:
    evidence = Evidence(task_id="query-1-2", question="怎么发布？", commit="0" * 40)
    sections = answer_sections(CONTEXT, evidence)
    said = ask(answer_prompt(sections, nonce="abcdef", limits=Limits(), policy=AnswerPolicy()), "kb_answer")
    assert said["sources"] == []
    assert "知识库内容无法回答这个问题" in said["answer"]
    assert said["qa"]["write"] is False
