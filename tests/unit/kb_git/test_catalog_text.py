"""The kept catalog: after any edits it says what the new text says, and what is damaged is never believed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tasks.kb.catalog import parse
from worker.adapters.kb_git import catalog_text
from worker.adapters.kb_git.catalog_text import CatalogDiff, CatalogText
from worker.adapters.kb_git.deltas import Edit

LAYOUTS: dict[str, dict[str, Any]] = {
    "two spaces": {"indent": 2},
    "compact": {"separators": (",", ":")},
    "escaped": {"ensure_ascii": True, "indent": "\t"},
}


def text_of(pages: dict[str, dict[str, Any]], layout: dict[str, Any], *, order: int = 0, date: str = "d") -> bytes:
    paths = sorted(pages)
    random.Random(order).shuffle(paths) if order else None
    document = {"version": 1, "updatedAt": date, "pages": [pages[path] for path in paths]}
    return json.dumps(document, **{"ensure_ascii": False, **layout}).encode()


def page(path: str, **more: object) -> dict[str, Any]:
    return {"path": path, "title": f"标题 {path}", "keywords": ["甲", "{", "]"], **more}


def kept(data: bytes) -> CatalogText:
    text = CatalogText.of(parse(data))
    assert text is not None
    return text


def entries_of(data: bytes) -> dict[str, bytes]:
    catalog = parse(data)
    return {path: bytes(catalog.raw[number]) for path, number in catalog.positions.items()}


def changed(pages: dict[str, dict[str, Any]], chance: random.Random, step: int) -> dict[str, dict[str, Any]]:
    now = dict(pages)
    for _ in range(chance.randint(1, 4)):
        path = chance.choice(sorted(now))
        match chance.choice(["add", "add", "drop", "retitle"]):
            case "add":
                new = f"{chance.choice('abqz')}/{step}-{chance.randrange(999)}.md"
                now[new] = page(new)
            case "drop" if len(now) > 2:
                del now[path]
            case _:
                now[path] = page(path, title=f"neu {step}")
    return now


@pytest.mark.parametrize("order", [0, 5], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("seed", range(4))
def test_after_any_edits_it_says_what_the_new_text_says(
    seed: int, layout: dict[str, Any], order: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    pages = {path: page(path) for path in (f"p/{number:03}.md" for number in range(60))}
    data = text_of(pages, layout, order=order)
    text = kept(data)
    for step in range(8):
        pages = changed(pages, chance, step)
        old, data = data, text_of(pages, layout, order=order and step + 1, date=f"d{step}")
        found = text.compared(data)
        assert found is not None
        text, diff = found
        before, after = entries_of(old), entries_of(data)
        assert diff.put == {path: raw for path, raw in after.items() if before.get(path) != raw}
        assert diff.gone == {path for path, raw in before.items() if after.get(path) != raw}
        assert (text.whole(), text.size) == (data, len(data))
        if not order:
            assert {path: text.entry(path) for path in after} == after
        assert text.entry("not/there.md") is None
        folder = tmp_path / str(step)
        folder.mkdir()
        text = CatalogText.open(folder, text.write(folder))
        assert text.whole() == data


def test_many_edits_are_settled_into_one_text() -> None:
    pages = {path: page(path, about=1_500 * "x") for path in (f"p/{number:05}.md" for number in range(3_000))}
    layout = LAYOUTS["two spaces"]
    data = text_of(pages, layout)
    for number in range(0, 3_000, 2):
        pages[f"p/{number:05}.md"]["title"] = "neu"
    new = text_of(pages, layout)
    found = kept(data).compared(new)
    assert found is not None
    settled = found[0].settled()
    assert settled is not found[0]
    assert settled.whole() == new
    assert {path: settled.entry(path) for path in pages} == entries_of(new)
    again = settled.edited([Edit(15, 16, b"2")])
    assert again is not None
    assert again[0].whole() == new[:15] + b"2" + new[16:]


@pytest.mark.parametrize(
    "after",
    [
        b'{"pages": [{"path": "a.md"}], "later": 1}',
        b'{"pages": {"path": "a.md"}}',
        b'{"pages": [{"path": "a.md"}, 5]}',
        b'{"pages": [{"path": "a.md"}, {"path": "a.md"}]}',
        b'{"pages": [{"path": "a.md"}, {"title": "x"}]}',
        b'{"pages": [{"path": "e\xcc\x81.md"}]}',
        b'{"pages": [{"path": "a.md", "title": "\xff"}]}',
        b'\xef\xbb\xbf{"pages": [{"path": "a.md"}]}',
        b'{"pages": [{"path": "a.md"}',
        b"",
    ],
)
def test_what_is_no_plain_list_any_more_is_left_to_a_whole_look(after: bytes) -> None:
    before = b'{"pages": [{"path": "a.md", "title": "x"}]}'
    assert kept(before).compared(after) is None


@pytest.mark.parametrize("name", [catalog_text.TEXT, catalog_text.SPANS, catalog_text.SUMS, catalog_text.EDITS])
def test_a_damaged_file_is_not_believed(name: str, tmp_path: Path) -> None:
    pages = {path: page(path) for path in (f"p/{number:03}.md" for number in range(60))}
    marks = kept(text_of(pages, {"indent": 2})).write(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        CatalogText.open(tmp_path, marks).edited([Edit(15, 16, b"2")])
    (tmp_path / name).write_bytes(data[:-8])
    with pytest.raises(ValueError, match=r"damaged|size"):
        CatalogText.open(tmp_path, marks)


def test_two_differences_are_one_after_the_other() -> None:
    first = CatalogDiff(frozenset({"a"}), {"b": b"1", "c": b"1"})
    assert first.then(CatalogDiff(frozenset({"b"}), {"d": b"2"})) == CatalogDiff(
        frozenset({"a", "b"}), {"c": b"1", "d": b"2"}
    )
