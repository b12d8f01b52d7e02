"""The index on disk: always of the asked commit, updated by what differs, mended by itself, shared by processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tasks.ports import RepoRef
from worker.adapters.kb_git import generation, index_store, page_index
from worker.adapters.kb_git.index_store import IndexStore
from worker.adapters.kb_git.mirror import Mirrors
from worker.adapters.kb_git.snapshot import GitKbReader, GitSnapshot
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

REPO = RepoRef("team", "kb")
WORDS = ["缓存", "队列", "索引", "快照", "日志", "监控", "告警", "备份"]


def listed(paths: list[str], **fields: object) -> bytes:
    pages = [{"path": path, "title": path, "type": "note", **fields} for path in paths]
    return json.dumps({"version": 1, "updatedAt": "", "pages": pages}, ensure_ascii=False, indent=2).encode()


def text_of(number: int) -> bytes:
    return f"# 第{number}页\n\n这一页讲{WORDS[number % len(WORDS)]}，编号 n{number}。\n".encode()


class World:
    """A server, a cache folder, and readers as new processes would open them."""

    def __init__(self, folder: Path, server: GitServer) -> None:
        self.cache, self.server = folder / "cache", server
        self.files: dict[str, bytes] = {}
        self.opened: list[GitKbReader] = []

    def commit(self, files: dict[str, bytes], delete: list[str] | None = None) -> str:
        return self.server.commit("team", "kb", files, delete=delete or [])

    def reader(self) -> GitKbReader:
        reader = open_reader(self.cache, self.server.url)
        self.opened.append(reader)
        return reader

    def latest(self) -> GitSnapshot:
        return self.reader().latest(REPO, fresh=True)

    @property
    def index(self) -> Path:
        return next(self.cache.glob("*.index"))

    def generations(self) -> list[Path]:
        return [path for path in self.index.iterdir() if path.is_dir() and not path.name.startswith(".")]


def open_reader(cache: Path, url: str) -> GitKbReader:
    return GitKbReader(Mirrors(cache, url, "bot", "demo-token", SystemClock()))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with GitServer(tmp_path / "server") as server:
        paths = [f"p{number}.md" for number in range(40)]
        server.create("team", "kb", {**{p: text_of(n) for n, p in enumerate(paths)}, "catalog.json": listed(paths)})
        world = World(tmp_path, server)
        yield world
        for reader in world.opened:
            reader.close()


def found(snapshot: GitSnapshot, question: str, limit: int = 5) -> list[str]:
    return [hit.facts.path for hit in snapshot.rank(question, limit)]


def seen(snapshot: GitSnapshot) -> dict[str, object]:
    """Everything that a snapshot says, to be compared with one built from nothing."""
    pages = snapshot.listing(10_000, [])
    return {
        "facts": {facts.path: facts for facts in pages},
        "count": snapshot.page_count,
        "notes": sorted(note.code for note in snapshot.notes([facts.path for facts in pages])),
        "texts": {facts.path: snapshot.read(facts.path) for facts in pages},
        "index": snapshot.index_text(100),
        "hits": {word: sorted(found(snapshot, word, 1_000)) for word in WORDS},
    }


def test_a_second_process_opens_what_the_first_one_built(world: World) -> None:
    first = world.latest()
    files = {path: path.stat().st_mtime_ns for path in world.index.rglob("*.store")}
    second = world.latest()
    assert found(second, "编号 n17") == found(first, "编号 n17")
    assert found(second, "编号 n17")[0] == "p17.md"
    assert {path: path.stat().st_mtime_ns for path in world.index.rglob("*.store")} == files


@pytest.mark.parametrize("seed", range(6))
def test_updates_from_commit_to_commit_say_the_same_as_an_index_built_anew(
    world: World, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    reader = world.reader()
    reader.latest(REPO, fresh=True)
    alive = {f"p{number}.md": number for number in range(40)}
    hidden: set[str] = set()
    for step in range(5):
        files: dict[str, bytes] = {}
        gone: list[str] = []
        for _ in range(chance.randint(1, 4)):
            act = chance.choice(["add", "change", "delete", "unlist", "list", "retitle", "index"])
            path = chance.choice(sorted(alive))
            if act == "add":
                path = f"{chance.choice(['a', 'q', 'z'])}/n{step}-{chance.randrange(99)}.md"
                alive[path] = chance.randrange(99)
                files[path] = text_of(alive[path])
            elif act == "change":
                alive[path] = 100 + chance.randrange(99)
                files[path] = text_of(alive[path])
            elif act == "delete" and path not in files and path not in gone:
                gone.append(path)  # its entry stays: a dead one
                del alive[path]
            elif act == "unlist":
                hidden.add(path)
            elif act == "list":
                hidden.discard(path)
            elif act == "index":
                files["index.md"] = f"# {step}".encode()
        entries = sorted({*alive, *gone} - hidden)
        if chance.random() < 0.8:
            files["catalog.json"] = listed(entries, keywords=[f"k{step}"] if chance.random() < 0.3 else [])
        world.commit(files or {"other.txt": b"%d" % step}, [path for path in gone if path not in files])
        updated = reader.latest(REPO, fresh=True)
        fresh = open_reader(tmp_path / f"anew-{step}", world.server.url)
        world.opened.append(fresh)
        assert seen(updated) == seen(fresh.latest(REPO, fresh=True))


def test_a_small_commit_rewrites_nothing_of_the_other_pages(world: World) -> None:
    old = world.latest()
    paths = [f"p{number}.md" for number in range(40)]
    world.commit({"qa/new.md": text_of(50), "catalog.json": listed([*paths, "qa/new.md"])})
    new = world.latest()
    stores = [{f.stat().st_ino for f in world.index.glob(f"{kb.commit}-*/pages/*.store")} for kb in (old, new)]
    assert stores[0] < stores[1]
    texts = [next(world.index.glob(f"{kb.commit}-*/catalog")).stat().st_ino for kb in (old, new)]
    assert texts[0] == texts[1]
    assert found(new, "编号 n50")[0] == "qa/new.md"
    assert "qa/new.md" not in found(old, "编号 n50")


def joined(world: World) -> list[Path]:
    """Where segments were joined, once nobody is at it any more."""
    for thread in threading.enumerate():
        if thread.name == "tidy-index":
            thread.join()
    assert not list(world.index.glob(".work-*"))
    return list(world.index.glob("*/joined"))


def test_small_segments_are_joined_behind_the_updates_and_the_next_one_goes_on_from_them(
    world: World, tmp_path: Path
) -> None:
    reader = world.reader()
    most = after = 0
    for number in range(12):
        path = f"p{number}.md"
        commit = world.commit({path: text_of(number + 100)})
        reader.latest(REPO, fresh=True)
        before, after = after, page_index.segments(world.index / f"{commit}-v{generation.SCHEMA}" / "pages")
        most = max(most, after)
        if joined(world) and after < before:
            break
    assert (most, after) == (8, 2)  # tantivy joins eight: the one that came of them, and the last change
    assert seen(world.latest()) == seen(anew(world, tmp_path))


def test_no_update_waits_for_the_joining_of_segments(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, go_on = world.reader(), threading.Event()
    reader.latest(REPO, fresh=True)
    settle = page_index.PageIndexWriter.settle
    monkeypatch.setattr(page_index.PageIndexWriter, "settle", lambda writer: (go_on.wait(300), settle(writer)))
    try:
        for number in range(10):
            world.commit({f"p{number}.md": text_of(number + 100)})
            assert found(reader.latest(REPO, fresh=True), f"编号 n{number + 100}")[0] == f"p{number}.md"
        assert len(list(world.index.glob(".work-*"))) == 10
    finally:
        go_on.set()
        joined(world)


def test_what_a_killed_process_was_joining_is_removed_later(world: World) -> None:
    world.latest()
    left = world.index / ".work-0000"
    left.mkdir()
    world.commit({"p1.md": text_of(1_000)})
    world.latest()
    assert left.exists()  # somebody may be at it
    os.utime(left, (1, 1))
    world.commit({"p1.md": text_of(1_001)})
    world.latest()
    assert not left.exists()


def test_joined_segments_that_are_damaged_cost_a_build_and_nothing_else(world: World, tmp_path: Path) -> None:
    reader = world.reader()
    for number in range(9):
        reader.latest(REPO, fresh=True)
        if joined(world):
            break
        world.commit({f"p{number}.md": text_of(number + 100)})
    for file in joined(world)[0].glob("*.*"):
        if file.stat().st_size:
            _garble(file)
    world.commit({"p1.md": text_of(500)})
    assert seen(world.latest()) == seen(anew(world, tmp_path))


def test_a_job_pinned_to_an_older_commit_gets_that_commits_index_even_when_it_was_removed(world: World) -> None:
    first = world.latest()
    for number in range(index_store.KEPT + 3):
        world.commit({"p3.md": text_of(200 + number)})
        world.latest()
    assert not [path for path in world.generations() if path.name.startswith(first.commit)]
    assert len(world.generations()) <= index_store.KEPT
    assert found(first, "编号 n3")[0] == "p3.md"  # still open there
    again = world.reader().at(REPO, first.commit)
    assert (again.commit, again.read("p3.md")) == (first.commit, text_of(3).decode())
    assert found(again, "编号 n3")[0] == "p3.md"


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()  # in place it would hit those who have it mapped, whatever the format
    path.write_bytes(data[: len(data) // 2])


def _garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [_truncate, _garble, Path.unlink], ids=["truncated", "garbled", "missing"])
@pytest.mark.parametrize("name", ["pages/*.store", "pages/*.term", "pages/*.idx", "pages/meta.json", "generation.json"])
def test_a_damaged_index_is_built_anew(world: World, harm: object, name: str) -> None:
    world.latest()
    harm(next(world.generations()[0].glob(name)))  # type: ignore[operator]
    snapshot = world.latest()
    assert snapshot.page_count == 40
    assert found(snapshot, "编号 n17")[0] == "p17.md"


def entries(count: int, **titles: str) -> bytes:
    """A catalog whose entries are long enough for a commit to change only a part of it."""
    pages = [
        {"path": f"p{n}.md", "title": titles.get(f"p{n}", f"p{n}"), "type": "note", "about": f"{n} " * 400}
        for n in range(count)
    ]
    return json.dumps({"version": 1, "updatedAt": "", "pages": pages}, ensure_ascii=False, indent=2).encode()


def anew(world: World, folder: Path) -> GitSnapshot:
    fresh = open_reader(folder, world.server.url)
    world.opened.append(fresh)
    return fresh.latest(REPO, fresh=True)


@pytest.mark.parametrize("harm", [_truncate, _garble, Path.unlink], ids=["truncated", "garbled", "missing"])
@pytest.mark.parametrize("name", ["catalog", "catalog.spans", "catalog.sums", "catalog.edits"])
def test_an_update_from_a_damaged_catalog_says_the_same_as_an_index_built_anew(
    world: World, harm: object, name: str, tmp_path: Path
) -> None:
    world.commit({"catalog.json": entries(40)})
    world.latest()
    world.commit({"catalog.json": entries(40, p3="drei")})
    before = world.latest()
    harm(next(world.index.glob(f"{before.commit}-*/{name}")))  # type: ignore[operator]
    world.commit({"catalog.json": entries(40, p3="drei", p20="zwanzig"), "p21.md": text_of(77)})
    updated = world.latest()
    assert (updated.lookup("p20.md") or before.lookup("p0.md")).title == "zwanzig"  # type: ignore[union-attr]
    assert seen(updated) == seen(anew(world, tmp_path / "anew"))
    world.commit({"p22.md": text_of(78)})
    assert found(world.latest(), "编号 n78")[0] == "p22.md"


def _follow(cache: str, url: str) -> None:
    reader = open_reader(Path(cache), url)
    while True:
        reader.latest(REPO, fresh=True)


@pytest.mark.parametrize("seed", range(3))
def test_an_updater_killed_at_any_moment_leaves_an_index_that_says_the_same(
    world: World, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    world.commit({"catalog.json": entries(40)})
    world.latest()
    titles: dict[str, str] = {}
    for step in range(4):
        process = multiprocessing.get_context("spawn").Process(
            target=_follow, args=(str(world.cache), world.server.url)
        )
        process.start()
        for number in range(6):
            titles[f"p{chance.randrange(40)}"] = f"{step}-{number}"
            world.commit({"catalog.json": entries(40, **titles), f"p{number}.md": text_of(100 * step + number)})
        time.sleep(chance.uniform(0.0, 1.5))
        process.kill()
        process.join(60)
    assert seen(world.latest()) == seen(anew(world, tmp_path / "anew"))
    assert not list(world.index.glob(".building-*"))


def test_a_page_changed_without_its_entry_keeps_what_the_entry_says(world: World, tmp_path: Path) -> None:
    world.commit({"catalog.json": entries(40, p7="sieben")})
    world.latest()
    world.commit({"p7.md": text_of(97), "p30.md": text_of(98)})
    updated = world.latest()
    facts = updated.lookup("p7.md")
    assert facts is not None
    assert facts.title == "sieben"
    assert seen(updated) == seen(anew(world, tmp_path / "anew"))


def test_a_catalog_that_lists_an_old_file_only_now_shows_it(world: World, tmp_path: Path) -> None:
    world.commit({"catalog.json": entries(30), "\u00e9/late.md": text_of(5), "x\u0301.md": text_of(6)})
    world.latest()
    pages = json.loads(entries(40))
    pages["pages"] += [{"path": "\u00e9/late.md", "title": "spät"}, {"path": "x\u0301.md", "title": "x"}]
    world.commit({"catalog.json": json.dumps(pages, ensure_ascii=False, indent=2).encode()})
    updated = world.latest()
    assert updated.page_count == 42
    assert seen(updated) == seen(anew(world, tmp_path / "anew"))


def test_a_listing_of_many_folders_shows_each_and_keeps_few_of_each(world: World) -> None:
    files = {f"f{folder:02}/p{number:02}.md": b"# x" for folder in range(60) for number in range(40)}
    world.commit({**files, "catalog.json": listed(sorted(files))})
    first = world.latest()
    manifest = json.loads(next(world.index.glob(f"{first.commit}-*/generation.json")).read_bytes())
    assert sum(map(len, manifest["heads"].values())) < 2_000
    taken = [f"f07/p{number:02}.md" for number in range(40)]
    pages = [facts.path for facts in first.listing(350, taken)]
    assert pages[:40] == taken
    assert len(set(pages)) == 350
    assert {path.partition("/")[0] for path in pages} == {f"f{folder:02}" for folder in range(60)}
    gone = [path for path in files if path.startswith("f0") and path < "f08"]
    world.commit({"catalog.json": listed(sorted(set(files) - set(gone)))}, gone)
    assert len(world.latest().listing(350, [])) == 350
    left = sorted(files)[-30:]
    world.commit({"catalog.json": listed(left)})
    assert sorted(facts.path for facts in world.latest().listing(350, [])) == left


def test_an_index_of_another_schema_is_built_anew_and_removed(world: World) -> None:
    commit = world.latest().commit
    folder = world.generations()[0]
    manifest = json.loads((folder / "generation.json").read_bytes())
    (folder / "generation.json").write_bytes(msgspec.json.encode({**manifest, "schema": 0}))
    folder.rename(world.index / f"{commit}-v0")
    assert found(world.latest(), "编号 n17")[0] == "p17.md"
    assert [path.name for path in world.generations()] == [f"{commit}-v{generation.SCHEMA}"]


def test_a_manifest_of_another_schema_under_our_name_is_not_believed(world: World) -> None:
    world.latest()
    manifest = world.generations()[0] / "generation.json"
    manifest.write_bytes(msgspec.json.encode({**json.loads(manifest.read_bytes()), "schema": 0}))
    assert found(world.latest(), "编号 n17")[0] == "p17.md"


def test_the_whole_cache_may_be_deleted_while_a_reader_works(world: World) -> None:
    snapshot = world.latest()
    for path in sorted(world.index.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert found(snapshot, "编号 n17")[0] == "p17.md"
    assert found(world.latest(), "编号 n18")[0] == "p18.md"


def _build_for_ever(cache: str, url: str) -> None:
    """A builder that is killed in the middle of its work."""
    store = IndexStore(Mirrors(Path(cache), url, "bot", "demo-token", SystemClock()).of(REPO))
    store.folder.mkdir(parents=True, exist_ok=True)
    with store._lock.held():
        (store.folder / ".building-dead").mkdir()
        (store.folder / ".building-dead" / "pages").mkdir()
        (store.folder / ".building-dead" / "begun").write_bytes(b"x")
        time.sleep(60)


def test_a_killed_builder_leaves_nothing_in_the_way(world: World) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=_build_for_ever, args=(str(world.cache), world.server.url)
    )
    process.start()
    deadline = time.monotonic() + 300
    while not list(world.cache.glob("*.index/.building-dead/begun")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert found(world.latest(), "编号 n17")[0] == "p17.md"
    assert not list(world.index.glob(".building-*"))


def _ask(cache: str, url: str, start: float, answers: multiprocessing.Queue[tuple[str, list[str]]]) -> None:
    time.sleep(max(0.0, start - time.time()))
    reader = open_reader(Path(cache), url)
    snapshot = reader.latest(REPO, fresh=True)
    answers.put((snapshot.commit, found(snapshot, "编号 n17")))
    reader.close()


def test_processes_that_come_at_once_share_one_build(world: World) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[tuple[str, list[str]]] = context.Queue()
    start = time.time() + 3
    processes = [
        context.Process(target=_ask, args=(str(world.cache), world.server.url, start, answers)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    results = [answers.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(60)
    assert {commit for commit, _ in results} == {world.server.head("team", "kb")}
    assert all(hits[0] == "p17.md" for _, hits in results)
    assert len(world.generations()) == 1


def test_a_reader_keeps_its_commit_while_others_update(world: World) -> None:
    pinned = world.latest()
    before = seen(pinned)
    problems: list[str] = []
    stop = threading.Event()

    def read_on() -> None:
        while not stop.is_set():
            if found(pinned, "编号 n17")[0] != "p17.md" or pinned.page_count != 40:
                problems.append("changed")

    thread = threading.Thread(target=read_on)
    thread.start()
    try:
        for number in range(6):
            world.commit({f"p{number}.md": text_of(300 + number)})
            assert found(world.latest(), f"编号 n{300 + number}")[0] == f"p{number}.md"
    finally:
        stop.set()
        thread.join()
    assert not problems
    assert seen(pinned) == before


def test_versions_named_in_the_question_decide_between_pages_that_hardly_differ(world: World) -> None:
    files = {
        f"docs/v{v}/limits.md": f"# 限制\n\n本页适用于 v{v}。连接数上限是 {n}。".encode()
        for n, v in enumerate(VERSIONS)
    }
    files |= {"docs/other.md": "# 其他\n\n连接数上限。".encode()}
    world.commit({**files, "catalog.json": listed(sorted(files))})
    snapshot = world.latest()
    for version in VERSIONS:
        assert found(snapshot, f"v{version} 的连接数上限是多少")[0] == f"docs/v{version}/limits.md"
        assert found(snapshot, f"{version}版本连接数上限")[0] == f"docs/v{version}/limits.md"
    assert found(snapshot, "8.1.3 里连接数有上限吗")[0] == "docs/v8.1/limits.md"
    assert found(snapshot, "连接数上限是多少")[0] in ("docs/v10.0/limits.md", "docs/other.md")
    assert set(found(snapshot, "v7.5 连接数上限", 60)) == set(files)


VERSIONS = ["5.4", "6.1", "6.5", "7.1", "7.5", "8.1", "8.5", "10.0"]


def test_a_follow_up_question_finds_its_subject_in_the_history(world: World) -> None:
    files = {
        "a.md": "# 连接池\n\n连接池的配置项有大小和超时。".encode(),
        "b.md": "# 消息队列\n\n消息队列的配置项有分区数。".encode(),
        "c.md": "# 配置总览\n\n配置 配置 配置".encode(),
    }
    world.commit({**files, "catalog.json": listed(sorted(files))})
    snapshot = world.latest()
    ranked = [hit.facts.path for hit in snapshot.rank("那它怎么配置？", 3, ["消息队列是什么"])]
    assert ranked[0] == "b.md"
    assert snapshot.rank("那它怎么配置？", 3, ["连接池是什么"])[0].facts.path == "a.md"
    assert snapshot.rank("消息队列的分区数怎么配置", 3, ["连接池是什么"])[0].facts.path == "b.md"


def test_previews_are_read_for_the_first_hits_with_text_only(world: World) -> None:
    files = {"a.md": b"", **{f"x{n}.md": f"# 缓存 {n}\n\n缓存说明".encode() for n in range(6)}}
    world.commit({**files, "catalog.json": listed(sorted(files), keywords=["缓存"])})
    hits = world.latest().rank("缓存", 10, passages=3)
    assert len([hit for hit in hits if hit.passage]) == 3
    assert all("缓存" in hit.passage for hit in hits if hit.passage)
    assert all(not hit.passage for hit in hits if hit.facts.path == "a.md")
