"""Workbooks older than Excel 97: their text is in a code page, and some have no container."""

from __future__ import annotations

import pytest

from tests.attachment_traps import excel4, excel95
from tests.unit.attachments.reading import fault_of, meta_of, text_of


@pytest.mark.parametrize(
    ("words", "page", "codec"),
    [
        ("姓名 王小明", 936, "gbk"),
        ("編號 陳小明", 950, "big5"),
        ("名前 佐藤", 932, "cp932"),
        ("Name Müller", 1252, "cp1252"),
    ],
)
def test_the_code_page_that_an_excel_95_file_names_is_used(words: str, page: int, codec: str) -> None:
    first, second = words.split()
    file = excel95("表" if page != 1252 else "Tab", [[first, second]], page, codec)
    assert text_of(file).splitlines()[1:] == [f"{first}\t{second}", "42.5"]
    assert meta_of(file)["detectedType"] == "xls"


def test_sheets_without_a_container_are_read() -> None:
    file = excel4(["姓名", "王小明"], 936, "gbk")
    assert text_of(file).splitlines()[1:] == ["姓名", "王小明"]
    assert meta_of(file, "a.csv")["detectedType"] == "xls"


def test_a_locked_one_is_told_and_a_cut_one_is_corrupt() -> None:
    assert fault_of(excel95("表", [["x"]], 936, "gbk", locked=True)) == "PASSWORD_PROTECTED"
    assert fault_of(excel4(["姓名"], 936, "gbk")[:12]) in ("CORRUPT", "EMPTY_FILE")
