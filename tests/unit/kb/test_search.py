"""Ranking in memory: terms of two scripts, fields, updates from commit to commit, and passages."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.kb_git.search import MAX_PASSAGE, Document, SearchIndex, count_terms, question_terms


def page(path: str, body: str, title: str = "", keywords: tuple[str, ...] = (), blob: str = "") -> Document:
    return Document(path, blob or body, title or path, keywords, body)


def ranked(documents: list[Document], question: str, limit: int = 10) -> list[str]:
    return [hit.path for hit in SearchIndex().view(documents).rank(question, limit)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("计算属性", ["计算", "算属", "属性"]),
        ("窗", ["窗"]),
        ("用v-model绑定", ["用", "v", "model", "绑定"]),
        ("onMounted", ["onmounted", "on", "mounted"]),
        ("XMLHttpRequest", ["xmlhttprequest", "xml", "http", "request"]),
        ("max_page_chars", ["max_page_chars", "max", "page", "chars"]),
        ("ＫｅｙＡＬＩＶＥ", ["keyalive", "key", "alive"]),
        ("HTTP2", ["http2", "http", "2"]),
        ("ünïcode Größe", ["ünïcode", "größe"]),
        ("データ 한국어", ["デー", "ータ", "한국", "국어"]),
        ("…，!? \n", []),
    ],
)
def test_terms_are_bigrams_of_cjk_and_words_with_their_parts(text: str, expected: list[str]) -> None:
    assert count_terms(text) == Counter(expected)


def test_words_that_only_ask_do_not_count_unless_nothing_else_is_there() -> None:
    assert set(question_terms("请问如何部署服务？")) == {"部署", "署服", "服务"}
    assert set(question_terms("how to deploy the service")) == {"deploy", "service"}
    assert question_terms("怎么")
    assert question_terms("？！") == {}


def test_a_page_about_the_thing_comes_before_one_that_mentions_it() -> None:
    about = page("a.md", "一段说明。", title="缓存")
    mentions = page("b.md", "这里提到缓存。" * 20 + "还有许多别的内容。" * 50, title="性能")
    assert ranked([mentions, about], "缓存怎么用") == ["a.md", "b.md"]


@pytest.mark.parametrize(
    "found",
    [page("x/rollback.md", "text"), page("a.md", "text", keywords=("rollback",)), page("a.md", "## Rollback\n\ntext")],
)
def test_path_keywords_and_headings_count(found: Document) -> None:
    assert ranked([page("z.md", "other words"), found], "how to rollback") == [found.path]


def test_camel_case_meets_kebab_case() -> None:
    assert ranked([page("a.md", "use `keep-alive` here"), page("b.md", "nothing")], "KeepAlive") == ["a.md"]


def test_equal_scores_are_ordered_by_path_and_pages_without_a_term_are_left_out() -> None:
    documents = [page("c.md", "x"), page("b.md", "监控", title="t"), page("a.md", "监控", title="t", blob="other")]
    assert ranked(documents, "监控") == ["a.md", "b.md"]
    assert ranked(documents, "监控", 1) == ["a.md"]
    assert ranked([], "监控") == []


def test_a_new_commit_indexes_only_what_changed_and_old_views_stay_as_they_were() -> None:
    index = SearchIndex()
    first = [page(f"{n}.md", f"共同内容 第{n}篇") for n in range(50)]
    old = index.view(first)
    before = old.rank("共同内容", 50)
    second = [*first[:49], page("49.md", "换了主题：告警")]
    new = index.view(second)
    assert index.size == 51
    assert [hit.path for hit in new.rank("告警", 5)] == ["49.md"]
    assert old.rank("告警", 5) == []
    assert old.rank("共同内容", 50) == before
    assert new.rank("共同内容", 50) == SearchIndex().view(second).rank("共同内容", 50)


def test_the_passage_is_the_piece_that_matches_best() -> None:
    sections = [f"## 第 {n} 节\n\n" + "无关的填充文字。" * 70 for n in range(8)]
    sections[5] = "## 连接池\n\n连接池的大小由 `HIKARI_MAX` 设置。\n" + "填充。" * 100
    hit = SearchIndex().view([page("a.md", "\n\n".join(sections))]).rank("连接池大小怎么设置", 1)[0]
    assert hit.passage.startswith("## 连接池")
    assert len(hit.passage) <= MAX_PASSAGE


@given(st.text(), st.text())
def test_any_page_and_any_question_can_be_ranked(body: str, question: str) -> None:
    hits = SearchIndex().view([page("a.md", body), page("b.md", question)]).rank(question, 5)
    assert all(len(hit.passage) <= MAX_PASSAGE and hit.score > 0 for hit in hits)


@given(st.lists(st.sampled_from(["短行", "# 标题", "x" * 700, "长" * 3_000, "", "word " * 90])).map("\n".join))
def test_passages_are_pieces_of_the_page_within_the_budget(body: str) -> None:
    for question in ("短行", "标题", "长长", "word", "a"):
        for hit in SearchIndex().view([page("a.md", body)]).rank(question, 1):
            assert len(hit.passage) <= MAX_PASSAGE
            assert hit.passage in body
