"""Edits: found by comparing or read from a delta, they always make the new text of the old one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.kb_git.deltas import as_delta, differences, edited, from_delta

texts = st.binary(max_size=400) | st.text("ab \n", max_size=400).map(str.encode)


def read_back(delta: bytes, old: bytes) -> bytes:
    return edited(old, from_delta(delta, lambda start, end: old[start:end], len(old)))


@given(texts, texts)
def test_any_text_is_made_of_any_other(old: bytes, new: bytes) -> None:
    edits = differences(old, new)
    assert edited(old, edits) == new
    assert read_back(as_delta(len(old), edits), old) == new


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 300), st.binary(max_size=200)), max_size=6))
def test_a_few_changes_in_a_long_text_are_a_few_edits(changes: list[tuple[int, int, bytes]]) -> None:
    old = random.Random(1).randbytes(300_000)
    new = old
    for place, length, text in changes:
        at = 90 * place
        new = new[:at] + text + new[at + length :]
    edits = differences(old, new)
    assert edited(old, edits) == new
    assert sum(len(edit.text) for edit in edits) <= sum(len(text) + 1_500 for _, _, text in changes)


def test_a_delta_that_copies_from_anywhere_is_read_as_few_edits() -> None:
    """Git copies pieces of a new entry from entries far ahead: the rest of the text must not count as changed."""
    old = random.Random(2).randbytes(200_000)
    far = old[150_000:150_050]
    new = old[:1_000] + b"new" + far + old[1_000:]
    copy_all = as_delta(len(old), differences(old, new))
    assert read_back(copy_all, old) == new
    head, tail = as_delta(1_000, [])[4:], bytes([0xB7, 0xE8, 3, 0, 0xFF, 0xFF])  # copies of git's own kind
    stray = bytes([0x97, *(150_000).to_bytes(3, "little"), 50])
    sizes = copy_all[: copy_all.index(head[:1])]
    delta = sizes + head + b"\x03new" + stray + tail
    edits = from_delta(delta, lambda start, end: old[start:end], len(old))
    assert edits[0].text == b"new" + far
    assert (edits[0].start, edits[0].end) == (1_000, 1_000)


@pytest.mark.parametrize("delta", [b"\x05\x05\x90\x06", b"\x04\x05\x90\x05", b"\x05\x05\x00", b"\x05"])
def test_what_is_no_delta_of_this_text_is_refused(delta: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        read_back(delta, b"abcde")
