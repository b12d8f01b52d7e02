"""Text built to make a pattern walk it again and again: sizes that take minutes where cost grows with the square."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.kb import index_page
from tasks.kb.headings import first_heading
from tasks.prompts.foreign import disarm
from tasks.rules.language import due_language, is_mainly_chinese
from tasks.rules.links import Links
from tasks.rules.safe_markdown import SafeText, make_safe, safe_line
from tasks.rules.selection import resolve_path
from tasks.rules.sources import without_sections

MANY = 100_000

LINKS = Links(is_page=lambda path: path == "a.md", seen=("http://ab " * 4_500,))


def filled(unit: str) -> str:
    """About a hundred thousand characters."""
    return unit * (MANY // len(unit))


def rising_ticks() -> str:
    """Runs of backticks of which no two are of one length."""
    return "".join("`" * length + "a" for length in range(1, 440))


MARKDOWN = {
    "open links": filled("[a]("),
    "open links with angles": filled("[a](<"),
    "open images": filled("!["),
    "nested brackets": filled("[") + filled("]"),
    "labels with colons": filled("[x]:") + " z",
    "definitions in one line": filled("- ") + filled("[x]:a:b "),
    "definitions behind a letter": filled("a[x]:a:b "),
    "lines of digits in code": "`a\n" + filled("1\n") + "`",
    "lines of digits behind a backtick": "`a\n" + filled("1\n") + "b`",
    "backticks": filled("`"),
    "rising backticks": rising_ticks(),
    "parentheses": filled("("),
    "comments": filled("<!--"),
    "bars": filled("|"),
    "one address again and again": filled("[x](http://a) "),
    "one autolink again and again": filled("<http://a> "),
}


@pytest.mark.parametrize("name", list(MARKDOWN))
@pytest.mark.parametrize("make", [make_safe, safe_line])
def test_an_answer_is_made_safe_in_one_walk(make: Callable[..., SafeText], name: str) -> None:
    assert make(MARKDOWN[name], LINKS).text


@pytest.mark.parametrize("unit", ["a", "a.", "《", "》"])
def test_a_line_of_sources_is_read_once(unit: str) -> None:
    line = f"参考来源：{filled(unit)}"
    assert without_sections(line) == line


def test_thousands_of_sections_of_sources_are_taken_out() -> None:
    assert without_sections("结论。\n\n" + 3 * filled("## 参考来源\n\n- a.md\n\n")).strip() == "结论。"


@pytest.mark.parametrize("unit", ["-", "a-", "“", "「", "a.", "_"])
def test_the_language_of_a_text_is_told_in_one_walk(unit: str) -> None:
    text, short = filled(unit), unit * 200
    assert due_language(text) == due_language(short)
    assert is_mainly_chinese(text) == is_mainly_chinese(short)


@pytest.mark.parametrize("start", ["<<", "[", "<", "</", "KBW", "<|"])
def test_foreign_text_is_disarmed_in_one_walk(start: str) -> None:
    assert len(disarm(start + filled(" "), "4711")) > MANY


HEADINGS = {
    "blanks": "a" + filled(" ") + "b",
    "closing marks": filled(" #") + "b",
    "rising backticks": rising_ticks(),
    "strong": filled("**a "),
    "comments": filled("<!--"),
    "anchors": filled("a {#b} "),
}


@pytest.mark.parametrize("name", list(HEADINGS))
def test_a_heading_of_a_hundred_thousand_characters_is_a_heading(name: str) -> None:
    line = HEADINGS[name]
    assert 0 < len(first_heading(f"# {line}")) <= 500
    entry = index_page.IndexEntry("qa/a.md", "标题", "qa")
    index = f"# Knowledge Base Index\n\n## {line}\n"
    assert "- [标题](qa/a.md)" in index_page.update(index, [entry], {"qa/a.md"}, "now")


INDEX_LINES = {
    "titles that do not end": "- [" + filled("](a"),
    "paths that do not end": "- [" + filled("](a) x"),
    "blanks in a path": "- [a](b" + filled(" ") + ")x",
    "blanks behind a path": "- [a](b)" + filled(" ") + "x",
}


@pytest.mark.parametrize("name", list(INDEX_LINES))
def test_a_line_of_the_index_is_read_in_one_walk(name: str) -> None:
    assert index_page.listed_paths(INDEX_LINES[name]) == []


def test_a_title_of_blanks_is_one_line() -> None:
    entry = index_page.IndexEntry("a.md", f"a{filled(' ')}b\n\n c", "qa")
    assert index_page.index_line(entry) == f"- [a{filled(' ')}b c](a.md)"


ODD_PATHS = {
    "blanks": "[](" + " " * 1_990 + "x(",
    "words": "[a](" + "a " * 900 + "(",
    "an open wiki link": "![[" + "a" * 1_900,
}


@pytest.mark.parametrize("name", list(ODD_PATHS))
def test_an_odd_path_is_judged_at_once(name: str) -> None:
    assert resolve_path(ODD_PATHS[name], lambda path: False)[0] == ""
