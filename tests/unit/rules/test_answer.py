"""What a model has to mend, and what goes out when it does not."""

from __future__ import annotations

import pytest

from tasks.contract.context import Limits
from tasks.errors import PermanentError
from tasks.rules.answer import settle, violations
from tasks.rules.language import due_language, is_mainly_chinese
from tests.answer_material import PAGE_A, PAGE_B, answer, evidence, payload

OPENING = "知识库内容无法回答这个问题。"
LABEL = "以下为非知识库结论"
GAP = "缺少分区表的说明页面。"


def codes(
    text: str = "用 AUTO_RANDOM。", *, question: str = "怎么打散热点？", supplement: bool = True, **fields: object
) -> list[str]:
    found = violations(answer(text, **fields), evidence(PAGE_A, PAGE_B), payload(question, supplement=supplement))
    assert all(item.message for item in found)
    return [str(item.code) for item in found]


def insufficient(text: str, *, supplement: bool = True, question: str = "怎么打散热点？") -> list[str]:
    return codes(text, question=question, supplement=supplement, knowledgeSufficient=False, sources=[])


# ---------------------------------------------------------------- violations


def test_a_sourced_answer_has_nothing_to_mend() -> None:
    assert codes() == []


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\u200b\ufeff", "## 参考来源\n\n- 《AUTO_RANDOM》 tech-notes/auto-random.md"]
)
def test_an_answer_without_text_is_empty(text: str) -> None:
    assert codes(text) == ["EMPTY_ANSWER"]
    with pytest.raises(PermanentError, match="EMPTY_ANSWER"):
        settle(answer(text), evidence(PAGE_A), payload())


def test_an_answer_may_have_exactly_the_allowed_length() -> None:
    limits = Limits(max_answer_chars=10)
    read = evidence(PAGE_A, analysis_limits=limits)
    assert violations(answer("热" * 10), read, payload()) == []
    assert [item.code for item in violations(answer("热" * 11), read, payload())] == ["ANSWER_TOO_LARGE"]
    with pytest.raises(PermanentError, match="ANSWER_TOO_LARGE"):
        settle(answer("热" * 11), read, payload())


@pytest.mark.parametrize(
    "path", ["/tech-notes/auto-random.md", "./tech-notes/auto-random.md", "tech-notes\\auto-random.md"]
)
def test_spellings_of_one_path_are_one_page(path: str) -> None:
    assert codes(sources=[{"path": path}]) == []
    settled = settle(answer(sources=[{"path": path}, {"path": PAGE_A.path}]), evidence(PAGE_A), payload())
    assert [source.path for source in settled.sources] == [PAGE_A.path]


@pytest.mark.parametrize("path", ["tech-notes/none.md", "../tech-notes/auto-random.md", "catalog.json", ""])
def test_a_page_that_was_not_read_may_not_be_cited(path: str) -> None:
    assert codes(sources=[{"path": PAGE_A.path}, {"path": path}]) == ["UNKNOWN_SOURCE"]


def test_a_sufficient_answer_needs_a_source() -> None:
    assert codes(sources=[]) == ["SOURCES_REQUIRED"]


def test_without_any_page_read_no_answer_is_sufficient() -> None:
    found = violations(answer(sources=[]), evidence(), payload())
    assert "MISSING_OPENING" in [item.code for item in found]
    settled = settle(answer(sources=[]), evidence(), payload())
    assert not settled.knowledge_sufficient
    assert settled.text.startswith(OPENING)
    assert any("没有读取到任何知识库页面" in sentence for sentence in settled.errors)


@pytest.mark.parametrize(
    "line",
    [
        "知识库内容无法回答这个问题。",
        "**知识库中没有找到可以回答该问题的证据。**",
        "> 知识库不足以支撑这个结论，",
        "团队知识库目前未包含相关内容。",
        "抱歉，知识库中未找到可支撑本问题的页面。",
        "- 现有知识库不能回答此问题",
        "没有在知识库中找到相关内容。",
    ],
)
def test_equivalents_of_the_opening_line_count(line: str) -> None:
    assert insufficient(f"# 回答\n\n{line}\n\n{GAP}") == []


@pytest.mark.parametrize(
    "text",
    [
        f"热点可以打散。\n\n{OPENING}\n\n{GAP}",
        f"知识库没有问题，可以回答。{GAP}",
        f"无法回答。{GAP}",
        f"```\n{OPENING}\n```\n\n{GAP}",
        f"## {OPENING}\n\n{GAP}",
    ],
)
def test_anything_else_at_the_beginning_does_not(text: str) -> None:
    assert "MISSING_OPENING" in insufficient(text)


def test_what_is_missing_has_to_be_said() -> None:
    assert insufficient(OPENING) == ["MISSING_EVIDENCE_UNNAMED"]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How do I avoid it?", "The knowledge base cannot answer this question.\n\nMissing: a page about hotspots."),
        ("How do I avoid it?", f"{OPENING}\n\nThe pages do not mention hotspots."),
        ("请用日语回答：热点？", "ナレッジベースの内容では回答できません。\n\nホットスポットの記載がありません。"),
        ("핫스팟을 피하려면 어떻게 해야 하나요?", "지식 베이스로는 답할 수 없습니다.\n\n문서가 없습니다."),
        ("Comment éviter les points chauds ?", "La base de connaissances ne répond pas.\n\nIl manque une page."),
        ("Wie vermeide ich die Hotspots?", "Die Wissensdatenbank kann das nicht beantworten.\n\nEs fehlt eine Seite."),
        ("¿Cómo evitar los puntos calientes?", "La base de conocimientos no puede responder.\n\nFalta una página."),
        ("Как избежать горячих точек?", "База знаний не содержит ответа.\n\nОтсутствует страница о них."),
    ],
)  # fmt: skip
def test_other_languages_have_their_own_opening_line(question: str, text: str) -> None:
    assert insufficient(text, question=question) == []


SUPPLEMENT = "一般来说可以改用 UUID 主键。"


@pytest.mark.parametrize(
    "label",
    [
        LABEL,
        f"**{LABEL}**",
        f"## {LABEL}/本轮参考附件推断",
        "以下为非知识库结论：",
        "本轮参考附件推断",
        "> 以下内容为非知识库结论",
    ],
)
def test_a_labelled_supplement_is_lawful_where_the_policy_allows_it(label: str) -> None:
    text = f"{OPENING}\n\n{GAP}\n\n{label}\n\n{SUPPLEMENT}"
    assert insufficient(text) == []
    assert insufficient(text, supplement=False) == ["SUPPLEMENT_NOT_ALLOWED"]


@pytest.mark.parametrize("between", ["", "## 建议\n\n", "---\n\n"])
def test_an_unlabelled_supplement_is_found(between: str) -> None:
    assert insufficient(f"{OPENING}\n\n{GAP}\n\n{between}{SUPPLEMENT}") == ["UNLABELLED_SUPPLEMENT"]


@pytest.mark.parametrize(
    "rest",
    [
        "缺少以下证据：\n\n- 分区表设计\n- 写入压测数据",
        "## 缺少的证据\n\n1. 分区表设计\n2. 压测\n\n| 项 | 状态 |\n|---|---|\n| 压测 | 无 |",
        "知识库目前只说明了 AUTO_RANDOM 的用法。\n\n没有找到分区表的页面。",
        "`tech-notes/auto-random.md` 给出了整型主键的做法，未涉及分区表。",
        "缺少分区表的页面。\n\n《热点处理》只讲定位，最接近的页面是它。",
    ],
)
def test_talk_about_the_knowledge_base_is_no_supplement(rest: str) -> None:
    assert insufficient(f"{OPENING}\n\n{rest}", supplement=False) == []


# ---------------------------------------------------------------- the language


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("主键自增导致写入热点，怎么打散？", "zh"),
        ("AUTO_RANDOM vs SHARD_ROW_ID_BITS", "zh"),
        ("kubectl get pods", "zh"),
        ("`how to do it` 是什么意思", "zh"),
        ("How do I avoid hotspots with AUTO_RANDOM?", "en"),
        ("请用英文回答：什么是热点", "en"),
        ("什么是热点？Answer in English", "en"),
        ("热点是什么，回答请用英文", "en"),
        ("不要用英文回答，什么是热点", "zh"),
        ("如何让模型用英文回答？", "zh"),
        ("用英文回答的配置在哪里", "zh"),
        ("提示词“用英文回答”有用吗", "zh"),
        ("用中文回答 what is GC and how to use it", "zh"),
        ("ホットスポットを避けるには？", "ja"),
        ("핫스팟을 피하려면 어떻게 해야 하나요?", "ko"),
        ("ما هي نقطة الاتصال", "other"),
    ],
)
def test_another_language_has_to_be_asked_for(question: str, language: str) -> None:
    assert due_language(question) == language


ENGLISH = "Use the AUTO_RANDOM attribute for the primary key, so that new rows are spread over many regions. " * 3


def test_an_answer_is_mainly_chinese_unless_another_language_was_asked_for() -> None:
    assert codes(ENGLISH) == ["WRONG_LANGUAGE"]
    assert codes(ENGLISH, question="请用英文回答：怎么打散热点？") == []
    settled = settle(answer(ENGLISH), evidence(PAGE_A), payload())
    assert settled.text == ENGLISH
    assert any("中文" in sentence for sentence in settled.errors)


def test_code_names_and_addresses_are_no_language() -> None:
    code = "```sql\n" + "select a from b where c in the list of the users\n" * 30 + "```\n"
    assert is_mainly_chinese(f"如下：\n\n{code}")
    assert is_mainly_chinese("| AUTO_RANDOM | SHARD_ROW_ID_BITS | tidb_enable_clustered_index |\n" * 20)
    assert not is_mainly_chinese(
        "これはホットスポットを避けるための方法です。とても簡単なので、すぐに使えます。そしてこれは日本語です。"
    )


# ---------------------------------------------------------------- what remains


def test_a_foreign_source_beside_a_valid_one_is_dropped_and_named() -> None:
    settled = settle(answer(sources=[{"path": "x/none.md"}, {"path": PAGE_A.path}]), evidence(PAGE_A), payload())
    assert [source.path for source in settled.sources] == [PAGE_A.path]
    assert settled.foreign_sources == ("x/none.md",)
    assert any("x/none.md" in sentence for sentence in settled.errors)


def test_with_no_valid_source_left_a_sufficient_answer_fails() -> None:
    with pytest.raises(PermanentError, match="UNKNOWN_SOURCE"):
        settle(answer(sources=[{"path": "x/none.md"}]), evidence(PAGE_A), payload())
    with pytest.raises(PermanentError, match="SOURCES_REQUIRED"):
        settle(answer(sources=[]), evidence(PAGE_A), payload())


def test_an_insufficient_answer_may_lose_all_its_sources() -> None:
    wrong = answer(f"{OPENING}\n\n{GAP}", knowledgeSufficient=False, sources=[{"path": "x/none.md"}])
    settled = settle(wrong, evidence(PAGE_A), payload())
    assert settled.sources == ()
    assert any("x/none.md" in sentence for sentence in settled.errors)


def test_facts_about_a_page_come_from_the_evidence() -> None:
    lie = {
        "path": PAGE_A.path,
        "title": "别的",
        "type": "x",
        "sourceIds": [9],
        "sourceTraces": [{"url": "http://evil"}],
    }
    [source] = settle(answer(sources=[lie]), evidence(PAGE_A), payload()).sources
    assert (source.title, source.type, source.source_ids) == ("AUTO_RANDOM", "tech-note", (1,))
    assert source.source_traces == PAGE_A.source_traces


@pytest.mark.parametrize("snippet", ["可以把写入分散", "AUTO_RANDOM\n可以把 写入", " 用AUTO_RANDOM ", ""])
def test_a_snippet_that_stands_in_its_page_is_kept(snippet: str) -> None:
    settled = settle(answer(sources=[{"path": PAGE_A.path, "snippet": snippet}]), evidence(PAGE_A), payload())
    assert settled.sources[0].snippet == snippet.strip()
    assert settled.notes == ()


def test_a_snippet_from_elsewhere_is_removed_and_noted() -> None:
    given = [{"path": PAGE_A.path, "snippet": PAGE_B.content}]
    settled = settle(answer(sources=given), evidence(PAGE_A, PAGE_B), payload())
    assert settled.sources[0].snippet == ""
    assert [note.code for note in settled.notes] == ["SNIPPET_REMOVED"]
    assert any(PAGE_A.path in sentence for sentence in settled.errors)


def remains(text: str, *, supplement: bool = True, sources: tuple[str, ...] = ()) -> tuple[str, str]:
    given = answer(text, knowledgeSufficient=False, sources=[{"path": path} for path in sources])
    settled = settle(given, evidence(PAGE_A), payload(supplement=supplement))
    return settled.text, "；".join(settled.errors)


def test_a_lawful_insufficient_answer_stays_as_it_is() -> None:
    text = f"# 回答\n\n{OPENING}\n\n{GAP}\n\n**{LABEL}**\n\n{SUPPLEMENT}"
    assert remains(text) == (text, "")


def test_a_missing_opening_line_is_put_before_the_text() -> None:
    text, errors = remains(f"# 回答\n\n{GAP}")
    assert text == f"{OPENING}\n\n# 回答\n\n{GAP}"
    assert "已在开头补上" in errors


def test_an_unlabelled_supplement_gets_its_label() -> None:
    text, errors = remains(f"{OPENING}\n\n{GAP}\n\n## 建议\n\n{SUPPLEMENT}")
    assert text == f"{OPENING}\n\n{GAP}\n\n**{LABEL}/本轮参考附件推断**\n\n## 建议\n\n{SUPPLEMENT}"
    assert "补上标注" in errors


def test_where_no_supplement_is_allowed_it_is_cut_and_the_gap_stays() -> None:
    text, errors = remains(f"{OPENING}\n\n**{LABEL}**\n\n{SUPPLEMENT}\n\n## 缺少的证据\n\n- 分区表\n", supplement=False)
    assert text == f"{OPENING}\n\n## 缺少的证据\n\n- 分区表"
    assert "已删除" in errors
    assert remains(f"{OPENING}\n\n{GAP}\n\n{SUPPLEMENT}", supplement=False)[0] == f"{OPENING}\n\n{GAP}"


def test_unlabelled_text_beside_checked_sources_is_labelled_and_not_lost() -> None:
    text, _ = remains(f"{OPENING}\n\n{GAP}\n\n{SUPPLEMENT}", supplement=False, sources=(PAGE_A.path,))
    assert SUPPLEMENT in text
    assert LABEL in text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"attachmentId": 1}, True),
        ({"attachmentId": "1", "fileName": "别名.txt"}, True),
        ({"fileName": "慢日志.txt"}, True),
        ({"attachmentId": 2, "fileName": "慢日志.txt"}, False),
        ({"attachmentId": 1, "role": "stable_source"}, False),
        ({}, False),
    ],
)
def test_only_attachments_of_this_job_were_used(given: dict[str, object], *, kept: bool) -> None:
    settled = settle(answer(usedAttachments=[given]), evidence(PAGE_A), payload())
    assert [(item.attachment_id, item.file_name) for item in settled.used_attachments] == (
        [(1, "慢日志.txt")] if kept else []
    )
    assert [note.code for note in settled.notes] == ([] if kept else ["ATTACHMENT_DROPPED"])
