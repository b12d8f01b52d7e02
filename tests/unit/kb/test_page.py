"""Page text: every odd frontmatter of the shared corpus, any text at all, and what a title may look like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.contract import strict_json
from tasks.kb.headings import first_heading, headings
from tasks.kb.page import decode, page_facts, read_page, source_traces

MANIFEST = Path(__file__).resolve().parents[4] / "shared" / "frontmatter" / "manifest.json"
CASES = json.loads(MANIFEST.read_text())["cases"] if MANIFEST.exists() else []


@pytest.mark.parametrize("case", CASES or [None], ids=lambda case: case["id"] if case else "corpus-not-here")
def test_real_odd_pages_give_what_a_sensible_reader_gets(
    case: dict[str, object] | None, shared: Callable[[str], Path]
) -> None:
    folder = shared("frontmatter")
    assert case is not None
    expect = case["expect"]
    assert isinstance(expect, dict)
    page = read_page(decode((folder / str(case["file"])).read_bytes()).text)
    body_start = next((line for line in page.body.splitlines() if line.strip()), "")
    assert page.outcome == expect["outcome"]
    assert page.problem == expect["problem"]
    assert page.title == expect["title"]
    assert page.type == expect["type"]
    assert page.tags == expect["tags"]
    assert [trace.document() for trace in source_traces(page.metadata)] == expect["sources"]
    if expect["bodyStart"] is not None:
        assert body_start.startswith(str(expect["bodyStart"]))
    json.dumps(page.metadata, allow_nan=False)


def test_the_notes_of_the_corpus_hold_too(shared: Callable[[str], Path]) -> None:
    files = shared("frontmatter") / "files"

    def page(name: str):  # type: ignore[no-untyped-def]
        return read_page(decode((files / f"{name}.md").read_bytes()).text)

    assert first_heading(page("F01").body) == "@MugishoMp"
    assert page("F15").detail == "conflict marker"
    assert first_heading(page("F29").body) == "Plugins"
    assert page("F24").metadata["modified"] == 20231122153916
    assert first_heading(page("F34").body)
    assert "\r\n" in page("F34").body


BOMB = "l0: &l0 [x]\n" + "".join(f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 7))
PIECES = [*"ab:-[]{}&*!|>'\"#?,@%`~ \t\n\r", "---\n", "\ufeff", "2024-13-45", "\ud800", "<<", "=", "1e400", "sources:"]
FENCED = st.lists(st.sampled_from(PIECES)).map("".join)


@given(
    st.one_of(
        st.text(), FENCED, FENCED.map(lambda text: f"---\n{text}\n---\nbody"), st.binary().map(lambda b: decode(b).text)
    )
)
def test_no_text_makes_reading_fail_and_what_is_read_is_what_is_cut(text: str) -> None:
    page = read_page(text)
    strict_json.dumps(page.metadata)
    json.dumps(page.metadata, allow_nan=False)
    bare = text.lstrip("\ufeff")
    assert bare.endswith(page.body)
    cut = bare[: len(bare) - len(page.body)]
    assert (page.outcome == "none") == (cut == "")
    if cut:
        assert re.fullmatch(r"---[ \t]*(\r\n|\n|\r).*---[ \t]*(\r\n|\n|\r|)", cut, re.DOTALL)
    facts = page_facts("qa/x.md", page, page.metadata)
    assert facts.title
    strict_json.dumps(facts.document())
    list(headings(page.body))
    assert len(source_traces(page.metadata)) <= 10


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_sources_value_gives_traces_of_scalars(value: object) -> None:
    for trace in source_traces({"sources": value}):
        assert all(isinstance(item, str | int | None) for item in trace.model_dump().values())


@pytest.mark.parametrize(
    ("block", "detail"),
    [
        ("a: [1, 2", "line"),
        ("- a\n- b", "no mapping"),
        ("just text", "no mapping"),
        ("<<<<<<< HEAD\ntitle: a\n=======\ntitle: b\n>>>>>>> x", "conflict marker"),
        ("a: &a [*a, *a]", "too many"),
        ("x: " + "[" * 3000, "line"),
        ("d: 2024-13-45", "month"),
        ("n: " + "9" * 5000, "digits"),
        (
            BOMB,
            "too many",
        ),
    ],
)
def test_a_block_that_is_no_usable_mapping_is_cut_and_reported(block: str, detail: str) -> None:
    page = read_page(f"---\n{block}\n---\n# Body\n")
    assert (page.outcome, page.problem, page.metadata, page.body) == ("broken", "yaml", {}, "# Body\n")
    assert detail in page.detail
    assert page.notes("a.md")[0].code == "FRONTMATTER_BROKEN"


def test_values_become_json_and_line_ends_do_not_matter() -> None:
    page = read_page(
        "\ufeff---  \r\nday: 2024-05-06\r\nat: 2024-05-06T08:00:00+08:00\r\nnan: .nan\r\n"
        "bin: !!binary aGk=\r\n1: x\r\nbig: 0x" + "f" * 30 + "\r\n---\r\n\r\nText\r\n"
    )
    assert page.metadata == {
        "day": "2024-05-06",
        "at": "2024-05-06T00:00:00Z",
        "nan": None,
        "bin": None,
        "1": "x",
        "big": str(int("f" * 30, 16)),
    }
    assert page.body == "\r\nText\r\n"


def test_an_empty_block_is_a_page_without_metadata() -> None:
    assert (read_page("---\n---\nx").outcome, read_page("---\n---\nx").body) == ("parsed", "x")


@pytest.mark.parametrize(
    ("markdown", "title"),
    [
        ("# 计算属性 {#computed}", "计算属性"),
        ("## A `<script>` **b** [c](d.md) ##", "A <script> b c"),
        ("Title\n===", "Title"),
        ("Two\nlines\n---", "Two lines"),
        ("- item\n---\n\n# Real", "Real"),
        ("---\n\n# Real", "Real"),
        ("```md\n# no\n```\n# Yes", "Yes"),
        ("~~~~\n# no\n~~~\n# still no\n~~~~\n# Yes", "Yes"),
        ("```\n# never closed", ""),
        ("    # code\n\n#tag\n\n# Yes", "Yes"),
        ("#\n# \n# Yes #", "Yes"),
        (r"# a \*\* {#x}", "a **"),
        ("# C#", "C#"),
        ("# foo() <sup class='x' /> {#foo}", "foo()"),
        ("para\r\n\r\n# CR\r\n", "CR"),
    ],
)
def test_first_heading(markdown: str, title: str) -> None:
    assert first_heading(markdown) == title


def test_frontmatter_wins_on_title_type_and_keywords_only() -> None:
    page = read_page(
        "---\ntitle: Own\ntype: note\nkeywords: [k]\nprojectIds: [own]\nupdatedAt: 2020-01-01\n---\n# Heading\n"
    )
    entry = {
        "title": "Cat",
        "type": "concept",
        "kbType": "concept",
        "keywords": ["c"],
        "projectIds": ["cat"],
        "sourceIds": [1, "2"],
    }
    facts = page_facts("a/b.md", page, entry)
    assert (facts.title, facts.type, facts.kb_type, facts.keywords) == ("Own", "note", "concept", ("k",))
    assert (facts.project_ids, facts.source_ids, facts.updated_at) == (("cat",), (1, "2"), "2020-01-01")


def test_titles_fall_back_from_catalog_to_heading_to_file_name() -> None:
    page = read_page("---\ntitle: [not, text]\n---\n# Heading\n")
    assert page_facts("a/b.md", page, {"title": "Cat"}).title == "Cat"
    assert page_facts("a/b.md", page, None).title == "Heading"
    assert page_facts("a/b.md", read_page("text"), None).title == "b"
    assert page_facts("a/b.md", None, None).title == "b"


def test_lists_hold_at_most_ten_items() -> None:
    page = read_page(
        "---\nkeywords: ["
        + ",".join(f"k{n}" for n in range(30))
        + "]\nrelatedPages: ["
        + ",".join(f"p{n}" for n in range(30))
        + "]\n---\n"
    )
    facts = page_facts("a.md", page, None)
    assert (len(facts.keywords), len(facts.related_pages)) == (10, 10)


def test_source_traces_keep_what_is_safe() -> None:
    traces = source_traces(
        {
            "sources": [
                {
                    "sourceId": 7,
                    "source_type": "git_repo",
                    "archived_path": "source_files/7/a b.pdf",
                    "url": "https://bot:secret@git.example/x",
                    "extra": 1,
                },
                {"sourceId": True, "archivedPath": "source_files/../catalog.json", "title": ["list"]},
                {"url": "javascript:alert(1)"},
                {"archivedPath": "/etc/passwd"},
                "https://example.org/page",
                "source_files/b.md",
                None,
                3,
                {"title": "T", "ingestedAt": 2024},
            ]
        }
    )
    assert (traces[0].source_id, traces[0].archived_path) == (7, "source_files/7/a b.pdf")
    assert traces[0].source_type == "git_repo"
    assert traces[0].url == "https://git.example/x"
    assert "extra" not in traces[0].document()
    assert [trace.url or trace.archived_path or trace.title for trace in traces[1:]] == [
        "https://example.org/page",
        "source_files/b.md",
        "T",
    ]
    assert traces[-1].ingested_at == "2024"
    assert len(source_traces({"sources": [{"title": str(n)} for n in range(30)]})) == 10


@pytest.mark.parametrize(
    ("data", "text", "guess"),
    [
        ("\ufeff你好".encode(), "你好", ""),
        ("你好".encode("gb18030"), "你好", "gb18030"),
        ("你好".encode("utf-16"), "你好", "utf-16"),
        (b"\xff\xff\xff", "\ufffd\ufffd\ufffd", "utf-8 with replacement characters"),
        (b"", "", ""),
    ],
)
def test_any_bytes_decode(data: bytes, text: str, guess: str) -> None:
    decoded = decode(data)
    assert (decoded.text.removeprefix("\ufeff"), decoded.guess) == (text, guess)
