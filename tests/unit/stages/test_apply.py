"""What leaves the worker: grounded, safe, with its sources; and the page that is kept of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from tasks.contract import strict_json
from tasks.contract.answer import Answer
from tasks.contract.context import Context
from tasks.contract.evidence import Evidence, EvidencePage
from tasks.contract.outcome import Outcome
from tasks.contract.payload import Payload, read_payload
from tasks.contract.selection import ReadLevel
from tasks.errors import PermanentError
from tasks.kb.page import read_page
from tasks.kb.qa_page import render
from tasks.rules.answer import violations
from tasks.rules.links import Links
from tasks.rules.markdown_blocks import parse
from tasks.rules.reply import ReplyFault, read_answer
from tasks.rules.safe_markdown import make_safe
from tasks.stages.apply import apply
from tests.answer_material import NOW, PAGE_A, PAGE_B, TASK, answer, context, evidence, payload

SECTION = "## 参考来源\n\n- 《AUTO_RANDOM》 tech-notes/auto-random.md\n  - 源文件 设计.docx"


def applied(given: Answer, *pages: EvidencePage, question: str = "怎么打散热点？", **options: Any) -> Outcome:
    return apply(payload(question), context(), evidence(*(pages or (PAGE_A, PAGE_B))), given, now=NOW, **options)


def test_a_grounded_answer_ends_with_its_sources() -> None:
    outcome = applied(answer("结论。\n\n## 参考来源\n\n- 我编的\n"))
    assert outcome.answer.startswith(f"结论。\n\n{SECTION}")
    assert outcome.task_id == TASK
    assert outcome.knowledge_sufficient
    assert outcome.processed_sources == ("team-kb",)
    assert outcome.skipped_sources == ()
    assert outcome.errors == ()
    assert outcome.read_level is ReadLevel.EXACT


def test_text_after_an_early_section_is_kept_and_the_change_is_reported() -> None:
    outcome = applied(answer("结论。\n\n## 参考来源\n\n- a\n\n## 补充\n\n不能丢。"))
    assert outcome.answer.startswith(f"结论。\n\n## 补充\n\n不能丢。\n\n{SECTION}")
    assert outcome.read_level is ReadLevel.NORMALIZED
    assert [note.code for note in outcome.warnings] == ["REFERENCES_REBUILT"]


@pytest.mark.parametrize(
    "hidden",
    [
        "## 参考\u200b来源\n\n- 假\n",
        "## [参考来源](http://evil)\n\n- 假\n",
        "![参考来源：](x)\n\n- 假\n",
        "```\n## 参考来源\n",
        "<!--\n",
    ],
)
def test_our_section_stands_alone_and_cannot_be_hidden(hidden: str) -> None:
    shown = applied(answer(f"结论。\n\n{hidden}")).answer
    body, _, end = shown.rpartition("\n\n## 参考来源\n")
    assert end.startswith("\n- 《AUTO_RANDOM》")
    assert "## 参考来源" not in body.replace("```\n## 参考来源\n```", "")


def test_links_keep_only_targets_that_were_seen() -> None:
    text = (
        "[页](tech-notes/hot-spot.md) [区](concepts/region.md) [源](https://docs.example.com/auto-random) "
        "[问](https://asked.example/x) [外](https://evil.example) <script>"
    )
    outcome = applied(answer(text), question="https://asked.example/x 说的热点怎么打散？")
    assert outcome.answer.startswith(text.replace("[外](https://evil.example) <", "外 &lt;"))
    assert [note.code for note in outcome.warnings] == ["LINK_TARGETS_DROPPED"]
    assert any("1 个链接" in sentence for sentence in outcome.errors)


def test_visible_pages_outside_the_context_are_known_to_the_caller() -> None:
    given = answer("[远](other/page.md)")
    assert "other/page.md" not in applied(given).answer
    assert "[远](other/page.md)" in applied(given, is_page=lambda path: path == "other/page.md").answer


def test_the_models_errors_come_last_and_are_harmless_lines() -> None:
    outcome = applied(answer(errors=["读不到\n附件 <b>", "  "], sources=[{"path": "x.md"}, {"path": PAGE_A.path}]))
    assert "x.md" in outcome.errors[0]
    assert outcome.errors[1:] == ("读不到 附件 &lt;b>",)


def test_what_was_degraded_is_passed_on() -> None:
    told = [{"stage": "answer", "source": "model", "status": "recorded"}]
    assert applied(answer(), degraded=told).degraded == tuple(told)


def test_an_answer_of_nothing_but_invisible_text_is_refused() -> None:
    with pytest.raises(PermanentError, match="EMPTY_ANSWER"):
        applied(answer("![](http://evil/pixel.png)"))


@pytest.mark.parametrize(
    "foreign", [{"context": context(taskId="query-1-1")}, {"evidence": evidence(task_id="query-1-1")}]
)
def test_artefacts_of_another_job_are_refused(foreign: dict[str, Any]) -> None:
    with pytest.raises(PermanentError, match="BAD_PAYLOAD"):
        apply(payload(), foreign.get("context", context()), foreign.get("evidence", evidence()), answer(), now=NOW)


def test_an_insufficient_answer_without_pages_says_so() -> None:
    given = answer("知识库内容无法回答这个问题。\n\n缺少分区表的页面。", knowledgeSufficient=False, sources=[])
    outcome = apply(payload(), context(), evidence(), given, now=NOW)
    assert outcome.answer.endswith("\n\n## 参考来源\n\n知识库中未找到可支撑本问题的页面\n")
    assert not outcome.knowledge_sufficient
    assert outcome.qa_page is None


PIECES = st.sampled_from([
    "## 参考来源\n", "**参考来源：**\n", "参考来源", "\u200b", "- a.md\n", "- x\n", "正文\n", "\n", "\n\n", "```\n",
    "`", "> ", "  ", "| a |\n|---|\n", "1. ", "### ", "~~~\n", "<b>", "<!--", "[", "](http://evil)", "![", "\\",
    "](tech-notes/hot-spot.md)", "[r]: http://evil\n", "[r]", "    ", "---\n", "知识库内容无法回答这个问题", "缺少页面",
    "以下为非知识库结论\n",
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@for_all(st.lists(PIECES, max_size=25).map("".join), st.booleans())
def test_whatever_is_written_the_answer_is_safe_and_ends_with_one_section(text: str, sufficient: bool) -> None:
    given = answer(f"前文。\n\n{text}", knowledgeSufficient=sufficient)
    shown = applied(given, PAGE_A, PAGE_B).answer
    links = Links(is_page=lambda path: path == PAGE_B.path)
    assert make_safe(shown, links).text == shown
    tokens = parse(shown).tokens
    headings = [
        at for at, token in enumerate(tokens)
        if token.type == "heading_open" and tokens[at + 1].content.strip() == "参考来源"
    ]  # fmt: skip
    assert len(headings) == 1
    assert shown.endswith("commit 0a1b2c3\n")


# ---------------------------------------------------------------- the page


def test_a_page_worth_keeping_is_drawn_up() -> None:
    outcome = applied(answer("结论 A。\n\n## 参考来源\n- x"))
    assert outcome.qa_page is not None
    assert (outcome.qa_page.path, outcome.qa_page.title) == ("qa/hotspot.md", "写入热点如何打散")
    assert "结论 A。" in outcome.qa_page.body
    assert "参考来源" not in outcome.qa_page.body
    assert [source["path"] for source in outcome.qa_page.frontmatter["sources"]] == [PAGE_A.path]  # type: ignore[attr-defined]
    assert outcome.qa_evaluation["score"] == 4


def test_a_refused_page_is_told_and_the_answer_goes_out() -> None:
    outcome = applied(answer(qaEvaluation={"reuseValue": 1, "reason": "x", "score": 5}))
    assert outcome.qa_page is None
    assert [("1/5" in reason) for reason in outcome.skipped_sources] == [True]
    assert outcome.qa_evaluation["score"] == 1
    assert outcome.answer.startswith("用 AUTO_RANDOM")


def test_the_page_is_as_safe_as_the_answer() -> None:
    draft = {
        "write": True,
        "title": "热点 <b>\n[x](javascript:alert(1))",
        "content": "---\nid: 假\n---\n\n<script>1</script> [外](http://evil)\n\n## 参考来源\n\n- 假\n\n```\n未闭合",
    }
    reason = "因为 <img src=x> [点](http://evil)"
    scores = dict.fromkeys(("reuseValue", "synthesisDepth", "evidenceQuality", "stability"), 1)
    outcome = applied(answer(qa=draft, qaEvaluation={**scores, "reason": reason}))
    assert outcome.qa_page is not None
    page = read_page(render(outcome.qa_page))
    assert page.metadata["id"] == outcome.qa_page.id
    assert outcome.qa_page.title == "热点 &lt;b> x"
    assert outcome.qa_evaluation["reason"] == "因为 &lt;img src=x> 点"
    for harm in ("<script", "](http", "javascript:", "参考来源"):
        assert harm not in outcome.qa_page.body
    assert outcome.qa_page.body.count("```") % 2 == 0


def test_a_hostile_question_stays_data_on_the_page() -> None:
    question = "怎么打散？\n---\nid: 假\n---\n## 参考来源\n<script>"
    outcome = applied(answer(qa={"write": True}), question=question)
    assert outcome.qa_page is not None
    page = read_page(render(outcome.qa_page))
    assert page.metadata["id"] == outcome.qa_page.id
    assert "<script" not in outcome.qa_page.title
    assert not any(line.startswith("## 参考来源") for line in page.body.splitlines())


def test_a_proposal_beyond_all_measure_falls_back_to_the_answer() -> None:
    draft = {"write": True, "title": "题" * 5_000, "content": "长" * 300_000}
    outcome = applied(answer("结论。", qa=draft))
    assert outcome.qa_page is not None
    assert "结论。" in outcome.qa_page.body
    assert len(outcome.qa_page.title) <= 200
    assert [note.code for note in outcome.warnings] == ["QA_CONTENT_TOO_LARGE"]


def test_an_unsafe_path_is_ignored_and_noted() -> None:
    outcome = applied(answer(qa={"write": True, "path": "qa/../catalog.json", "title": "x"}))
    assert outcome.qa_page is not None
    assert outcome.qa_page.path == "qa/x.md"
    assert [note.code for note in outcome.warnings] == ["QA_PATH_IGNORED"]


# ---------------------------------------------------------------- replies seen in the field

REPLIES = [f"A{number:02}" for number in (1, 2, 3, 5, 9, 11, 14, 16, 17, 18, 24, 25, 31, 35)]


def replies_material(folder: Path) -> tuple[Payload, Context, Evidence]:
    job = read_payload((folder / "payload.json").read_bytes())
    read = json.loads((folder / "evidence_stub.json").read_text())
    return (
        job,
        context(taskId=job.task_id),
        Evidence.model_validate({**read, "taskId": job.task_id, "commit": "0" * 40}),
    )


@pytest.mark.parametrize("case_id", REPLIES)
def test_replies_seen_in_the_field(case_id: str, shared: Callable[[str], Path]) -> None:
    folder = shared("model_replies")
    case = next(case for case in json.loads((folder / "manifest.json").read_text())["cases"] if case["id"] == case_id)
    expect = case["expect"]
    job, before, read = replies_material(folder)
    data = (folder / case["file"]).read_bytes()
    if expect["outcome"] == "error":
        assert expect["code"] in verdict(data, read, job)
        return
    outcome = apply(job, before, read, read_answer(data), now=NOW)
    document = strict_json.dumps(outcome.document()).decode()
    assert expect.get("contains", "") in outcome.answer
    assert outcome.read_level == expect["level"]
    assert outcome.knowledge_sufficient == expect.get("knowledgeSufficient", True)
    assert outcome.qa_evaluation.get("score", 0) == expect.get("score", outcome.qa_evaluation.get("score", 0))
    written = "persisted" if outcome.qa_page else "not-persisted" if outcome.skipped_sources else "not-requested"
    assert written == expect["qa"] or (written == "persisted" and "alternative" in expect)
    assert "catalog.json" not in (outcome.qa_page.path if outcome.qa_page else "")
    json.loads(document, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def verdict(data: bytes, read: Evidence, job: Payload) -> list[str]:
    """The codes of one reply before any re-ask."""
    try:
        return [str(item.code) for item in violations(read_answer(data), read, job)]
    except ReplyFault as fault:
        return [str(fault.code)]


def test_no_case_of_the_manifest_is_left_out(shared: Callable[[str], Path]) -> None:
    cases = json.loads((shared("model_replies") / "manifest.json").read_text())["cases"]
    assert [case["id"] for case in cases if case["kind"] == "answer"] == REPLIES
