"""Which names are pages, and how a QA page gets its name."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.kb import paths


@pytest.mark.parametrize("path", ["README.md", "index.md", "catalog.json", "AGENTS.md", "log.md"])
def test_service_files_are_hidden_in_the_root_only(path: str) -> None:
    assert paths.is_hidden(path)
    assert not paths.is_hidden(f"concepts/{path}")


@pytest.mark.parametrize("path", [".kb/schema.md", "source_files/a/b.md", ".github/x.md", ".gitea/x.md", ".gitignore"])
def test_all_below_the_closed_folders_is_hidden(path: str) -> None:
    assert paths.is_hidden(path)


@pytest.mark.parametrize("path", ["readme.md", "kb/a.md", "source_files.md", "a/source_files/b.md", "qa/index.md"])
def test_names_that_only_look_alike_are_ordinary_pages(path: str) -> None:
    assert paths.is_page(path)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "a/../b.md", "..", "./a.md", "a//b.md", "a/", "a\\b.md", "C:/x.md", "a\nb.md", "a\x00.md",
     "a\x85.md", ".git/config", "a/.GIT/x.md", "a/.git /x.md", "a/.g\u200cit/x.md", "git~1/x.md", "\ud800.md",
     "é" * 101 + ".md", "/".join(["a" * 100] * 6)],
)  # fmt: skip
def test_a_path_that_could_leave_the_repository_or_break_a_checkout_is_refused(path: str) -> None:
    assert paths.problem_with_page_path(path)
    assert not paths.is_page(path)


@pytest.mark.parametrize(
    "path", ["a.md", "中文/页面.md", "with space/a b.md", "emoji/👨‍👩‍👧.md", "a/(b).md", ".hidden/a.md", "a..b.md"]
)
def test_real_world_names_are_fine(path: str) -> None:
    assert paths.problem_with_page_path(path) is None


@pytest.mark.parametrize(
    "same",
    [
        "什么是 KeepAlive？",
        "什么是 keepalive?",
        " 什么是\u3000KeepAlive \n",
        "什么是 ＫｅｅｐＡｌｉｖｅ。",
        "什么是 KeepAlive ？！…",
    ],
)
def test_the_same_question_has_the_same_id(same: str) -> None:
    digest = hashlib.sha256("什么是 keepalive".encode()).hexdigest()
    assert paths.qa_id(same) == f"qa-{digest[:12]}"


def test_questions_that_differ_in_more_than_their_end_have_different_ids() -> None:
    assert len({paths.qa_id(text) for text in ("什么是 C", "什么是 C#", "什么是 C++", "?", "!!")}) == 5


@pytest.mark.parametrize(
    ("wanted", "title", "question", "path"),
    [
        ("qa/How To Deploy.md", "", "", "qa/how-to-deploy.md"),
        ("qa/a/b.md", "", "", "qa/a-b.md"),
        ("deploy.md", "", "", "qa/deploy.md"),
        ("", "部署 与 回滚：一览", "", "qa/部署-与-回滚-一览.md"),
        ("", "", "KeepAlive 怎么用？", "qa/keepalive-怎么用.md"),
        ("../../etc/passwd", "标题", "问题", "qa/标题.md"),
        ("projects/x.md", "标题", "问题", "qa/标题.md"),
        ("qa/.git/x.md", "标题", "问题", "qa/标题.md"),
        ("qa/？？.md", "!!", "🙂", "qa/qa-0123456789ab.md"),
        ("", "e\u0301te\u0301", "", "qa/été.md"),
        ("qa/CON.md", "标题", "问题", "qa/标题.md"),
        ("qa/com1.md", "LPT¹", "nul?", "qa/qa-0123456789ab.md"),
        ("qa/console.md", "标题", "问题", "qa/console.md"),
    ],
)
def test_the_name_comes_from_the_path_the_title_the_question_or_the_id(
    wanted: str, title: str, question: str, path: str
) -> None:
    assert paths.qa_path(wanted, title, question, "qa-0123456789ab") == path


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_any_name_is_a_safe_page_right_inside_qa(wanted: str, title: str, question: str) -> None:
    path = paths.qa_path(wanted, title, question, paths.qa_id(question))
    assert path.startswith("qa/")
    assert path.count("/") == 1
    assert paths.is_page(path)
    stem = path[3:-3]
    assert 0 < len(stem) <= 80
    assert len(stem.encode()) <= 180
    assert paths.problem_with_page_path(paths.suffixed(path, "query-1-2")) is None


def test_paths_that_one_checkout_cannot_tell_apart_share_a_key() -> None:
    assert paths.clash_key("qa/E\u0301.md") == paths.clash_key("qa/é.md")
    assert paths.clash_key("qa/a.md") != paths.clash_key("qa/b.md")
