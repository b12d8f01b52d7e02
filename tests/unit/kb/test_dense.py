"""The second leg: vectors of passages by blob, appended once, nearest first; and rankings made one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from worker.adapters.kb_git.dense import SIZE, Vectors
from worker.adapters.kb_git.file_lock import FileLock
from worker.adapters.kb_git.page_index import Found
from worker.adapters.kb_git.passages import page_passages
from worker.adapters.kb_git.ranking import Query, fused
from worker.clock import SystemClock
from worker.log import FIELDS


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


def ids(*letters: str) -> list[str]:
    return [letter * 40 for letter in letters]


def test_vectors_are_made_once_for_a_blob_and_found_by_its_nearest_passage(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="the extra `dense` is not installed")
    encoder = LetterEncoder()
    vectors = open_vectors(tmp_path / "v", encoder)
    texts = {"1": ["aaab", "xyz"], "2": ["qqqq", "bbbb"], "3": ["cccc"]}
    wanted = [(name * 40, lambda passages=passages: passages) for name, passages in texts.items()]
    assert vectors.nearest(["a"], 2) == []
    assert vectors.fill(wanted) == 3
    assert open_vectors(tmp_path / "v", encoder).fill(wanted) == 0
    assert encoder.asked.count("bbbb") == 1
    again = open_vectors(tmp_path / "v", encoder)
    assert again.count() == 3
    assert again.known() == set(ids("1", "2", "3"))
    assert again.nearest(["b"], 2) == ids("2", "1")
    assert set(again.nearest(["c", "q"], 2)) == set(ids("3", "2"))  # near to either of two ways to ask


def test_among_very_many_passages_the_nearest_is_still_found(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy", reason="the extra `dense` is not installed")
    chance = np.random.default_rng(7)

    class Directions:
        def encode(self, texts: list[str]) -> Any:
            return np.stack([places[text] for text in texts])

    names = [f"{number:040x}" for number in range(2_100)]
    places = {f"{name}.{part}": chance.standard_normal(SIZE) for name in names for part in range(16)}
    places = {text: place / np.linalg.norm(place) for text, place in places.items()}
    vectors = Vectors(tmp_path / "v", Directions(), FileLock(tmp_path / "v" / "lock", SystemClock(), 0.0))
    vectors.fill([(name, lambda name=name: [f"{name}.{part}" for part in range(16)]) for name in names])
    for name in names[::300]:
        noisy = places[f"{name}.3"] + 0.03 * chance.standard_normal(SIZE)
        places["asked"] = noisy / np.linalg.norm(noisy)
        assert vectors.nearest(["asked"], 5)[0] == name


@pytest.mark.parametrize(("name", "keep"), [("vectors", SIZE * 5 + 10), ("blobs", 41 * 5 + 9), ("signs", 64 * 5)])
def test_a_killed_filler_leaves_only_whole_pages(tmp_path: Path, name: str, keep: int) -> None:
    pytest.importorskip("numpy", reason="the extra `dense` is not installed")
    encoder, folder = LetterEncoder(), tmp_path / "v"
    wanted = [(letter * 40, lambda letter=letter: [letter * 3, letter + "z"]) for letter in "abcd"]
    open_vectors(folder, encoder).fill(wanted)
    with (folder / name).open("r+b") as file:
        file.truncate(keep)
    assert open_vectors(folder, encoder).fill(wanted) == 2  # c, of which half was there, and d
    again = open_vectors(folder, encoder)
    assert [again.nearest([letter], 1) for letter in "abcd"] == [ids(letter) for letter in "abcd"]


def test_who_fills_tells_when_nothing_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="the extra `dense` is not installed")
    vectors, told = open_vectors(tmp_path / "v", LetterEncoder()), []
    vectors.fill_later(lambda: [("1" * 40, lambda: ["aa"])], lambda: told.append("whole"))
    vectors.wait_until_filled(20.0)
    assert told == ["whole"]
    with FileLock(tmp_path / "v" / "lock", SystemClock(), 0.0).held() as is_ours:
        assert is_ours
        assert open_vectors(tmp_path / "v", LetterEncoder()).fill([]) is None


def test_passages_are_prose_behind_the_title_in_windows() -> None:
    body = "# 标题 {#anchor}\n\n```js\nconst x = 1\n```\n\n正文 **重点** [链接](https://x.invalid/a)。\n"
    assert page_passages("题", body) == ["题。标题： 正文 重点 [链接 。"]
    long = page_passages("题", "字" * 1_000 + "\n\n末尾")
    assert [len(passage) for passage in long] == [352, 352, 305]
    assert long[-1].endswith("末尾")
    assert page_passages("题", "") == ["题。"]
    assert len(page_passages("题", "句子。\n" * 100_000)) == 16


def found(*paths: str) -> list[Found]:
    return [Found(1.0, None, {"facts": {"path": path}}) for path in paths]  # type: ignore[arg-type]


ALL_KNOWN, HARDLY_KNOWN = Query({}, 1.0, []), Query({}, 0.1, [])


def test_pages_that_both_legs_name_come_first() -> None:
    both = fused(HARDLY_KNOWN, found("a", "b", "c"), found("c", "d"), 3)
    assert [hit.path for hit in both] == ["c", "a", "b"]
    assert fused(ALL_KNOWN, [], [], 3) == []


def test_meaning_weighs_less_the_better_the_pages_know_the_questions_words() -> None:
    text, near = found(*"abcdefgh"), found(*"stuvwxyz")
    unsure = [hit.path for hit in fused(HARDLY_KNOWN, text, near, 8)]
    sure = [hit.path for hit in fused(ALL_KNOWN, text, near, 8)]
    assert (unsure[0], "s" in unsure) == ("a", True)
    assert sure == list("abcdefgh")


def test_a_background_that_fails_says_why_in_a_field_that_the_log_shows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = open_vectors(tmp_path / "v", LetterEncoder())

    def gone() -> Any:
        raise OSError("no space left")

    vectors.fill_later(gone, lambda: pytest.fail("nothing was filled"))
    vectors.wait_until_filled(30)

    assert [getattr(record, FIELDS) for record in caplog.records] == [{"reason": "OSError: no space left"}]


def test_damaged_vectors_cost_the_second_leg_and_not_the_question(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("numpy", reason="the extra `dense` is not installed")
    vectors = open_vectors(tmp_path / "v", LetterEncoder())
    vectors.fill([("1" * 40, lambda: ["aaab"])])
    blobs = tmp_path / "v" / "blobs"
    blobs.write_bytes(b"\xff" * blobs.stat().st_size)

    assert vectors.nearest(["a"], 2) == []
    assert [getattr(record, FIELDS)["cure"] for record in caplog.records] == [
        f"if it stays, delete {tmp_path / 'v'}: it is made again"
    ]
