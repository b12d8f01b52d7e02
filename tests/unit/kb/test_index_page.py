"""``index.md`` belongs to people too: only our own lines move."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.kb.index_page import IndexEntry, create, group_name, index_line, update

NOW = "2026-11-30T12:00:00Z"
OLD = "2026-01-01T00:00:00Z"


def qa(title: str, path: str = "", *keywords: str) -> IndexEntry:
    return IndexEntry(path or f"qa/{title}.md", title, "qa", keywords)


INDEX = f"""# Knowledge Base Index

Updated at: {OLD}

## Concepts

- [甲](concepts/a.md) - 词一, 词二

## QA

- [Apple](qa/apple.md)
- [Pear](qa/pear.md) - 梨

## Tech Notes

- [Z](tech/z.md)
"""
OURS = {"concepts/a.md", "qa/apple.md", "qa/pear.md", "tech/z.md"}


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that are gone and lines that are new."""
    old, new = before.split("\n"), after.split("\n")
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize(
    ("page_type", "name"),
    [("concept", "Concepts"), ("tech-note", "Tech Notes"), ("note", "Notes"), ("qa", "QA"), ("QA", "QA"),
     ("resource", "Resources"), ("overview", "Overview"), ("category", "Categories"), ("code_class", "Code Classes"),
     ("survey", "Surveys"), ("", "Pages"), ("--", "Pages"), ("概念", "概念")],
)  # fmt: skip
def test_a_type_names_its_group_in_the_plural(page_type: str, name: str) -> None:
    assert group_name(page_type) == name


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (qa("标题", "qa/x.md"), "- [标题](qa/x.md)"),
        (qa("t", "qa/x.md", *"abcdefghij"), "- [t](qa/x.md) - a, b, c, d, e, f, g, h"),
        (qa("a [b] c", "qa/x.md"), r"- [a \[b\] c](qa/x.md)"),
        (qa("end\\", "qa/x.md"), r"- [end\\](qa/x.md)"),
        (qa("two\nlines", "qa/x.md", " k\n1 ", ""), "- [two lines](qa/x.md) - k 1"),
        (qa("t", "a b.md"), "- [t](<a b.md>)"),
        (qa("t", "f(x).md"), "- [t](<f(x).md>)"),
        (qa("", "qa/x.md"), "- [qa/x.md](qa/x.md)"),
    ],
)
def test_a_line_is_a_link_and_up_to_eight_keywords(entry: IndexEntry, line: str) -> None:
    assert index_line(entry) == line


def test_a_new_index_has_header_date_and_alphabetical_groups() -> None:
    entries = [qa("b"), IndexEntry("c.md", "丙", "concept"), qa("a"), IndexEntry("t.md", "T", "tech-note", ("k",))]
    assert create(entries, NOW) == (
        f"# Knowledge Base Index\n\nUpdated at: {NOW}\n\n## Concepts\n\n- [丙](c.md)\n\n"
        "## QA\n\n- [a](qa/a.md)\n- [b](qa/b.md)\n\n## Tech Notes\n\n- [T](t.md) - k\n"
    )
    assert update(" \n", entries, set(), NOW) == create(entries, NOW)


@pytest.mark.parametrize(("title", "before"), [("Aaa", "- [Apple]"), ("Banana", "- [Pear]"), ("橙", "")])
def test_a_new_line_goes_to_its_place_and_nothing_else_changes(title: str, before: str) -> None:
    after = update(INDEX, [qa(title)], OURS, NOW)
    assert changed(INDEX, after) == ([f"Updated at: {OLD}"], [f"Updated at: {NOW}", f"- [{title}](qa/{title}.md)"])
    lines = after.split("\n")
    assert lines[lines.index(f"- [{title}](qa/{title}.md)") + 1].startswith(before)


def test_several_new_lines_arrive_in_order() -> None:
    after = update(INDEX, [qa("Zoo"), qa("Banana"), qa("Cherry"), qa("Aaa")], OURS, NOW)
    group = after.split("## ")[2]
    titles = [line[3:].partition("]")[0] for line in group.split("\n") if line.startswith("- [")]
    assert titles == ["Aaa", "Apple", "Banana", "Cherry", "Pear", "Zoo"]


def test_a_known_line_is_renewed_where_it_stands() -> None:
    after = update(INDEX, [qa("Apple", "qa/apple.md", "新词")], OURS, NOW)
    assert changed(INDEX, after)[1] == [f"Updated at: {NOW}", "- [Apple](qa/apple.md) - 新词"]


def test_a_known_line_with_a_new_title_moves_to_its_new_place() -> None:
    after = update(INDEX, [qa("Quince", "qa/apple.md")], OURS, NOW)
    assert "- [Pear](qa/pear.md) - 梨\n- [Quince](qa/apple.md)\n\n## Tech" in after
    assert "Apple" not in after


def test_doing_it_twice_changes_nothing_more() -> None:
    once = update(INDEX, [qa("Banana", "qa/b.md", "k")], OURS, NOW)
    assert update(once, [qa("Banana", "qa/b.md", "k")], OURS | {"qa/b.md"}, NOW) == once


@pytest.mark.parametrize(
    ("title", "group"),
    [("Concepts", "## Concepts"), ("Tech Notes", "## Tech Notes"), ("Zulu", ""), ("Alpha", "## Alpha")],
)
def test_a_missing_group_is_made_in_alphabetical_place(title: str, group: str) -> None:
    page = f"# Knowledge Base Index\n\nUpdated at: {OLD}\n\n## {title}\n\n- [x](x.md)\n"
    after = update(page, [qa("new")], {"x.md"}, NOW)
    assert after.count("## QA\n\n- [new](qa/new.md)\n") == 1
    assert (after.index("## QA") < after.index(f"## {title}")) == (title.casefold() > "qa")
    assert "\n\n\n" not in after
    assert after.endswith(".md)\n")


def test_the_words_groups_and_links_of_people_stay() -> None:
    page = (
        f"# 我们的知识库\n\n欢迎！\n\nUpdated at: {OLD}\n（由 kb-bot 维护）\n\n"
        "## 使用说明\n\n- [手册](docs/manual.md) 请先读\n"
        "* [apple](qa/apple.md) 这一行是我们自己写的\n\n```md\n## QA\n- [示例](qa/sample.md)\n```\n\n"
        "## QA\n\n常见问题在这里。\n\n- [Apple](qa/apple.md)\n- [外链](https://example.invalid/) 备注\n\n"
        "### 小节\n\n文字\n\n## Zebra\n\n完"
    )
    after = update(page, [qa("Banana"), qa("Apple", "qa/apple.md", "k")], {"qa/apple.md"}, NOW)
    assert changed(page, after) == (
        [f"Updated at: {OLD}", "- [Apple](qa/apple.md)"],
        [f"Updated at: {NOW}", "- [Apple](qa/apple.md) - k", "- [Banana](qa/Banana.md)"],
    )
    assert "- [Apple](qa/apple.md) - k\n- [Banana](qa/Banana.md)\n- [外链]" in after
    assert after.endswith("完")


def test_a_line_whose_path_the_catalog_does_not_know_is_not_ours() -> None:
    page = f"# I\n\nUpdated at: {OLD}\n\n## QA\n\n- [mine](qa/new.md) - 人写的\n"
    assert "- [mine](qa/new.md) - 人写的\n" in update(page, [qa("new", "qa/new.md")], set(), NOW)


@pytest.mark.parametrize(
    "group", ["## QA", "## QA\n", "## QA\n\n文字", "## QA\n\n文字\n\n", "## qa ##\n\n- [外](http://x.invalid)"]
)
def test_a_group_without_a_line_of_ours_takes_its_first(group: str) -> None:
    page = f"# I\n\nUpdated at: {NOW}\n\n{group}"
    for whole in (page, f"{page}\n## Tech Notes\n\n- [z](z.md)\n"):
        after = update(whole, [qa("new")], {"z.md"}, NOW)
        assert [line for line in whole.split("\n") if line] == [
            line for line in after.split("\n") if line and line != "- [new](qa/new.md)"
        ]
        assert after.index("## qa" if "qa" in group else "## QA") < after.index("- [new](qa/new.md)\n")
        assert "## Tech" not in whole or after.index("(qa/new.md)\n") < after.index("\n## Tech Notes")


def test_windows_line_ends_stay() -> None:
    page = INDEX.replace("\n", "\r\n")
    after = update(page, [qa("Banana"), IndexEntry("x.md", "X", "resource")], OURS, NOW)
    assert after.count("\n") == after.count("\r\n")
    assert after.replace("\r\n", "\n") == update(INDEX, [qa("Banana"), IndexEntry("x.md", "X", "resource")], OURS, NOW)


@pytest.mark.parametrize(
    "page",
    ["随便写的\n", "---\ntitle: x\n---\n正文\n", "# 标题", "# 标题\n紧接着\n", "\ufeff# 标题\n", "## 只有二级\n"],
)
def test_a_page_without_our_date_line_gets_one(page: str) -> None:
    after = update(page, [qa("new")], set(), NOW)
    assert after.count(f"Updated at: {NOW}\n") == 1
    assert all(line in after.split("\n") for line in page.split("\n"))
    assert after.startswith(page[:4]) if page[:1] in "-\ufeff" else True
    assert update(after, [qa("new")], {"qa/new.md"}, NOW) == after


@given(st.text(alphabet="ab[]\\()< \n- #`中", max_size=30), st.lists(st.text("k,[]\\", max_size=5), max_size=10))
def test_any_title_gives_one_line_that_is_found_again(title: str, keywords: list[str]) -> None:
    entry = qa(title, "qa/x (1).md", *keywords)
    once = update(INDEX, [entry], OURS, NOW)
    assert len(once.split("\n")) == len(INDEX.split("\n")) + 1
    assert update(once, [entry], OURS | {entry.path}, NOW) == once
    assert len(update(once, [qa("Other", entry.path)], OURS | {entry.path}, NOW).split("\n")) == len(once.split("\n"))


def test_a_large_index_is_still_quick() -> None:
    entries = [qa(f"title {n:05d}", f"qa/{n:05d}.md", "词" * 10) for n in range(30_000)]
    page = create(entries, OLD)
    start = time.process_time()
    update(
        page, [qa(f"title {n:05d} b", f"qa/new-{n}.md") for n in range(0, 30_000, 500)], {e.path for e in entries}, NOW
    )
    assert time.process_time() - start < 20  # line by line, for each of the 60 entries, it would be a minute


LINES_OF_OTHERS = [
    "# 标题",
    "## QA",
    "## Concepts",
    "## 团队",
    "### 小节",
    "文字",
    "",
    "- 列表",
    "```",
    "~~~",
    "> 引用",
]
LINES_OF_OTHERS += ["- [外](http://x.invalid)", "    ## QA", "* [b](qa/b.md)"]
LINES_OF_OURS = ["- [甲](concepts/a.md) - 词", "- [Apple](qa/apple.md)", f"Updated at: {OLD}"]
page_lines = st.lists(st.sampled_from(LINES_OF_OTHERS + LINES_OF_OURS), max_size=25)


@given(page_lines, st.sampled_from(["\n", "\r\n"]), st.lists(st.sampled_from("abcXYZ甲乙"), unique=True, max_size=3))
def test_on_any_page_every_line_of_others_stays_in_its_order(lines: list[str], end: str, titles: list[str]) -> None:
    page = end.join(lines)
    after = update(page, [qa(title) for title in titles], OURS, NOW)
    kept = iter(line.rstrip("\r") for line in after.split("\n"))
    foreign = [line for line in lines if line and not line.startswith("Updated at:")]
    assert all(line in kept for line in foreign), "a line is gone or has moved"
    assert [f"- [{title}](qa/{title}.md)" in after for title in titles] == [True] * len(titles)
    assert f"Updated at: {NOW}" in after
    known = OURS | {f"qa/{title}.md" for title in titles}
    assert update(after, [qa(title) for title in titles], known, NOW) == after
