"""What every ``KbReader`` does: one suite over the fake and over the real one with a git server on loopback."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tasks.errors import Code, JobError, PermanentError, TransientError
from tasks.ports import KbReader, RepoRef
from tests.fakes_kb_reader import FakeKbReader
from worker.adapters.kb_git.mirror import Mirrors
from worker.adapters.kb_git.snapshot import GitKbReader
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

REPO = RepoRef("team", "kb")


class World(Protocol):
    """A reader, and the hand that changes what it reads."""

    reader: KbReader

    def publish(self, files: dict[str, bytes | str]) -> str: ...

    def cut_off(self) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self.reader = FakeKbReader()

    def publish(self, files: dict[str, bytes | str]) -> str:
        return self.reader.publish(REPO, files)

    def cut_off(self) -> None:
        self.reader.failure = TransientError(Code.KB_UNREACHABLE, en="no way to it", zh="连不上")


class GitWorld:
    def __init__(self, folder: Path, server: GitServer) -> None:
        self.server = server
        self.mirrors = Mirrors(folder / "cache", server.url, server.user, server.token, SystemClock())
        self.reader = GitKbReader(self.mirrors)
        self._files: set[str] = set()

    def publish(self, files: dict[str, bytes | str]) -> str:
        if not self.server.repo_path(REPO.owner, REPO.name).exists():
            self.server.create(REPO.owner, REPO.name)
        if not files:
            return "0" * 40
        data = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        gone, self._files = self._files - set(data), set(data)
        return self.server.commit(REPO.owner, REPO.name, data, delete=sorted(gone))

    def cut_off(self) -> None:
        self.server.faults.status = 503


@pytest.fixture(params=["fake", "git"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    with GitServer(tmp_path / "server") as server:
        world = GitWorld(tmp_path, server)
        yield world
        world.reader.close()


def catalog(*entries: dict[str, object] | str) -> bytes:
    pages = [{"path": entry, "title": entry} if isinstance(entry, str) else entry for entry in entries]
    return json.dumps({"version": 1, "pages": pages}, ensure_ascii=False).encode()


def test_a_page_is_visible_when_the_catalog_lists_it_and_the_file_is_there(world: World) -> None:
    commit = world.publish(
        {"catalog.json": catalog("a.md", "gone.md"), "a.md": "# A", "unlisted.md": "# U", "index.md": "# Index"}
    )
    snapshot = world.reader.latest(REPO, fresh=True)
    assert snapshot.commit == commit
    assert snapshot.page_count == 1
    assert snapshot.read("a.md") == "# A"
    assert (snapshot.lookup("gone.md"), snapshot.lookup("unlisted.md")) == (None, None)
    assert (snapshot.read("gone.md"), snapshot.read("unlisted.md"), snapshot.read("../a.md")) == (None, None, None)
    assert snapshot.index_text(5) == "# Ind"


def test_service_files_are_hidden_in_the_root_and_ordinary_pages_elsewhere(world: World) -> None:
    hidden = ["README.md", "index.md", "AGENTS.md", "log.md", ".kb/x.md", "source_files/a.md", ".github/b.md"]
    shown = ["notes/index.md", "notes/README.md", "notes/log.md"]
    world.publish({"catalog.json": catalog(*hidden, *shown), **{path: f"# {path}" for path in [*hidden, *shown]}})
    snapshot = world.reader.latest(REPO, fresh=True)
    assert [facts.path for facts in snapshot.listing(10, [])] == shown
    assert not any(snapshot.lookup(path) or snapshot.read(path) for path in hidden)
    assert not {hit.facts.path for hit in snapshot.rank("README AGENTS source_files a b x", 60)} & set(hidden)


@pytest.mark.parametrize(
    ("broken", "code"),
    [(None, "CATALOG_MISSING"), (b"{", "CATALOG_INVALID"), (b"", "CATALOG_INVALID"), (b"[]", "CATALOG_INVALID")],
)
def test_without_a_usable_catalog_all_markdown_files_are_pages(world: World, broken: bytes | None, code: str) -> None:
    files: dict[str, bytes | str] = {
        "a/own.md": "---\ntitle: Own\ntype: note\nkeywords: [k]\n---\n# Heading",
        "a/heading.md": "# Heading {#x}",
        "a/name.md": "text",
        "README.md": "# no",
        "picture.png": b"\x89",
    }
    world.publish(files if broken is None else {**files, "catalog.json": broken})
    snapshot = world.reader.latest(REPO, fresh=True)
    assert {facts.path: facts.title for facts in snapshot.listing(10, [])} == {
        "a/own.md": "Own",
        "a/heading.md": "Heading",
        "a/name.md": "name",
    }
    own = snapshot.lookup("a/own.md")
    assert own is not None
    assert (own.type, own.keywords) == ("note", ("k",))
    assert code in [note.code for note in snapshot.notes([])]


def test_frontmatter_wins_over_the_catalog_on_title_type_and_keywords(world: World) -> None:
    entry = {
        "path": "a.md",
        "title": "Cat",
        "type": "concept",
        "kbType": "concept",
        "keywords": ["c"],
        "sourceIds": list(range(30)),
    }
    world.publish({"catalog.json": catalog(entry), "a.md": "---\ntitle: Own\ntype: note\nkeywords: [k]\n---\ntext"})
    facts = world.reader.latest(REPO, fresh=True).lookup("a.md")
    assert facts is not None
    assert (facts.title, facts.type, facts.keywords, len(facts.source_ids)) == ("Own", "note", ("k",), 10)


def test_odd_paths_are_found_by_their_composed_form(world: World) -> None:
    composed = "概念/带 空格 🙂 é「x」.md"
    decomposed = unicodedata.normalize("NFD", composed)
    world.publish({"catalog.json": catalog(composed, "b.md"), decomposed: "# 内容", "b.md": "b"})
    snapshot = world.reader.latest(REPO, fresh=True)
    assert snapshot.read(composed) == "# 内容"
    assert [facts.path for facts in snapshot.listing(1, [composed])] == [composed]


def test_any_file_can_be_read_without_an_exception(world: World) -> None:
    files: dict[str, bytes | str] = {
        "gb.md": "# 你好，世界".encode("gb18030"),
        "bom.md": "\ufeff# 标题\r\n\r\n正文\r\n".encode(),
        "broken.md": "---\ntitle: [x\n---\n# H",
        "empty.md": b"",
        "noise.md": bytes(range(1, 256)),
    }
    world.publish({"catalog.json": catalog(*files), **files})
    snapshot = world.reader.latest(REPO, fresh=True)
    assert snapshot.read("gb.md") == "# 你好，世界"
    assert snapshot.read("bom.md") == "# 标题\r\n\r\n正文\r\n"
    assert all(snapshot.read(path) is not None and snapshot.lookup(path) for path in files)
    codes = {(note.code, note.path) for note in snapshot.notes(files)}
    assert {("PAGE_ENCODING", "gb.md"), ("FRONTMATTER_BROKEN", "broken.md")} <= codes
    assert ("FRONTMATTER_BROKEN", "broken.md") not in {(note.code, note.path) for note in snapshot.notes(["gb.md"])}


def test_listing_begins_with_the_given_pages_and_then_shows_every_type(world: World) -> None:
    entries = [{"path": f"concepts/{n:02}.md", "title": str(n), "type": "concept"} for n in range(20)]
    entries += [{"path": "qa/a.md", "title": "a", "type": "qa"}, {"path": "zz/b.md", "title": "b", "type": "concept"}]
    world.publish({"catalog.json": catalog(*entries), **{str(entry["path"]): "x" for entry in entries}})
    snapshot = world.reader.latest(REPO, fresh=True)
    first = ["concepts/07.md", "unknown.md", "concepts/03.md", "concepts/07.md"]
    paths = [facts.path for facts in snapshot.listing(6, first)]
    assert paths == ["concepts/07.md", "concepts/03.md", "concepts/00.md", "qa/a.md", "zz/b.md", "concepts/01.md"]
    assert len(snapshot.listing(350, [])) == 22
    assert snapshot.listing(0, first) == []


def test_ranking_finds_chinese_and_english_pages_in_title_path_keywords_and_body(world: World) -> None:
    world.publish(
        {
            "catalog.json": catalog(
                {"path": "a.md", "title": "部署指南"},
                {"path": "b.md", "title": "其他", "keywords": ["监控告警"]},
                {"path": "notes/rollback.md", "title": "第三篇"},
                {"path": "d.md", "title": "第四篇"},
            ),
            "a.md": "一般文字",
            "b.md": "一般文字",
            "notes/rollback.md": "一般文字",
            "d.md": "# 第四篇\n\n这里说明数据库连接池 HikariPool 的大小。",
        }
    )
    snapshot = world.reader.latest(REPO, fresh=True)

    def best(question: str) -> str:
        return snapshot.rank(question, 5)[0].facts.path

    assert best("怎么部署服务？") == "a.md"
    assert best("监控告警在哪里看") == "b.md"
    assert best("how to rollback") == "notes/rollback.md"
    assert best("连接池应该多大") == "d.md"
    hits = snapshot.rank("hikaripool", 5)
    assert [hit.facts.path for hit in hits] == ["d.md"]
    assert "连接池" in hits[0].passage
    assert snapshot.rank("部署", 0) == []
    assert snapshot.rank("？", 5) == []


def test_passages_stay_within_their_budget(world: World) -> None:
    text = "\n\n".join(f"第 {n} 段。" + "填充文字。" * 60 for n in range(40))
    world.publish({"catalog.json": catalog("a.md"), "a.md": text})
    assert all(len(hit.passage) <= 1_200 for hit in world.reader.latest(REPO, fresh=True).rank("填充文字", 5))


def test_a_pinned_snapshot_does_not_change_when_the_repository_does(world: World) -> None:
    first = world.publish({"catalog.json": catalog("a.md"), "a.md": "old"})
    pinned = world.reader.latest(REPO, fresh=True)
    second = world.publish({"catalog.json": catalog("b.md"), "b.md": "new"})
    assert world.reader.latest(REPO, fresh=True).commit == second
    assert (pinned.commit, pinned.read("a.md"), pinned.lookup("b.md")) == (first, "old", None)
    again = world.reader.at(REPO, first)
    assert (again.commit, again.read("a.md"), again.read("b.md")) == (first, "old", None)


def test_an_empty_repository_has_no_pages_and_says_so(world: World) -> None:
    world.publish({})
    snapshot = world.reader.latest(REPO, fresh=True)
    assert (snapshot.page_count, snapshot.listing(10, []), snapshot.rank("问题", 5), snapshot.index_text(10)) == (
        0,
        [],
        [],
        "",
    )
    assert [note.code for note in snapshot.notes([])] == ["KB_EMPTY"]
    assert world.reader.at(REPO, snapshot.commit).page_count == 0


@pytest.mark.parametrize("commit", ["1" * 40, "HEAD", "main", "--help", "", "1" * 39])
def test_a_commit_that_cannot_be_had_is_gone(world: World, commit: str) -> None:
    world.publish({"a.md": "x"})
    with pytest.raises(PermanentError) as caught:
        world.reader.at(REPO, commit)
    assert caught.value.code == Code.COMMIT_GONE
    assert caught.value.zh


def test_an_unknown_repository_is_not_found(world: World) -> None:
    with pytest.raises(PermanentError) as caught:
        world.reader.latest(RepoRef("team", "nothing"), fresh=True)
    assert caught.value.code == Code.KB_NOT_FOUND


def test_a_server_that_is_down_is_a_transient_error(world: World) -> None:
    world.publish({"a.md": "x"})
    world.cut_off()
    with pytest.raises(JobError) as caught:
        world.reader.latest(REPO, fresh=True)
    assert (caught.value.code, caught.value.retryable) == (Code.KB_UNREACHABLE, True)
