"""The fixed form of ``{material_content}``: the gap structure, values on one line, numbers, and guidance."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.contract.material import MaterialNode, Transfer
from tasks.knowledge.material import (
    FIRST_LINE,
    NUMBERS,
    OFF_LINE,
    Block,
    cell,
    gap_structure,
    guidance,
    material_content,
)
from tests.fakes_material import TRANSFER, node, rules

SETUPS = rules().setup_of_function


def block(number: int = 1, **changes: str) -> Block:
    return Block(MaterialNode.model_validate(node(number)), "1-1", Transfer(**{**TRANSFER, **changes}))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("[以为升职] —被一封邮件打破→ [被辞退]", "[以为升职] —被一封邮件打破→ [被辞退]"),
        ("［以为升职］——被一封邮件打破→［被辞退］", "[以为升职] —被一封邮件打破→ [被辞退]"),
        ("[以为升职]—被一封\n邮件打破→[被辞退]。", "[以为升职] —被一封 邮件打破→ [被辞退]"),
        ("[期待A] —被X打破→ [结果B]", ""),
        ("[ ] —被邮件打破→ [被辞退]", ""),
        ("以为升职被邮件打破", ""),
        ("[以为升职] → [被辞退]", ""),
        ("[以为升职] —被一封邮件打破→ [被辞退] 补充", ""),
        ("", ""),
    ],
)
def test_the_gap_structure(text: str, form: str) -> None:
    assert gap_structure(text) == form


def test_off_is_two_lines_and_nothing_is_one() -> None:
    assert material_content([block()], off=True) == f"{FIRST_LINE}\n{OFF_LINE}"
    assert material_content([], off=False) == FIRST_LINE


def test_blocks_are_numbered_up_to_twenty() -> None:
    text = material_content([block(n) for n in range(25)], off=False)
    assert "".join(re.findall("■ 节点(.)", text)) == NUMBERS


@given(st.text(max_size=400))
def test_no_value_breaks_the_form(text: str) -> None:
    shown = material_content([block(bridge=text, camera=text, technique=text)], off=False)
    assert len(shown.split("\n")) == 7
    assert shown.count("■") == 1
    assert cell(cell(text)) == cell(text)


def test_guidance_uses_the_nodes_own_words_only() -> None:
    found = guidance(MaterialNode.model_validate(node(function="转粉型")), SETUPS)
    assert found is not None
    assert found.structure == "[被质疑的修表师傅] —被预期反转打破→ [老街修表铺]"
    assert (found.technique, found.setup) == ("预期反转", "长")
    assert "专业碾压" in found.camera


def test_without_a_subtype_there_is_no_guidance() -> None:
    assert guidance(MaterialNode.model_validate(node(subtype="")), SETUPS) is None
