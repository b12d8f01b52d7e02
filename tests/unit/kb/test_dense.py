"""The second leg: vectors by blob, appended once, nearest first; and rankings made one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from worker.adapters.kb_git.dense import SIZE, Vectors, page_gist
from worker.adapters.kb_git.mirror import FileLock
from worker.adapters.kb_git.page_index import Found
from worker.adapters.kb_git.ranking import fused
from worker.clock import SystemClock


class LetterEncoder:
    """One direction a letter; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: list[str]) -> Any:
        np = importlib.import_module("numpy")
        self.asked += texts
        rows = np.zeros((len(texts), SIZE))
        for row, text in zip(rows, texts, strict=True):
            for letter in text:
                row[ord(letter) % SIZE] += 1
            row /= np.linalg.norm(row) or 1
        return rows


def open_vectors(folder: Path, encoder: LetterEncoder) -> Vectors:
    return Vectors(folder, encoder, FileLock(folder / "lock", SystemClock(), 0.0))


def test_vectors_are_made_once_for_a_blob_and_found_by_nearness(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="the extra `dense` is not installed")
    encoder = LetterEncoder()
    vectors = open_vectors(tmp_path / "v", encoder)
    texts = {"1" * 40: "aaab", "2" * 40: "bbbb", "3" * 40: "cccc"}
    wanted = [(blob, lambda text=text: text) for blob, text in texts.items()]
    assert vectors.nearest("a", 2) == []
    assert vectors.fill(wanted) == 3
    assert open_vectors(tmp_path / "v", encoder).fill(wanted) == 0
    assert encoder.asked.count("bbbb") == 1
    assert open_vectors(tmp_path / "v", encoder).nearest("b", 2) == ["2" * 40, "1" * 40]


@pytest.mark.parametrize(("name", "keep"), [("vectors", SIZE + 10), ("blobs", 50)])
def test_a_killed_filler_leaves_only_whole_rows(tmp_path: Path, name: str, keep: int) -> None:
    pytest.importorskip("numpy", reason="the extra `dense` is not installed")
    encoder, folder = LetterEncoder(), tmp_path / "v"
    wanted = [(str(number) * 40, lambda number=number: "abcd"[number] * 3) for number in range(4)]
    open_vectors(folder, encoder).fill(wanted)
    with (folder / name).open("r+b") as file:
        file.truncate(keep)
    assert open_vectors(folder, encoder).fill(wanted) == 3
    again = open_vectors(folder, encoder)
    assert [again.nearest("abcd"[number], 1) for number in range(4)] == [[str(number) * 40] for number in range(4)]


def test_the_gist_is_title_and_prose() -> None:
    body = "# 标题 {#anchor}\n\n```js\nconst x = 1\n```\n\n正文 **重点** [链接](https://x.invalid/a)。\n"
    assert page_gist("题", body) == "题。标题 正文 重点 [链接 。"


def test_pages_that_both_legs_name_come_first() -> None:
    def found(*paths: str) -> list[Found]:
        return [Found(1.0, None, {"facts": {"path": path}}) for path in paths]  # type: ignore[arg-type]

    assert [hit.path for hit in fused([found("a", "b", "c"), found("c", "d")], 3)] == ["c", "a", "b"]
    assert fused([[], []], 3) == []
