"""The mirror question and its refusals, each slot and each list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.contract.material import MaterialNode
from tasks.knowledge.question import WordLists, made_of, mirror_question, read_words
from tests.fakes_material import node, rules

WORDS = rules().words


def asked(**changes: Any) -> Any:
    return mirror_question(MaterialNode.model_validate(node(**changes)), WORDS)


@pytest.mark.parametrize("function", ["钩子", "留人", "转粉", "传播", "钩子型"])
def test_the_four_functions_with_or_without_their_suffix(function: str) -> None:
    text = asked(function=function).text
    assert text == f"找一条 被质疑的修表师傅 预期反转 老街修表铺 的 {function.removesuffix('型')} 型事件素材"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"anchor": ""}, "具象锚点为空"),
        ({"anchor": None}, "具象锚点为空"),
        ({"anchor": "  。 "}, "具象锚点为空"),
        ({"anchor": "表"}, "少于 2 个字"),
        ({"anchor": "「表」"}, "少于 2 个字"),
        ({"anchor": "被质疑的修表师傅"}, "与落差对象相同"),
        ({"anchor": "预期 反转"}, "与打破方式相同"),
        ({"anchor": "钩子"}, "与段落功能相同"),
        ({"anchor": "钩子型"}, "与段落功能相同"),
        ({"anchor": "反差"}, "抽象词"),
        ({"anchor": "极致的反差和情绪"}, "抽象词"),
        ({"anchor": "美食"}, "赛道词"),
        ({"anchor": "亲子、美食"}, "赛道词"),
        ({"anchor": "美食赛道"}, "赛道词"),
        ({"anchor": "亲子类账号"}, "赛道词"),
        ({"function": "高潮"}, "段落功能"),
        ({"function": ""}, "段落功能为空"),
        ({"gapObject": ""}, "落差对象为空"),
        ({"breakMethod": " "}, "打破方式为空"),
    ],
)
def test_refused_before_any_call(changes: dict[str, Any], part: str) -> None:
    question = asked(**changes)
    assert question.text == ""
    assert part in question.refusal


def test_a_question_of_track_words_only_is_refused() -> None:
    assert asked(gapObject="美食", breakMethod="剧情", anchor="亲子美食").text == ""


def test_a_concrete_anchor_may_hold_an_abstract_word() -> None:
    assert asked(anchor="老街修表铺的反差").text


def test_word_lists_ignore_comments_blanks_and_case() -> None:
    assert read_words("# 说明\n反转\n\n ABC # 注\n") == {"反转", "abc"}


@given(st.lists(st.sampled_from(["反转", "反差", "情绪", "的", "和"]), min_size=1, max_size=8))
def test_any_chain_of_listed_words_is_made_of_them(parts: list[str]) -> None:
    text = "".join(parts)
    only_links = set(parts) <= {"的", "和"}
    assert made_of(text, {"反转", "反差", "情绪"}) is not only_links
    assert not made_of(text + "锅", {"反转", "反差", "情绪"})


def test_without_lists_only_shape_counts() -> None:
    found = mirror_question(MaterialNode.model_validate(node(anchor="反差")), WordLists())
    assert found.text
