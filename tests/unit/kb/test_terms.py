"""Terms of two scripts, of questions and their history, of versions; and the passage that answers best."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.kb_git.passages import MAX_PASSAGE, best_passage
from worker.adapters.kb_git.terms import (
    Synonyms,
    count_terms,
    family,
    is_follow_up,
    question_terms,
    shortened,
    stem,
    versions_asked,
    versions_of,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("计算属性", ["计算", "算属", "属性"]),
        ("窗", ["窗"]),
        ("用v-model绑定", ["用", "v", "model", "绑定"]),
        ("onMounted", [stem("onmounted"), "on", stem("mounted")]),
        ("XMLHttpRequest", ["xmlhttprequest", "xml", "http", "request"]),
        ("max_page_chars", [stem("max_page_chars"), "max", stem("page"), "char"]),
        ("ＫｅｙＡＬＩＶＥ", [stem("keyalive"), "key", stem("alive")]),
        ("HTTP2", ["http2", "http", "2"]),
        ("ünïcode Größe", ["ünïcode", "größe"]),
        ("データ 한국어", ["デー", "ータ", "한국", "국어"]),
        ("…，!? \n", []),
    ],
)
def test_terms_are_bigrams_of_cjk_and_words_with_their_parts(text: str, expected: list[str]) -> None:
    assert count_terms(text) == Counter(expected)


@pytest.mark.parametrize(
    "forms",
    ["cache caches cached caching", "property properties", "type types typed", "class classes", "run running"],
)
def test_forms_of_an_english_word_are_one_term(forms: str) -> None:
    assert len({stem(word) for word in forms.split()}) == 1


def test_words_that_only_ask_do_not_count_unless_nothing_else_is_there() -> None:
    assert set(question_terms("请问如何部署服务？")) == {"部署", "署服", "服务"}
    assert set(question_terms("how to deploy the app")) == {"deploy", "app"}
    assert question_terms("怎么")
    assert question_terms("？！") == {}


def test_a_question_that_points_back_takes_its_subject_from_what_was_said_before() -> None:
    history = ["连接池是什么", "消息队列怎么部署"]
    terms = question_terms("那它怎么配置？", history)
    assert terms["配置"] > terms["队列"] > terms["连接"] > 0
    assert "队列" not in question_terms("数据库连接超时以后应该检查哪些参数", history)
    assert not is_follow_up("数据库连接超时以后应该检查哪些参数")
    assert all(map(is_follow_up, ["那它怎么配置？", "How do I configure it?", "超时呢"]))


def test_synonyms_weigh_less_than_the_words_of_the_question() -> None:
    words = Synonyms.read("缓存, cache, caching\n# remark\nalone\n告警, alert  # and another\n")
    assert [word for word, _ in words.beside("怎么清缓存")] == ["cache", "caching"]
    assert [word for word, _ in words.beside("clear the CACHE")] == ["缓存", "caching"]
    assert words.beside("cached alerts") == []
    terms = question_terms("清缓存", (), words)
    assert 0 < terms[stem("cache")] < terms["缓存"]


@pytest.mark.parametrize(
    ("question", "versions"),
    [
        ("v7.5 怎么升级到 TiDB 8.1.0", ["7.5", "8.1.0"]),
        ("v3版本里怎么写", ["3"]),
        ("在v7.5里，2.x 呢", ["7.5", "2"]),
        ("8.1版本的限制", ["8.1"]),
        ("第 3 步之后 100 个文件 utf-8 10.5.1.2.3", []),
    ],
)
def test_versions_of_a_question(question: str, versions: list[str]) -> None:
    assert versions_asked(question) == versions


@pytest.mark.parametrize(
    ("path", "versions"),
    [
        ("docs/v7.5/a.md", {"7", "7.5"}),
        ("tidb/release-8.1.2/a.md", {"8", "8.1", "8.1.2"}),
        ("v2/a.md", {"2"}),
        ("notes/step-15/a.md", set()),
        ("notes/2024-01-02.md", set()),
    ],
)
def test_versions_of_a_page(path: str, versions: set[str]) -> None:
    assert versions_of(path) == versions


def test_versions_of_one_page_are_a_family_and_the_number_decides() -> None:
    assert family("docs/v7.5/a.md") == ("docs/*/a.md", (7, 5))
    assert family("docs/v10.0/a.md")[1] > family("docs/v7.5/a.md")[1]
    assert versions_of("a.md", ["手册 v6.1"]) == {"6", "6.1"}
    assert shortened("7.5.1") == ["7.5.1", "7.5", "7"]


def test_the_passage_is_the_piece_that_matches_best() -> None:
    sections = [f"## 第 {n} 节\n\n" + "无关的填充文字。" * 70 for n in range(8)]
    sections[5] = "## 连接池\n\n连接池的大小由 `HIKARI_MAX` 设置。\n" + "填充。" * 100
    passage = best_passage("\n\n".join(sections), question_terms("连接池大小怎么设置"))
    assert passage.startswith("## 连接池")
    assert len(passage) <= MAX_PASSAGE


@given(st.lists(st.sampled_from(["短行", "# 标题", "x" * 700, "长" * 3_000, "", "word " * 90])).map("\n".join))
def test_passages_are_pieces_of_the_page_within_the_budget(body: str) -> None:
    for question in ("短行", "标题", "长长", "word", "a"):
        passage = best_passage(body, question_terms(question))
        assert len(passage) <= MAX_PASSAGE
        assert passage in body


@given(st.text(), st.text())
def test_any_text_can_be_cut_into_terms(text: str, path: str) -> None:
    assert all(count_terms(text).values())
    assert all(weight > 0 for weight in question_terms(text, [path]).values())
    assert versions_asked(text) is not None
    assert family(path)[0] is not None
