"""Which page comes first: other words for the same thing, slips of the keyboard, versions, follow-ups, English."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tasks.contract.pages import PageFacts
from worker.adapters.kb_git.page_index import IndexedPage, PageIndex, PageIndexWriter
from worker.adapters.kb_git.ranking import rank, understand
from worker.adapters.kb_git.terms import Synonyms

VERSIONS = [f"v{major}.{minor}" for major in (5, 6, 7, 8) for minor in (0, 1, 5)] + ["v8.6", "v9.0"]
HANDBOOK = {
    "hr/parental-leave.md": "# 产假与陪护假\n\n女员工生育享受一百五十八天，配偶生育期间男员工可休十五天。",
    "hr/annual-leave.md": "# 年休假\n\n未使用的部分可结转至次年三月，逾期作废。",
    "it/vpn.md": "# 外网接入\n\n证书有效期一年，到期前十五天提醒。提示 TLS handshake failed 时先校准本机时间。",
    "it/account.md": "# 账号与口令\n\n连续输错五次锁定三十分钟，可自助重置。",
    "web/keep-alive.md": "# KeepAlive\n\n缓存不活动的组件实例，用 max 限制个数。",
    "web/expose.md": "# defineExpose()\n\n显式暴露给父组件的属性。",
    "ops/kafka.md": "# 消息队列\n\n先确认消费者是否存活，再增加分区。堆积无法追平的重置位点。",
    "ops/rollback.md": "# 版本回滚\n\n在发布平台选择上一制品版本执行。",
}


def index_of(folder: Path, pages: Mapping[str, str]) -> PageIndex:
    """An index of pages, each with the first line of its text as title."""
    folder.mkdir()
    writer = PageIndexWriter(folder, is_new=True)
    for path, text in pages.items():
        title = text.partition("\n")[0].lstrip("# ")
        writer.put(IndexedPage(PageFacts(path=path, title=title, type="note"), blob=f"{len(path):040x}"), text)
    writer.commit()
    writer.settle()
    return PageIndex(folder)


def first(index: PageIndex, question: str, history: Sequence[str] = (), words: Synonyms | None = None) -> str:
    found = rank(index, understand(index, question, history, words), 5)
    return found[0].path if found else ""


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> PageIndex:
    return index_of(tmp_path_factory.mktemp("handbook") / "pages", HANDBOOK)


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("老婆快生了我能歇几天", "hr/parental-leave.md"),  # no two neighbouring characters in common
        ("密码错太多被锁了", "it/account.md"),
        ("刚发出去的要退回上一版", "ops/rollback.md"),
    ],
)
def test_other_words_for_the_same_thing_share_a_character(handbook: PageIndex, question: str, page: str) -> None:
    assert first(handbook, question) == page


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("KeepAlvie 怎么限制个数", "web/keep-alive.md"),
        ("defineExpse() 怎么用", "web/expose.md"),
        ("TLS handshke faild", "it/vpn.md"),
        ("hndshake error", "it/vpn.md"),
    ],
)
def test_a_slip_of_the_keyboard_is_forgiven(handbook: PageIndex, question: str, page: str) -> None:
    assert first(handbook, question) == page


def test_a_word_that_is_there_is_never_taken_for_a_slip(tmp_path: Path) -> None:
    index = index_of(tmp_path / "pages", {"a.md": "# timer\n\ntimers here", "b.md": "# timed\n\ntimeout there"})
    query = understand(index, "timers")
    assert "similar" not in query.fields
    assert rank(index, query, 5)[0].path == "a.md"


def test_a_common_word_that_few_titles_have_still_leads_to_them(tmp_path: Path) -> None:
    pages = {f"n{n}.md": f"# 第 {n} 篇\n\n发布 发布 发布 之前先看这里。" for n in range(9)} | {
        "release.md": "# 发布\n\n步骤。"
    }
    assert first(index_of(tmp_path / "pages", pages), "发布之前看什么") == "release.md"


def test_how_much_of_a_question_is_known_counts_its_own_words_only(handbook: PageIndex) -> None:
    assert understand(handbook, "年休假").known == 1.0
    assert understand(handbook, "完全两码事").known == 0.0
    assert 0.0 < understand(handbook, "年休假能折现吗").known < 1.0
    assert understand(handbook, "vacation", (), Synonyms.read("vacation, 年休假")).known == 0.0


def test_a_word_that_resembles_nothing_finds_nothing(handbook: PageIndex) -> None:
    assert first(handbook, "zzzyyyxxx") == ""


@pytest.mark.parametrize(
    ("question", "version"),
    [
        ("v7.5 里连接池的大小怎么调", "v7.5"),
        ("我们用的是 6.1 版本，连接池怎么设大小", "v6.1"),
        ("连接池大小（TiDB 5.0）", "v5.0"),
        ("how to set the pool size in 8.1.3", "v8.1"),
        ("升级到v8.5以后连接池大小不对", "v8.5"),
        ("9.0.x 连接池", "v9.0"),
        ("连接池怎么调大小", "v9.0"),  # none asked for: the newest
    ],
)
def test_of_fourteen_nearly_equal_versions_the_question_decides(tmp_path: Path, question: str, version: str) -> None:
    pages = {
        f"docs/{name}/{topic}.md": f"# {title}\n\n本页适用于 {name}。{title}由 {topic} size 设置，默认 10。"
        for name in VERSIONS
        for topic, title in (("pool", "连接池大小"), ("cache", "缓存大小"), ("queue", "队列大小"))
    }
    assert len(VERSIONS) == 14
    assert first(index_of(tmp_path / "pages", pages), question) == f"docs/{version}/pool.md"


def test_the_figures_of_a_version_are_no_words_to_look_for(tmp_path: Path) -> None:
    pages = {
        "v7.5/log.md": "# 日志配置（5）\n\n先看第 5 章与第 7 章。",
        "v7.5/replica.md": "# 副本配置（12）\n\n先看第 2 章。",
        "v8.1/replica.md": "# 副本配置（12）\n\n先看第 2 章。",
    } | {f"v7.5/x{n}.md": f"# 其他（{n}0）\n\n配置。" for n in range(9)}
    assert first(index_of(tmp_path / "pages", pages), "v7.5 里副本怎么配置") == "v7.5/replica.md"


@pytest.mark.parametrize(
    ("history", "question", "page"),
    [
        (["外网怎么接入", "消息队列怎么接入"], "那它堆积了怎么办", "ops/kafka.md"),
        (["年休假有几天"], "没用完呢", "hr/annual-leave.md"),
        (["KeepAlive 是干嘛的"], "how do I limit it?", "web/keep-alive.md"),
        (["消息队列怎么接入"], "外网的证书到期前会提醒吗", "it/vpn.md"),  # another subject: what was before is over
    ],
)
def test_a_follow_up_keeps_its_subject(handbook: PageIndex, history: list[str], question: str, page: str) -> None:
    assert first(handbook, question, history) == page


def test_an_english_question_finds_chinese_pages_by_words_of_equal_meaning(handbook: PageIndex) -> None:
    words = Synonyms.read("回滚, rollback, revert\n口令, 密码, password\n消息队列, queue, mq\n证书, certificate")
    asked = {
        "how do I revert a bad release": "ops/rollback.md",
        "I forgot my password": "it/account.md",
        "messages pile up in the queue": "ops/kafka.md",
        "my certificate expires soon": "it/vpn.md",
    }
    assert {question: first(handbook, question, (), words) for question in asked} == asked
