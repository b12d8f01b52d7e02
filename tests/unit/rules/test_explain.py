"""What a code means and what to do, as `kbw show` tells it: a cure that can be typed, and none that leads back."""

from __future__ import annotations

import pytest

from tasks.rules.explain import EXPLANATIONS, explain


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE", "EXHAUSTED", "COMMIT_GONE"])
def test_a_replay_is_told_with_the_jobs_id(code: str) -> None:
    assert "`kbw replay query-1-1" in explain(code, "query-1-1").cure_en


@pytest.mark.parametrize("code", sorted(EXPLANATIONS))
def test_no_cure_sends_the_reader_of_show_to_show(code: str) -> None:
    assert "kbw show" not in explain(code).cure_en
