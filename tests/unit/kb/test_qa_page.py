"""A QA page says what was asked and found, and nothing in it can break out of its place."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import frontmatter
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tasks.contract.answer import QaEvaluation
from tasks.contract.evidence import EvidencePage
from tasks.contract.outcome import QaPage
from tasks.kb.qa_page import build_qa_page, content_hash, entry_at, render

NOW = "2026-11-30T12:00:00Z"
EVALUATION = QaEvaluation(reuse_value=1, synthesis_depth=1, evidence_quality=1, stability=1, reason="常被问到")
EVIDENCE = [
    EvidencePage(
        path="concepts/a b.md",
        title="缓存",
        type="concept",
        keywords=("缓存", "无关"),
        source_ids=(1, 2),
        project_ids=("vue",),
    ),
    EvidencePage(
        path="notes/n.md",
        title="笔记 [1]",
        type="note",
        keywords=("KeepAlive",),
        source_ids=(2, 3),
        project_ids=("vue", 7),
    ),
    EvidencePage(path="code/c.md", title="代码", type="code-page"),
]


def build(**given_: Any) -> QaPage:
    parts: dict[str, Any] = {
        "task_id": "query-1-2", "question": "KeepAlive 怎么缓存？", "wanted_path": "", "title": "KeepAlive 的缓存",
        "content": "结论在此。", "scenario": "", "evaluation": EVALUATION, "evidence": EVIDENCE, "now": NOW,
    }  # fmt: skip
    return build_qa_page(**parts | given_)


def test_the_frontmatter_has_the_contracts_fields_in_order() -> None:
    page = build()
    read = yaml.safe_load(render(page).split("---\n")[1])
    assert list(read) == ["id", "title", "type", "kbType", "projectIds", "tags", "keywords", "createdAt", "updatedAt",
                          "generatedBy", "contentHash", "sourceStatus", "taskId", "sources"]  # fmt: skip
    assert read == page.frontmatter
    assert read["projectIds"] == ["vue", 7]
    assert read["keywords"] == ["缓存", "KeepAlive"]
    assert [source["path"] for source in read["sources"]] == [page.path for page in EVIDENCE]


def test_the_body_has_content_question_evidence_scenario_evaluation_and_time_in_order() -> None:
    body = build().body
    headings = [line for line in body.split("\n") if line.startswith("#")]
    assert headings == ["# KeepAlive 的缓存", "## 问题", "## 证据页面", "## 适用场景", "## 评估", "## 更新时间"]
    assert body.index("结论在此。") < body.index("## 问题")
    assert "> KeepAlive 怎么缓存？" in body
    assert "- [缓存](<../concepts/a b.md>)\n- [笔记 \\[1\\]](../notes/n.md)" in body
    assert "## 适用场景\n\n> 常被问到" in body
    assert "合计：4/5" in body
    assert body.endswith(f"{NOW}\n")


def test_a_scenario_of_the_contents_own_is_not_doubled() -> None:
    assert build(content="答。\n\n## 适用场景\n\n任何时候").body.count("适用场景") == 1


def test_half_characters_and_nulls_do_not_reach_a_file() -> None:
    page = build(title="半\ud83d", question="问\ud83d\0", content="答\ud83d\0")
    text = render(page) + json.dumps(page.catalog_entry, ensure_ascii=False)
    assert "\0" not in text
    assert text.encode().decode() == text


def test_links_to_cited_pages_work_from_inside_qa() -> None:
    body = build(
        content="见 [笔记](notes/n.md)、[缓存](<concepts/a b.md>) 与 [外](https://x.invalid/notes/n.md)。"
    ).body
    assert "见 [笔记](../notes/n.md)、[缓存](<../concepts/a b.md>) 与 [外](https://x.invalid/notes/n.md)。" in body
    odd = [EvidencePage(path="notes/C# 100%?.md", title="C#")]
    assert "- [C#](<../notes/C%23 100%25%3F.md>)" in build(evidence=odd).body


def test_the_catalog_entry_has_the_contracts_fields() -> None:
    page = build()
    assert page.catalog_entry == {
        "path": "qa/keepalive-的缓存.md", "title": "KeepAlive 的缓存", "type": "qa", "kbType": "qa",
        "sourceIds": [1, 2, 3],
        "updatedAt": NOW, "keywords": ["缓存", "KeepAlive"], "projectIds": ["vue", 7],
        "relatedConcepts": ["concepts/a b.md"], "relatedResources": [], "relatedCodePages": ["code/c.md"],
        "relatedPages": ["notes/n.md"], "contentHash": page.frontmatter["contentHash"], "sourceStatus": "active",
        "id": page.id,
    }  # fmt: skip
    assert entry_at(page, "qa/other.md")["path"] == "qa/other.md"


def test_the_hash_is_over_the_body_as_any_reader_finds_it() -> None:
    page = build(content="a  \r\nb\r\n\r\n")
    found = frontmatter.loads(render(page).replace("\n", "\r\n"))
    assert found["contentHash"] == content_hash(found.content) == content_hash(page.body)
    assert content_hash("\r\na\r\nb \r\n\n") == hashlib.sha256(b"a\nb").hexdigest()
    assert content_hash("a\nc") != content_hash("a\nb")


@pytest.mark.parametrize(("title", "question", "expected"), [("", "问" * 100, "问" * 80), (" a\nb ", "q", "a b")])
def test_the_title_falls_back_to_the_question_cut_at_80(title: str, question: str, expected: str) -> None:
    page = build(title=title, question=question)
    assert page.title == page.catalog_entry["title"] == page.frontmatter["title"] == expected


def test_an_update_keeps_the_date_of_creation_and_what_people_added() -> None:
    page = build()
    old = {"createdAt": "2025-01-01", "reviewedBy": "李", "no": True, "title": "旧"}
    read = yaml.safe_load(render(page, old).split("---\n")[1])
    assert (read["createdAt"], read["reviewedBy"], read["title"]) == ("2025-01-01", "李", page.title)
    assert "no" in read


@pytest.mark.parametrize(
    "question",
    ["---\nid: x\n---", "## 参考来源\n- 《假》 x.md", "<script>alert(1)</script>", "a\n```\n## 证据页面\n```\n~~~~", "[点我](http://x.invalid)",
     "![](http://x.invalid/p.png)", "# 标题", "```" * 3, "a\r\n\r\n## 更新时间\r\n1999"],
)  # fmt: skip
def test_a_question_cannot_break_out(question: str) -> None:
    body = build(question=question, title=question, scenario=question).body
    assert [line for line in body.split("\n") if line.startswith("#")][1:] == [
        "## 问题", "## 证据页面", "## 适用场景", "## 评估", "## 更新时间",
    ]  # fmt: skip
    assert [line for line in body.split("\n") if line.startswith(("---", "<script", "```", "~~~"))] == []
    title = body.split("\n")[0]
    assert "<script" not in title.replace("\\<", "")
    assert not re.search(r"(?<!\\)[\[\]]", title)


@pytest.mark.parametrize("content", ["文\n```js\ncode", "~~~~\n```\n~~~", "````md\n```\nx\n```"])
def test_a_code_block_left_open_is_closed_before_our_sections(content: str) -> None:
    head = build(content=content).body.split("## 问题")[0].split("\n")
    fence = head[2] if head[2][:1] in "`~" else head[3]
    mark = fence[0] * (len(fence) - len(fence.lstrip(fence[0])))
    assert head[-3] == mark


text = st.text(max_size=40)


@given(text, text, st.lists(text, max_size=3), st.dictionaries(text, text, max_size=2))
def test_any_text_survives_in_the_frontmatter(
    title: str, question: str, words: list[str], extra: dict[str, str]
) -> None:
    evidence = [EvidencePage(path="a.md", title=title, type=question, keywords=tuple(words))]
    page = build(title=title, question=question or "?", evidence=evidence)
    rendered = render(page, extra)
    rendered.encode()
    head = rendered.split("\n---\n")[0].removeprefix("---\n")
    read = yaml.safe_load(head)
    expected = {**extra, **page.frontmatter, "createdAt": extra.get("createdAt") or NOW}
    assert read == json.loads(json.dumps(expected, ensure_ascii=False))
    assert content_hash(frontmatter.loads(rendered).content) == page.frontmatter["contentHash"]
