"""Which pages a selection names: every spelling of a page finds it, nothing else is ever read."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contract.selection import PageSelection, ReadLevel, SelectedPage
from tasks.kb.paths import is_hidden, problem_with_page_path
from tasks.rules.reply import read_selection
from tasks.rules.selection import choose_pages, resolve_path

PAGES = frozenset({"notes/自增 主键.md", "notes/a.md", "projects/b%20c.md", "notes/README.md", "d#e.md", "概念/é.md"})


def selection(*paths: str, level: ReadLevel = ReadLevel.EXACT) -> PageSelection:
    return PageSelection(selected_pages=tuple(SelectedPage(path=path, reason="用") for path in paths), read_level=level)


@pytest.mark.parametrize(
    ("written", "page"),
    [
        ("notes/a.md", "notes/a.md"),
        ("/notes/a.md", "notes/a.md"),
        ("./notes/a.md", "notes/a.md"),
        ("notes//./a.md", "notes/a.md"),
        ("notes\\a.md", "notes/a.md"),
        (" \tnotes/a.md\n", "notes/a.md"),
        ("`notes/a.md`", "notes/a.md"),
        ("“notes/a.md”", "notes/a.md"),
        ("《notes/a》", "notes/a.md"),
        ("notes/a", "notes/a.md"),
        ("[[notes/a]]", "notes/a.md"),
        ("[[notes/a.md|别名]]", "notes/a.md"),
        ("[别名](notes/a.md)", "notes/a.md"),
        ("[别名](<notes/a.md>)", "notes/a.md"),
        ("notes/a.md#用法", "notes/a.md"),
        ("notes/a#用法", "notes/a.md"),
        ("notes/a.md?plain=1", "notes/a.md"),
        ("notes%2Fa.md", "notes/a.md"),
        ("notes/%E8%87%AA%E5%A2%9E%20%E4%B8%BB%E9%94%AE.md", "notes/自增 主键.md"),
        ("notes/\u200ba.md", "notes/a.md"),
        (unicodedata.normalize("NFD", "概念/é.md"), "概念/é.md"),
        ("projects/b%20c.md", "projects/b%20c.md"),
        ("d#e.md", "d#e.md"),
        ("notes/README", "notes/README.md"),
    ],
)
def test_every_spelling_finds_its_page(written: str, page: str) -> None:
    assert resolve_path(written, PAGES.__contains__) == (page, "")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("notes/missing.md", "unknown"),
        ("Notes/A.md", "unknown"),
        ("", "unknown"),
        ("  ", "unknown"),
        ("README.md", "hidden"),
        ("/index.md", "hidden"),
        ("catalog.json", "hidden"),
        ("AGENTS", "hidden"),
        (".kb/schema.json", "hidden"),
        ("source_files/git/x.md", "hidden"),
        (".git/config", "hidden"),
        (".gitea/x.md", "hidden"),
        ("../etc/passwd", "unsafe"),
        ("notes/../a.md", "unsafe"),
        ("notes/../notes/a.md", "unsafe"),
        ("..\\a.md", "unsafe"),
        ("%2e%2e/a.md", "unsafe"),
        ("..%252f..%252fetc", "unsafe"),
        ("/etc/passwd", "unsafe"),
        ("//host/share", "unsafe"),
        ("\\\\host\\share", "unsafe"),
        ("file:///notes/a.md", "unsafe"),
        ("https://host/notes/a.md", "unsafe"),
        ("C:\\notes\\a.md", "unsafe"),
        ("c:/notes/a.md", "unsafe"),
        ("~/notes/a.md", "unsafe"),
        ("notes/a.md\x00.txt", "unsafe"),
        ("[[../a]]", "unsafe"),
        ("x" * 5_000, "unsafe"),
    ],
)
def test_what_names_no_page_says_why(written: str, reason: str) -> None:
    assert resolve_path(written, PAGES.__contains__) == ("", reason)


def test_a_hidden_file_is_not_read_even_when_it_is_said_to_be_visible() -> None:
    assert resolve_path("README.md", lambda path: True) == ("", "hidden")
    assert resolve_path("../x.md", lambda path: True) == ("", "unsafe")


def test_the_limit_counts_what_is_left_after_the_others_are_dropped() -> None:
    chosen = choose_pages(
        selection("missing.md", "notes/a.md", "/notes/a.md", "../x", "notes/自增 主键.md", "d#e.md", "missing.md"),
        visible=PAGES.__contains__,
        limit=2,
    )
    assert [page.path for page in chosen.pages] == ["notes/a.md", "notes/自增 主键.md"]
    assert [(page.path, page.reason) for page in chosen.missing] == [
        ("missing.md", "unknown"),
        ("/notes/a.md", "duplicate"),
        ("../x", "unsafe"),
        ("d#e.md", "over_limit"),
        ("missing.md", "unknown"),
    ]


def test_a_page_beyond_the_limit_that_was_already_chosen_is_a_duplicate() -> None:
    chosen = choose_pages(selection("notes/a.md", "notes/a"), visible=PAGES.__contains__, limit=1)
    assert [page.reason for page in chosen.missing] == ["duplicate"]


def test_a_changed_path_is_noted_and_keeps_its_reason() -> None:
    chosen = choose_pages(selection("/notes/a"), visible=PAGES.__contains__, limit=6)
    assert chosen.pages[0].reason == "用"
    assert [(note.code, note.path, note.field) for note in chosen.notes] == [
        ("PATH_NORMALIZED", "notes/a.md", "selectedPages[0].path")
    ]
    assert chosen.read_level is ReadLevel.NORMALIZED


def test_the_read_level_never_improves() -> None:
    repaired = selection("notes/a.md", level=ReadLevel.REPAIRED)
    assert choose_pages(repaired, visible=PAGES.__contains__, limit=6).read_level is ReadLevel.REPAIRED
    assert choose_pages(selection("notes/a.md"), visible=PAGES.__contains__, limit=6).read_level is ReadLevel.EXACT
    assert choose_pages(selection("x"), visible=PAGES.__contains__, limit=6).read_level is ReadLevel.NORMALIZED


def test_the_corpus_of_odd_selections(shared: Callable[[str], Path]) -> None:
    folder = shared("model_replies")
    visible = frozenset(json.loads((folder / "catalog_paths.json").read_text()))
    limit = json.loads((folder / "context_stub.json").read_text())["analysisLimits"]["maxSelectedPages"]
    seen = 0
    for case in json.loads((folder / "manifest.json").read_text())["cases"]:
        expect = case["expect"]
        if case["kind"] != "selection" or expect["outcome"] != "accepted":
            continue
        chosen = choose_pages(
            read_selection((folder / case["file"]).read_bytes()), visible=visible.__contains__, limit=limit
        )
        seen += 1
        assert [page.path for page in chosen.pages] == expect["paths"], case["id"]
        assert chosen.read_level == expect["level"], case["id"]
        assert len(chosen.missing) == expect.get("missing", expect.get("dropped", len(chosen.missing))), case["id"]
        assert not {page.path for page in chosen.pages} & set(expect.get("mustNotContain", ())), case["id"]
    assert seen == 10


PATHISH = st.lists(
    st.sampled_from(
        ["..", ".", "/", "\\", "%2e", "%2f", "%5c", "notes", "a", ".md", "[[", "]]", "|", "#", ":", "C", "~"]
    )
    | st.sampled_from([".git", ".kb", "source_files", "README.md", "\x00", "\u202e", " ", "file://"]),
    max_size=12,
).map("".join)


@given(PATHISH | st.text())
@settings(deadline=None)
def test_whatever_is_written_only_a_safe_visible_page_is_read(written: str) -> None:
    path, reason = resolve_path(written, lambda path: True)
    assert bool(path) != bool(reason)
    if path:
        assert problem_with_page_path(path) is None
        assert not is_hidden(path)
    assert resolve_path(written, lambda path: False)[0] == ""
