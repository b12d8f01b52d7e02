"""``catalog.json``: found as other people wrote it, changed only where something new is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.kb import catalog, catalog_edit

NOW = "2026-11-30T12:00:00Z"


def entry(path: str, **more: object) -> dict[str, Any]:
    return {"path": path, "title": f"标题 {path}", "type": "concept", "keywords": ["甲", "乙"], "sourceIds": [], **more}


def document(*entries: object) -> dict[str, Any]:
    return {"version": 1, "updatedAt": "2026-01-01T00:00:00Z", "pages": list(entries)}


def jackson(value: Any) -> str:
    """What Jackson's default pretty printer writes for one list of flat entries."""
    pages = ", ".join(
        "{\n" + ",\n".join(f"    {json.dumps(k)} : {_jackson_value(v)}" for k, v in page.items()) + "\n  }"
        for page in value["pages"]
    )
    return f'{{\n  "version" : 1,\n  "updatedAt" : "{value["updatedAt"]}",\n  "pages" : [ {pages} ]\n}}'


def _jackson_value(value: Any) -> str:
    if isinstance(value, list):
        return "[ " + ", ".join(json.dumps(item, ensure_ascii=False) for item in value) + (" ]" if value else "]")
    return json.dumps(value, ensure_ascii=False)


def one_entry_a_line(value: Any) -> str:
    lines = ",\n".join(json.dumps(page, ensure_ascii=False) for page in value["pages"])
    return f'{{"version": 1, "updatedAt": "{value["updatedAt"]}", "pages": [\n{lines}\n]}}\n'


LAYOUTS: dict[str, Callable[[Any], str]] = {
    "two spaces": lambda value: json.dumps(value, ensure_ascii=False, indent=2) + "\n",
    "four spaces, no final line break": lambda value: json.dumps(value, ensure_ascii=False, indent=4),
    "tabs": lambda value: json.dumps(value, ensure_ascii=False, indent="\t") + "\n",
    "CRLF": lambda value: json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\r\n") + "\r\n",
    "compact": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "one line": lambda value: json.dumps(value, ensure_ascii=False),
    "one entry a line": one_entry_a_line,
    "escaped": lambda value: json.dumps(value, indent=2),
    "Jackson": jackson,
    "BOM": lambda value: "\ufeff" + json.dumps(value, ensure_ascii=False, indent=2),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def put(data: bytes, *entries: dict[str, Any], now: str = NOW) -> bytes:
    return catalog_edit.upsert(catalog.parse(data), entries, now)


# ---------------------------------------------------------------- layout


@every_layout
@pytest.mark.parametrize("path", ["a/first.md", "c/middle.md", "z/last.md"])
def test_a_new_entry_looks_as_if_the_old_writer_had_written_it(layout: Callable[[Any], str], path: str) -> None:
    old, new = [entry("b/1.md"), entry("d/2.md")], entry(path)
    before = layout(document(*old)).encode()
    expected = document(*sorted([*old, new], key=lambda e: e["path"])) | {"updatedAt": NOW}
    assert put(before, new).decode() == layout(expected)


@every_layout
def test_an_unsorted_catalog_gets_new_entries_at_its_end(layout: Callable[[Any], str]) -> None:
    old = [entry("d/2.md"), entry("b/1.md")]
    after = put(layout(document(*old)).encode(), entry("c/new.md"), entry("a/new.md"))
    assert after.decode() == layout(document(*old, entry("c/new.md"), entry("a/new.md")) | {"updatedAt": NOW})


@every_layout
def test_a_known_entry_of_ours_is_united_and_its_neighbours_keep_their_bytes(layout: Callable[[Any], str]) -> None:
    before = document(entry("a.md"), entry("qa/x.md", reviewedBy="李", nested={"n": [1, {"k": "v"}]}), entry("z.md"))
    ours = entry("qa/x.md", title="新标题", keywords=["乙", "丙"], sourceIds=[7])
    after = put(layout(before).encode(), ours)
    united = entry("qa/x.md", title="新标题", keywords=["甲", "乙", "丙"], sourceIds=[7])
    united |= {"reviewedBy": "李", "nested": {"n": [1, {"k": "v"}]}}
    assert json.loads(after.decode("utf-8-sig"))["pages"] == [entry("a.md"), united, entry("z.md")]
    for neighbour in ("a.md", "z.md"):
        old = next(bytes(raw) for raw in catalog.parse(layout(before).encode()).raw if neighbour.encode() in bytes(raw))
        assert old in after


def test_odd_bytes_of_other_entries_survive() -> None:
    odd = b'{ "path":"b.md",\n\n "title" : "\\u4e2d\\/x", "size": 1.50, "big": 12345678901234567890, "e": 1E3 }'
    before = b'{"pages":[' + odd + b' ,\n null, "text", {"title":"no path"}], "x-owner": {"a":1},"updatedAt":null}'
    after = put(before, entry("a.md"))
    assert odd in after
    assert b'"x-owner": {"a":1}' in after
    assert json.loads(after)["pages"][1:4] == [None, "text", {"title": "no path"}]
    assert json.loads(after)["pages"][4]["path"] == "a.md"
    assert json.loads(after)["updatedAt"] == NOW


@pytest.mark.parametrize(
    "empty", ['{"version": 1, "pages": []}', '{\n    "version": 1,\n    "pages": [\n    ]\n}', "{}", '{"a": 1}']
)
def test_a_catalog_without_entries_takes_its_first(empty: str) -> None:
    after = json.loads(put(empty.encode(), entry("qa/x.md")))
    assert after["pages"] == [entry("qa/x.md")]
    assert after["updatedAt"] == NOW
    assert (
        json.loads(empty).items() - {("pages", "")} <= {**after, "pages": None}.items() if empty == '{"a": 1}' else True
    )


def test_indentation_of_a_catalog_without_entries_is_taken_from_its_top_level() -> None:
    before = json.dumps(document(), indent=4)
    assert put(before.encode(), entry("qa/x.md")).decode() == json.dumps(
        document(entry("qa/x.md")) | {"updatedAt": NOW}, indent=4, ensure_ascii=False
    )


def test_a_new_catalog_is_plain_and_sorted() -> None:
    made = catalog_edit.create([entry("b.md"), entry("a.md")], NOW)
    assert made.decode() == LAYOUTS["two spaces"](document(entry("a.md"), entry("b.md")) | {"updatedAt": NOW})


# ---------------------------------------------------------------- what is wrong is said


@pytest.mark.parametrize(
    ("data", "en"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"pages": [}', "not valid JSON"),
        (b'{"pages": [1,]}', "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"pages": {}}', "pages is not a list"),
        (b'{"pages": null}', "pages is not a list"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"pages":[],"pages":[{"path":"a.md"}]}', "twice"),
        (b'{"a":1,"b":2,"a":33}', "twice"),
        (b"<<<<<<< HEAD\n{}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_bytes_that_are_no_catalog_are_refused_with_the_reason(data: bytes, en: str) -> None:
    with pytest.raises(catalog.CatalogError) as caught:
        catalog.parse(data)
    assert en in caught.value.en
    assert caught.value.zh
    assert not re.search(r"[A-Za-z]+ [A-Za-z]+", caught.value.zh), "a team member reads it in errors[]"


def test_odd_but_readable_catalogs_are_read_with_a_note() -> None:
    data = b'\xef\xbb\xbf{"pages": [{"path": "a.md", "title": "1"}, {"path": "a.md"}, {"path": 5}, null]}'
    read = catalog.parse(data)
    assert [note.code for note in read.notes()] == [
        "CATALOG_BOM", "CATALOG_ENTRY_WITHOUT_PATH", "CATALOG_DUPLICATE_PATH",
    ]  # fmt: skip
    facts = read.facts("a.md")
    assert facts
    assert facts.title == "1"


def test_a_number_that_no_double_holds_keeps_its_bytes() -> None:
    assert b'{"path":"a.md","n":1e999}' in put(b'{"pages":[{"path":"a.md","n":1e999}]}', entry("b.md"))


def test_a_whole_number_of_thousands_of_digits_bars_no_reading() -> None:
    read = catalog.parse(b'{"pages":[{"path":"a.md","title":"A","updatedAt":%s}]}' % (b"9" * 5_000))
    facts = read.facts("a.md")
    assert facts
    assert facts.title == "A"


def test_entry_values_of_another_kind_are_tolerated() -> None:
    odd = {"path": "a.md", "title": None, "kbType": "note", "keywords": "单个", "projectIds": [True, None, 3, "x", {}],
           "sourceIds": list(range(20)), "updatedAt": 20260101, "relatedPages": {"a": 1}}  # fmt: skip
    facts = catalog.parse(json.dumps({"pages": [odd]}).encode()).facts("a.md")
    assert facts is not None
    assert (facts.title, facts.type, facts.kb_type) == ("", "note", "note")
    assert facts.keywords == ("单个",)
    assert facts.project_ids == (3, "x")
    assert facts.source_ids == tuple(range(10))
    assert facts.updated_at == "20260101"
    assert facts.related_pages == ()
    assert catalog.parse(b'{"pages": []}').facts("a.md") is None


# ---------------------------------------------------------------- any history

names = st.text("abc/xyz中é", min_size=1, max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda v: st.lists(v, max_size=3), max_leaves=4
)
foreign = st.fixed_dictionaries({"path": names}, optional={"title": values, "keywords": values, "x": values})
ours = st.builds(lambda name, n: entry(f"qa/{name}.md", sourceIds=[n]), names, st.integers(0, 3))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(foreign, max_size=5),
    st.lists(ours, max_size=4),
    st.lists(ours, max_size=4),
    st.sampled_from(sorted(LAYOUTS)),
)
def test_two_histories_in_either_order_lose_no_entry_and_keep_foreign_bytes(
    old: list[dict[str, Any]], one: list[dict[str, Any]], two: list[dict[str, Any]], name: str
) -> None:
    before = LAYOUTS[name](document(*old)).encode()
    kept = [bytes(raw) for raw in catalog.parse(before).raw]
    results = []
    for first, second in ((one, two), (two, one)):
        after = put(put(before, *first), *second) if first or second else put(before)
        read = catalog.parse(after)
        assert all(read.entry(page["path"]) for page in [*old, *one, *two])
        assert len(read.raw) == len(old) + len({page["path"] for page in [*one, *two]})
        for number, raw in enumerate(kept):
            assert raw in after or old[number]["path"] in {page["path"] for page in [*one, *two]}
        if [page["path"] for page in old] == sorted(page["path"] for page in old):
            assert read.is_sorted
        results.append({path: {*map(str, (read.entry(path) or {}).get("sourceIds") or [])} for path in read.positions})  # type: ignore[call-overload]
    assert results[0] == results[1]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(foreign, max_size=5),
    st.lists(st.lists(ours, min_size=1, max_size=4), max_size=3),
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(["updatedAt first", "updatedAt last", "no updatedAt"]),
)
def test_after_an_edit_everything_lies_where_a_new_look_finds_it(
    old: list[dict[str, Any]], batches: list[list[dict[str, Any]]], name: str, order: str
) -> None:
    made = document(*old)
    date = made.pop("updatedAt")
    made = {"updatedAt": date, **made} if order == "updatedAt first" else {**made, "updatedAt": date}
    if order == "no updatedAt" and name not in ("Jackson", "one entry a line"):
        del made["updatedAt"]
    known = catalog.parse(LAYOUTS[name](made).encode())
    for number, batch in enumerate(batches):
        known = catalog_edit.upserted(known, batch, f"later by {number}")
        assert known == catalog.parse(catalog_edit.as_file(known))
