"""Strict JSON: what we write any parser reads, what we read is JSON and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.contract import strict_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_is_utf8_json_that_a_strict_reader_takes(value: Any) -> None:
    for written in (strict_json.dumps(value), strict_json.line(value), strict_json.canonical(value)):
        assert strict_json.loads(written) == strict_json.clean(value)


@given(json_values)
def test_cleaning_twice_changes_nothing(value: Any) -> None:
    once = strict_json.clean(value)

    assert strict_json.clean(once) == once


def test_numbers_that_are_no_json_become_null_and_lone_surrogates_are_replaced() -> None:
    assert strict_json.clean({"a": math.nan, "b": [math.inf], "\ud800": "x\udfff"}) == {
        "a": None,
        "b": [None],
        "�": "x�",
    }


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{'a': 1}", "[1,]", "", "{}{}", "// x\n{}"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        strict_json.loads(text)


@pytest.mark.parametrize("data", [b'{"a": "\xff"}', b"\xfe\xff\x00{", '{"a": "好"}'.encode("gbk")])
def test_what_is_not_utf8_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="utf-8"):
        strict_json.loads(data)


def test_a_byte_order_mark_is_no_part_of_the_document() -> None:
    assert strict_json.loads(b"\xef\xbb\xbf[1]") == strict_json.loads("\ufeff[1]") == [1]


@pytest.mark.parametrize(("levels", "too_deep"), [(99, False), (100, False), (101, True), (5_000, True)])
def test_nesting_has_a_bound(levels: int, too_deep: bool) -> None:
    text = "[" * levels + "]" * levels

    if not too_deep:
        assert strict_json.loads(text) is not None
        return
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        strict_json.loads(text)


def test_a_number_of_absurd_length_is_an_error_not_a_hang() -> None:
    with pytest.raises(ValueError, match=r"\w"):
        strict_json.loads("1" * 10_000)


def test_the_digest_knows_content_not_form() -> None:
    assert strict_json.digest({"b": 1, "a": "好"}) == strict_json.digest(json.loads('{"a": "\\u597d", "b": 1}'))
    assert strict_json.digest({"a": 1}) != strict_json.digest({"a": "1"})


def test_files_are_for_people_too() -> None:
    assert strict_json.dumps({"题": "好"}) == '{\n  "题": "好"\n}\n'.encode()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"a": 1, "a": 1}', ""),
        ('{"a": 1, "b": {"a": 2}}', ""),
        ('{"a": 1, "a": 2}', "a"),
        ('{"x": [{"问": "甲", "问": "乙"}]}', "问"),
        ('\ufeff{"a": 1, "a": null}', "a"),
    ],
)
def test_a_field_that_stands_there_twice_with_two_values_is_named(text: str, name: str) -> None:
    assert strict_json.double_name(text.encode()) == name
