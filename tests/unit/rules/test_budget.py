"""Cutting texts to their budgets: never over, never in the middle of what a reader sees as one sign."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contract.context import Limits
from tasks.contract.evidence import EvidencePage
from tasks.contract.payload import HistoryMessage
from tasks.rules.budget import cut_anywhere, cut_history, cut_text, fit_evidence, fit_sections, fit_texts


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("abc", 0, ""),
        ("ab👨‍👩‍👧", 5, "ab"),
        ("ab👍🏽c", 3, "ab"),
        ("a🇨🇳🇯🇵", 4, "a🇨🇳"),
        ("ae\u0301b", 2, "a"),
        ("a❤\ufe0fb", 2, "a"),
        ("a\r\nb", 2, "a"),
        ("नि", 1, ""),
    ],
)
def test_one_sign_stays_whole(text: str, limit: int, kept: str) -> None:
    short = cut_anywhere(text, limit)
    assert (short.text, short.truncated) == (kept, kept != text)


def test_a_cut_falls_on_a_line_end_near_the_limit() -> None:
    assert cut_text("第一行很长很长\n第二行\n第三行", 14) == ("第一行很长很长\n第二行", True)


def test_else_on_a_sentence_end() -> None:
    assert cut_text("第一句话。第二句话还没有说完", 6) == ("第一句话。", True)


def test_else_where_the_budget_ends_rather_than_losing_much() -> None:
    assert cut_text("短\n" + "长" * 100, 50).text == "短\n" + "长" * 48


def test_a_line_that_ends_exactly_at_the_limit_stays() -> None:
    assert cut_text("一二三\n四五六\n七", 7) == ("一二三\n四五六", True)


def page(content: str, *, truncated: bool = False) -> EvidencePage:
    return EvidencePage(path="a.md", title="甲", content=content, truncated=truncated)


def test_evidence_stays_within_both_budgets_and_says_what_was_cut() -> None:
    pages = fit_evidence([page("长" * 20_000) for _ in range(6)] + [page("短")], Limits())
    assert max(len(found.content) for found in pages) <= 8_000
    assert sum(len(found.content) for found in pages) <= 45_000
    assert [found.truncated for found in pages] == [True] * 6 + [False]


def test_five_long_pages_get_all_that_a_page_may_have() -> None:
    assert [len(found.content) for found in fit_evidence([page("长" * 9_000)] * 5, Limits())] == [8_000] * 5


def test_no_page_is_starved_by_one_before_it() -> None:
    cuts = fit_texts(["长" * 100, "短" * 10, "长" * 100], each=100, total=60)
    assert [len(short.text) for short in cuts] == [25, 10, 25]


def test_a_page_cut_before_stays_marked() -> None:
    assert fit_evidence([page("短", truncated=True)], Limits())[0].truncated


def test_history_keeps_the_last_messages_each_cut() -> None:
    messages = [HistoryMessage(role="user", content=f"{number}" + "字" * 2_000) for number in range(8)]
    kept = cut_history(messages, Limits())
    assert [message.content[0] for message in kept] == list("234567")
    assert {len(message.content) for message in kept} == {1_500}
    assert cut_history(messages, Limits(max_history_messages=0)) == ()


def test_sections_of_a_better_rank_are_served_first() -> None:
    cuts = fit_sections([("次" * 50, 1), ("主" * 30, 0), ("末" * 50, 2), ("次" * 50, 1)], 90)
    assert [len(short.text) for short in cuts] == [30, 30, 0, 30]


SIGNS = st.text(st.sampled_from("ab\n。e\u0301👍🏽\u200d👩🇨🇳\ufe0f❤ \r字") | st.characters(), max_size=200)


@given(SIGNS, st.integers(0, 220))
@settings(deadline=None)
def test_a_cut_is_a_prefix_within_its_limit(text: str, limit: int) -> None:
    for short in (cut_anywhere(text, limit), cut_text(text, limit)):
        assert text.startswith(short.text)
        assert len(short.text) <= limit
        assert short.truncated == (short.text != text)


@given(SIGNS, st.integers(0, 220))
@settings(deadline=None)
def test_no_mark_is_parted_from_its_letter(text: str, limit: int) -> None:
    kept = cut_anywhere(text, limit).text
    following = text[len(kept) : len(kept) + 1]
    assert not kept or not following or unicodedata.category(following) not in ("Mn", "Mc", "Me") or len(kept) > 64


def test_a_row_of_flags_is_cut_between_two_of_them() -> None:
    assert [len(cut_anywhere("a" + "🇨🇳" * 60, limit).text) for limit in (80, 81, 100)] == [79, 81, 99]


@given(st.lists(SIGNS, max_size=8), st.integers(0, 100), st.integers(0, 300))
@settings(deadline=None)
def test_texts_never_exceed_their_total(texts: list[str], each: int, total: int) -> None:
    cuts = fit_texts(texts, each, total)
    assert sum(len(short.text) for short in cuts) <= total
    assert all(len(short.text) <= each for short in cuts)
    assert all(text.startswith(short.text) for text, short in zip(texts, cuts, strict=True))
