"""The local source files: found by the question's words, read only, never beyond their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.knowledge.found import Status
from worker.adapters.kb_git.terms import count_terms
from worker.adapters.weknora.local_md import LocalCards, split_cards

QUESTION = "找一条 被刁难的摊主 预期反转 夜市炒面 的 钩子 型事件素材"
CARDS = "# 市井\n\n导语\n\n## 炒面摊\n编号：1-1\n夜市炒面摊主被刁难\n\n## 修表\n编号：1-2\n老街修表铺的下午\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "references" / "素材库"
    found.mkdir(parents=True)
    return found


def test_the_card_about_it_is_found_and_the_others_are_not(folder: Path, tmp_path: Path) -> None:
    file = folder / "市井.md"
    file.write_text(CARDS, "utf-8")
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    found = LocalCards(tmp_path, count_terms).find("任何库", QUESTION, timeout=1)
    assert [hit.content.splitlines()[1] for hit in found.hits] == ["编号：1-1"]
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_changes_are_seen_and_counts_are_bounded(folder: Path, tmp_path: Path) -> None:
    source = LocalCards(tmp_path, count_terms, match_count=2)
    assert source.find("", QUESTION, timeout=1).status is Status.ZERO_HIT
    for number in range(4):
        (folder / f"{number}.md").write_text(f"## 卡{number}\n夜市炒面摊主被刁难\n", "utf-8")
    assert len(source.find("", QUESTION, timeout=1).hits) == 2
    for path in folder.iterdir():
        path.unlink()
    assert source.find("", QUESTION, timeout=1).status is Status.ZERO_HIT


def test_without_the_folder_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert LocalCards(tmp_path, count_terms).find("", QUESTION, timeout=1).status is Status.UNAVAILABLE


def test_links_out_of_the_folder_and_other_files_are_not_read(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("## 外面\n夜市炒面摊主被刁难\n", "utf-8")
    (folder / "link.md").symlink_to(outside)
    (folder / "notes.txt").write_text("夜市炒面摊主被刁难", "utf-8")
    assert LocalCards(tmp_path, count_terms).find("", QUESTION, timeout=1).status is Status.ZERO_HIT


def test_the_frame_of_the_question_finds_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "a.md").write_text("## 说明\n找一条型事件素材的方法\n", "utf-8")
    question = "找一条 火车司机 错位 站台 的 留人 型事件素材"
    assert LocalCards(tmp_path, count_terms).find("", question, timeout=1).status is Status.ZERO_HIT


@pytest.mark.parametrize("question", ["找一条 锅 错位 Repairing 的 留人 型事件素材", "repair_shops 里的 锅"])
def test_a_card_is_found_by_the_same_terms_as_a_page(folder: Path, tmp_path: Path, question: str) -> None:
    (folder / "a.md").write_text("## 一只 锅\n编号：2-1\nrepairs\n\n## 另一张\n编号：2-2\n台灯\n", "utf-8")
    found = LocalCards(tmp_path, count_terms).find("", question, timeout=1)
    assert [hit.content.splitlines()[1] for hit in found.hits] == ["编号：2-1"]


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("没有标题的一张卡", 1), ("---\nid: 1\n---\n正文", 1), ("# 空\n", 0), (CARDS, 2)]
)
def test_how_files_are_cut_into_cards(text: str, count: int) -> None:
    assert len(split_cards(text)) == count
