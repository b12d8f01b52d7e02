"""The sentence for each code: names the file, shows no path."""

from __future__ import annotations

import pytest

from worker.adapters.attachments.faults import CODES, fault, shown_name

CONTRACT_CODES = [
    "NO_FILE", "NOT_FOUND", "OUTSIDE_ALLOWED_ROOTS", "NOT_A_FILE", "INTEGRITY_MISMATCH", "TOO_LARGE",
    "EMPTY_FILE", "PASSWORD_PROTECTED", "CORRUPT", "NO_TEXT_LAYER", "UNSUPPORTED_TYPE", "BINARY_FILE",
    "FORBIDDEN_XML", "TIMEOUT", "OUT_OF_MEMORY", "BUDGET_EXHAUSTED",
]  # fmt: skip


def test_the_codes_are_exactly_those_of_the_contract() -> None:
    assert frozenset(CONTRACT_CODES) == CODES


@pytest.mark.parametrize("code", CONTRACT_CODES)
def test_each_sentence_is_chinese_and_names_the_file_without_its_path(code: str) -> None:
    entry = fault(code, "/data/shared/机密/季度报告.docx")
    assert entry.code == code
    assert "《季度报告.docx》" in entry.message
    assert "/" not in entry.message
    assert "机密" not in entry.message


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("C:\\用户\\甲.txt", "甲.txt"),
        ("a\n# 标题\x00.txt", "a# 标题.txt"),
        ("abc\u202etxt.exe", "abctxt.exe"),
        ("《书》.txt", "书.txt"),
        ("", "未命名"),
        ("../", ".."),
        ("长" * 300 + ".docx", "长" * 100 + "…" + ("长" * 14 + ".docx")),
    ],
)
def test_a_name_is_made_fit_to_be_shown(name: str, shown: str) -> None:
    assert shown_name(name) == shown
