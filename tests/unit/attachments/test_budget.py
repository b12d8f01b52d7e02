"""The fair share of a preview budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.attachments.budget import fair_shares


def test_small_files_stay_whole_and_the_rest_is_shared_equally() -> None:
    assert fair_shares([500, 9000, 9000], each=8000, total=16_000) == [500, 7750, 7750]
    assert fair_shares([9000, 100], each=8000, total=16_000) == [8000, 100]
    assert fair_shares([9000] * 4, each=8000, total=16_000) == [4000] * 4
    assert fair_shares([], each=8000, total=16_000) == []


@given(st.lists(st.integers(0, 20_000), max_size=25), st.integers(1, 8000), st.integers(1, 16_000))
def test_no_share_is_too_big_none_is_wasted_and_equal_files_get_nearly_equal_shares(
    lengths: list[int], each: int, total: int
) -> None:
    shares = fair_shares(lengths, each, total)
    wanted = [min(length, each) for length in lengths]
    assert all(0 <= share <= want for share, want in zip(shares, wanted, strict=True))
    assert sum(shares) == min(total, sum(wanted))
    cut = [share for share, want in zip(shares, wanted, strict=True) if share < want]
    assert not cut or max(cut) - min(cut) <= 1
    assert not cut or all(share >= min(cut) for share, want in zip(shares, wanted, strict=True) if want >= min(cut))
