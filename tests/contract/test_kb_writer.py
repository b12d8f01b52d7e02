"""One story for every ``KbWriter``: what a batch leaves in the repository, over the fake and over real git by HTTP."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import subprocess
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from tasks.contract.answer import QaEvaluation
from tasks.contract.evidence import EvidencePage
from tasks.contract.outcome import Receipt
from tasks.errors import Code, PermanentError, TransientError
from tasks.kb import catalog, catalog_edit, index_page, qa_page
from tasks.kb.page import read_page
from tasks.ports import Change, KbWriter, RepoRef
from tests.fakes_kb_writer import MemoryKbWriter, MemoryRepo
from tests.git_world import command_of, processes_below
from worker.adapters.kb_git.commit_objects import GitHead, write_commit
from worker.adapters.kb_git.committer import Committer
from worker.adapters.kb_git.git import BareRepo, GitLimits, Signature
from worker.adapters.kb_git.mirror import MAX_PACKS, Mirrors
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

REPO = RepoRef("team", "kb")
ENTRY = {"path": "concepts/a.md", "title": "甲", "type": "concept", "keywords": ["词"]}
CATALOG = {"version": 1, "updatedAt": "2026-01-01T00:00:00Z", "pages": [ENTRY]}
PAGE = "---\ntitle: 甲\ntype: concept\nkeywords: [词]\n---\n\n# 甲\n".encode()


def as_json(value: object, indent: int | None = 2) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent).encode() + b"\n"


START: dict[str, bytes] = {
    "catalog.json": as_json(CATALOG),
    "index.md": (
        "# Knowledge Base Index\n\nUpdated at: 2026-01-01T00:00:00Z\n\n## Concepts\n\n- [甲](concepts/a.md) - 词\n"
    ).encode(),
    "concepts/a.md": PAGE,
}


def change(
    task: str, question: str = "KeepAlive 怎么缓存？", *, title: str = "", content: str = "答。", path: str = ""
) -> Change:
    page = qa_page.build_qa_page(
        task_id=task,
        question=question,
        wanted_path=path,
        title=title,
        content=content,
        scenario="",
        evaluation=QaEvaluation(reuse_value=1, synthesis_depth=1, evidence_quality=1, stability=1, reason="可复用"),
        evidence=[EvidencePage(path="concepts/a.md", title="甲", type="concept", keywords=("词",))],
        now="2026-11-30T12:00:00Z",
    )
    return Change(task, page)


def at_path(task: str, path: str, question: str) -> Change:
    """A change whose page has exactly this path, as an artefact of another worker version may."""
    made = change(task, question)
    return Change(
        task, made.page.model_copy(update={"path": path, "catalog_entry": {**made.page.catalog_entry, "path": path}})
    )


class Rig(Protocol):
    """A repository that other people write to as well, and our writer on it."""

    writer: KbWriter

    def put(self, files: Mapping[str, bytes], drop: tuple[str, ...] = ()) -> None: ...
    def files(self) -> dict[str, bytes]: ...
    def messages(self) -> list[str]: ...


class MemoryRig:
    def __init__(self) -> None:
        self.memory = MemoryKbWriter(SystemClock())
        self.writer: KbWriter = self.memory
        self.memory.repos[REPO] = MemoryRepo()

    def put(self, files: Mapping[str, bytes], drop: tuple[str, ...] = ()) -> None:
        self.memory.repos[REPO].add(files, "Edit by someone else", drop=drop)

    def files(self) -> dict[str, bytes]:
        return self.memory.repos[REPO].head.files

    def messages(self) -> list[str]:
        return [commit.message for commit in reversed(self.memory.repos[REPO].history)]


@dataclass
class GitRig:
    server: GitServer
    cache: Path
    branch: str = "main"

    def __post_init__(self) -> None:
        self.writer: KbWriter = self.another("first")

    def another(self, name: str, **limits: float) -> Committer:
        """A writer on another machine: its own mirror."""
        server = self.server
        mirrors = Mirrors(
            self.cache / name, server.url, server.user, server.token, SystemClock(), limits=GitLimits(**limits)
        )
        return Committer(mirrors, SystemClock(), "kb-bot")

    def put(self, files: Mapping[str, bytes], drop: tuple[str, ...] = ()) -> None:
        self.server.commit(REPO.owner, REPO.name, files, delete=drop, branch=self.branch)

    def git(self, *args: str) -> str:
        return self.server.git(REPO.owner, REPO.name, *args)

    def files(self) -> dict[str, bytes]:
        if not self.server.head(REPO.owner, REPO.name, self.branch):
            return {}
        names = self.git("ls-tree", "-r", "-z", "--name-only", self.branch).split("\0")
        return {name: self.file(name) for name in names if name}

    def file(self, name: str, revision: str = "") -> bytes:
        where = self.server.repo_path(REPO.owner, REPO.name)
        args = ["git", "-C", str(where), "cat-file", "blob", f"{revision or self.branch}:{name}"]
        return subprocess.run(args, check=True, capture_output=True).stdout

    def messages(self) -> list[str]:
        return [text.strip() for text in self.git("log", "-z", "--format=%B", self.branch).split("\0") if text.strip()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with GitServer(tmp_path / "server") as running:
        yield running


@pytest.fixture
def git(server: GitServer, tmp_path: Path) -> GitRig:
    server.create(REPO.owner, REPO.name, START)
    return GitRig(server, tmp_path / "cache")


@pytest.fixture(params=["memory", "git"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """An empty repository."""
    if request.param == "memory":
        yield MemoryRig()
        return
    with GitServer(tmp_path / "server") as running:
        running.create(REPO.owner, REPO.name)
        yield GitRig(running, tmp_path / "cache")


def only(receipts: list[Receipt]) -> Receipt:
    assert len(receipts) == 1
    return receipts[0]


def entries(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    return {page["path"]: page for page in json.loads(files["catalog.json"].decode("utf-8-sig"))["pages"]}


# ---------------------------------------------------------------- one page


def test_page_catalog_and_index_arrive_in_one_commit_and_nothing_else_changes(rig: Rig) -> None:
    rig.put({**START, "assets/p.bin": b"\0\xff", "docs/手册 1.md": b"# x"})
    before = rig.files()
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    after = rig.files()
    assert {name for name in after if after[name] != before.get(name)} == {receipt.path, "catalog.json", "index.md"}
    assert receipt.path == "qa/keepalive-怎么缓存.md"
    assert receipt.created
    assert receipt.errors == ()
    assert receipt.commit_id
    assert receipt.entry == entries(after)[receipt.path]
    assert "- [KeepAlive 怎么缓存？](qa/keepalive-怎么缓存.md) - 词\n" in after["index.md"].decode()
    assert len(rig.messages()) == 2


def test_the_same_task_twice_makes_one_commit_and_the_same_receipt(rig: Rig) -> None:
    rig.put(START)
    first = rig.writer.commit(REPO, [change("query-1-2"), change("query-1-3", "另一个问题")])
    rig.put({"concepts/b.md": b"# b"})
    again = rig.writer.commit(REPO, [change("query-1-3", "另一个问题", content="别的答案"), change("query-1-2")])
    assert again == [first[1], first[0]]
    assert sum(message.startswith("kbw:") for message in rig.messages()) == 1


def test_a_batch_is_one_commit_with_receipts_in_order(rig: Rig) -> None:
    rig.put(START)
    batch = [change(f"query-1-{number}", f"问题 {number}") for number in range(5)]
    receipts = rig.writer.commit(REPO, [*batch, batch[0]])
    assert [receipt.task_id for receipt in receipts] == [f"query-1-{number}" for number in [0, 1, 2, 3, 4, 0]]
    assert len({receipt.commit_id for receipt in receipts}) == 1
    assert rig.messages()[0].startswith("kbw: 5 QA page(s)")
    assert rig.writer.commit(REPO, []) == []


# ---------------------------------------------------------------- names


def test_the_same_question_updates_its_page_and_keeps_its_birthday(rig: Rig) -> None:
    rig.put(START)
    first = only(rig.writer.commit(REPO, [change("query-1-2")]))
    page = (
        rig.files()[first.path]
        .decode()
        .replace('createdAt: "2026-11-30T12:00:00Z"', 'createdAt: "2025-05-05T05:05:05Z"')
    )
    rig.put({first.path: page.encode()})
    second = only(rig.writer.commit(REPO, [change("query-9-9", title="换个标题", content="新答案")]))
    assert (second.path, second.created) == (first.path, False)
    found = read_page(rig.files()[first.path].decode())
    assert found.metadata["createdAt"] == "2025-05-05T05:05:05Z"
    assert found.metadata["taskId"] == "query-9-9"
    assert "新答案" in found.body
    assert entries(rig.files())[first.path]["title"] == "换个标题"
    assert rig.files()["index.md"].decode().count(first.path) == 1


@pytest.mark.parametrize("catalog", ["without our ids", "without the page"])
def test_a_page_that_the_catalog_does_not_tell_by_its_id_is_updated_all_the_same(rig: Rig, catalog: str) -> None:
    """Another program that writes the catalog keeps the fields that it knows."""
    rig.put(START)
    first = only(rig.writer.commit(REPO, [change("query-1-2")]))
    document = json.loads(rig.files()["catalog.json"])
    if catalog == "without our ids":
        document["pages"] = [{k: v for k, v in entry.items() if k != "id"} for entry in document["pages"]]
    else:
        document["pages"] = [entry for entry in document["pages"] if entry["path"] != first.path]
    rig.put({"catalog.json": json.dumps(document).encode()})
    second = only(rig.writer.commit(REPO, [change("query-9-9", title="换个标题", content="新答案")]))
    assert (second.path, second.created) == (first.path, False)
    assert "新答案" in rig.files()[first.path].decode()
    assert entries(rig.files())[first.path]["id"] == second.entry["id"]


def test_a_page_that_a_person_edited_is_left_alone(rig: Rig) -> None:
    rig.put(START)
    first = only(rig.writer.commit(REPO, [change("query-1-2")]))
    edited = rig.files()[first.path] + "人工补充\n".encode()
    rig.put({first.path: edited})
    second = only(rig.writer.commit(REPO, [change("query-9-9", content="新答案")]))
    assert second.created
    assert second.path == "qa/keepalive-怎么缓存-37171e1d.md"
    assert rig.files()[first.path] == edited
    third = only(rig.writer.commit(REPO, [change("query-9-10", content="更新的答案")]))
    assert (third.path, third.created) == (second.path, False)


@pytest.mark.parametrize("taken", ["qa/x.md", "qa/X.md", "qa/x.md/inner.md"])
def test_a_name_that_another_page_holds_gets_a_suffix(rig: Rig, taken: str) -> None:
    rig.put({**START, taken: b"# somebody else's"})
    receipt = only(rig.writer.commit(REPO, [change("query-1-2", title="X")]))
    assert receipt.created
    assert receipt.path == "qa/x-bf5d6e05.md"
    assert rig.files()[taken] == b"# somebody else's"


def test_a_name_that_differs_only_in_unicode_form_counts_as_taken(rig: Rig) -> None:
    decomposed = unicodedata.normalize("NFD", "qa/é.md")
    rig.put({**START, decomposed: b"# x"})
    assert only(rig.writer.commit(REPO, [change("query-1-2", title="É")])).path == "qa/é-bf5d6e05.md"


def test_the_same_question_twice_in_a_batch_is_one_page(rig: Rig) -> None:
    rig.put(START)
    one, two = rig.writer.commit(REPO, [change("query-1-2"), change("query-3-4", content="后来的答案")])
    assert (one.path, one.created, two.path, two.created) == (two.path, True, one.path, False)
    assert "后来的答案" in rig.files()[one.path].decode()
    assert len(entries(rig.files())) == 2


def test_different_questions_with_one_title_in_a_batch_are_two_pages(rig: Rig) -> None:
    rig.put(START)
    one, two = rig.writer.commit(REPO, [change("query-1-1", "问一", title="T"), change("query-1-2", "问二", title="T")])
    assert (one.path, two.path) == ("qa/t.md", "qa/t-bf5d6e05.md")
    assert {one.path, two.path} < set(entries(rig.files()))


@pytest.mark.parametrize(
    "path", ["../x.md", "/qa/x.md", "qa/../x.md", "concepts/a.md", "qa/a/b.md", "qa/.git/x.md", "qa/x", "qa/\n.md"]
)
def test_a_path_outside_qa_is_refused_whoever_made_it(rig: Rig, path: str) -> None:
    rig.put(START)
    bad, good = rig.writer.commit(REPO, [at_path("query-1-1", path, "问一"), change("query-1-2", "问二")])
    assert bad.errors
    assert (bad.path, bad.commit_id) == ("", "")
    assert good.commit_id
    assert set(rig.files()) == {*START, good.path}


def test_a_file_named_qa_refuses_the_page_by_name(rig: Rig) -> None:
    rig.put({**START, "qa": b"a file"})
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    assert "qa 不是文件夹" in receipt.errors[0]
    assert rig.files() == {**START, "qa": b"a file"}


# ---------------------------------------------------------------- the repository's state


def test_an_empty_repository_gets_its_first_commit(rig: Rig) -> None:
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    files = rig.files()
    assert set(files) == {receipt.path, "catalog.json", "index.md"}
    assert list(entries(files)) == [receipt.path]
    assert files["index.md"].decode().startswith("# Knowledge Base Index\n\nUpdated at: ")
    assert only(rig.writer.commit(REPO, [change("query-1-2")])) == receipt


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"{", "不是合法的 JSON"),
        (b"", "文件是空的"),
        (b"[]", "不是 JSON 对象"),
        (b'{"pages": {}}', "pages 不是列表"),
        (b'{"version": 1, "pages": []}', "没有任何条目"),
        (b"{}", "没有任何条目"),
        (b"version https://git-lfs.github.com/spec/v1", "JSON"),
    ],
)
def test_a_catalog_that_cannot_be_kept_refuses_the_commit_by_name(rig: Rig, broken: bytes, reason: str) -> None:
    rig.put({**START, "catalog.json": broken})
    before = rig.files()
    receipts = rig.writer.commit(REPO, [change("query-1-2"), change("query-1-3", "别的")])
    for receipt in receipts:
        assert "catalog.json" in receipt.errors[0]
        assert reason in receipt.errors[0]
        assert (receipt.commit_id, receipt.path, receipt.created) == ("", "", False)
    assert rig.files() == before


@pytest.mark.parametrize("empty", [b'{"version": 1, "pages": []}', b"{}", b""])
def test_an_empty_catalog_without_pages_takes_its_first_entry(rig: Rig, empty: bytes) -> None:
    rig.put({"catalog.json": empty, "README.md": b"# readme"})
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    assert list(entries(rig.files())) == [receipt.path]


def test_a_missing_catalog_is_created_with_every_page_so_that_none_is_hidden_by_it(rig: Rig) -> None:
    rig.put(
        {
            "concepts/a.md": PAGE,
            "notes/无标题.md": "# 笔记一\n".encode(),
            "README.md": b"# no page",
            "index.md": b"# Mine\n",
        }
    )
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    found = entries(rig.files())
    assert list(found) == ["concepts/a.md", "notes/无标题.md", receipt.path]
    assert found["concepts/a.md"]["keywords"] == ["词"]
    assert found["notes/无标题.md"]["title"] == "笔记一"


def test_a_missing_index_is_created_over_the_whole_catalog(rig: Rig) -> None:
    rig.put({name: data for name, data in START.items() if name != "index.md"})
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    text = rig.files()["index.md"].decode()
    assert (
        f"## Concepts\n\n- [甲](concepts/a.md) - 词\n\n## QA\n\n- [KeepAlive 怎么缓存？]({receipt.path}) - 词\n" in text
    )


@pytest.mark.parametrize("indent", [4, None])
def test_the_catalogs_own_layout_stays(rig: Rig, indent: int | None) -> None:
    rig.put({**START, "catalog.json": as_json(CATALOG, indent)})
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    data = rig.files()["catalog.json"]
    assert data == as_json(json.loads(data), indent)
    assert list(entries(rig.files())) == ["concepts/a.md", receipt.path]


def test_windows_line_ends_and_an_unsorted_order_stay(rig: Rig) -> None:
    pages = [{"path": "z.md", "title": "Z"}, ENTRY]
    crlf = {name: START[name].replace(b"\n", b"\r\n") for name in START}
    rig.put({**crlf, "catalog.json": as_json({**CATALOG, "pages": pages}).replace(b"\n", b"\r\n")})
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    after = rig.files()
    assert list(entries(after)) == ["z.md", "concepts/a.md", receipt.path]
    for name in ("catalog.json", "index.md"):
        assert after[name].count(b"\n") == after[name].count(b"\r\n")


# ---------------------------------------------------------------- git alone: the commit itself


def test_the_commit_is_the_bots_with_one_trailer_a_page(git: GitRig) -> None:
    receipts = git.writer.commit(REPO, [change("query-1-2"), change("query-a-b", "别的")])
    commit = receipts[0].commit_id
    assert git.git(
        "log", "-1", "--format=%an|%cn|%s|%(trailers:key=Task-Id,valueonly,separator=;)", "main"
    ).strip() == ("kb-bot|kb-bot|kbw: 2 QA page(s)|query-1-2;query-a-b")
    assert git.git("rev-parse", "main").strip() == commit
    assert git.git("rev-list", "--count", "main").strip() == "2"
    git.git("fsck", "--strict")


def test_modes_links_and_submodules_of_others_stay(git: GitRig, tmp_path: Path) -> None:
    odd = f"160000 commit {'1' * 40}\tsub\n120000 blob {{link}}\tlink.md\n100755 blob {{link}}\trun.sh\n"
    where = git.server.repo_path(REPO.owner, REPO.name)

    def raw(*args: str, data: str = "") -> str:
        person = ["-c", "user.name=p", "-c", "user.email=p@x"]  # a bare machine has no git identity
        command = ["git", "-C", str(where), *person, *args]
        done = subprocess.run(command, input=data, text=True, capture_output=True, check=True)
        return done.stdout.strip()

    link = raw("hash-object", "-w", "--stdin", data="catalog.json")
    tree = raw("mktree", data=raw("ls-tree", "main") + "\n" + odd.format(link=link))
    raw("update-ref", "refs/heads/main", raw("commit-tree", "-p", "main", "-m", "odd", tree))
    before = set(raw("ls-tree", "-r", "main").splitlines())
    receipt = only(git.writer.commit(REPO, [change("query-1-2")]))
    after = set(raw("ls-tree", "-r", "main").splitlines())
    assert {line.partition("\t")[2] for line in before - after} == {"catalog.json", "index.md"}
    assert receipt.commit_id == raw("rev-parse", "main")
    assert all(line.startswith("100644") for line in after - before)


@pytest.mark.parametrize("target", ["catalog.json", "index.md", "qa"])
def test_a_symbolic_link_in_our_place_is_refused_by_name(git: GitRig, target: str) -> None:
    where = git.server.repo_path(REPO.owner, REPO.name)
    script = "commit refs/heads/main\ncommitter x <x@x> 1 +0000\ndata 1\nx\nfrom refs/heads/main^0\n"
    script += f"M 120000 inline {target}\ndata 1\nx\n"
    subprocess.run(["git", "-C", str(where), "fast-import", "--quiet"], input=script.encode(), check=True)
    before = git.git("rev-parse", "main")
    assert target in only(git.writer.commit(REPO, [change("query-1-2")])).errors[0]
    assert git.git("rev-parse", "main") == before


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.parametrize("branch", ["main", "trunk"])
def test_the_remotes_own_default_branch_is_written(
    server: GitServer, tmp_path: Path, branch: str, object_format: str
) -> None:
    server.create(REPO.owner, REPO.name, START, branch=branch, object_format=object_format)
    rig = GitRig(server, tmp_path / "cache", branch)
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    assert server.head(REPO.owner, REPO.name, branch) == receipt.commit_id
    assert receipt.path in rig.files()
    assert rig.git("for-each-ref", "--format=%(refname)").split() == [f"refs/heads/{branch}"]


@pytest.mark.parametrize("branch", ["main", "trunk"])
def test_an_empty_repository_gets_the_branch_it_was_made_for(server: GitServer, tmp_path: Path, branch: str) -> None:
    server.create(REPO.owner, REPO.name, branch=branch)
    rig = GitRig(server, tmp_path / "cache", branch)
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    assert server.head(REPO.owner, REPO.name, branch) == receipt.commit_id


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_our_objects_have_the_ids_that_git_itself_gives(server: GitServer, tmp_path: Path, object_format: str) -> None:
    files = {**START, "qa/a.md": b"a", "qa.md": b"sorts before the folder", "qa/b/c.md": b"c"}
    server.create(REPO.owner, REPO.name, files, object_format=object_format)
    rig = GitRig(server, tmp_path / "cache")
    mirror = Mirrors(rig.cache, server.url, server.user, server.token, SystemClock()).of(REPO)
    parent = mirror.latest(fresh=True).commit
    author = Signature("知识 bot", "b@x.invalid", 1_800_000_000)

    def compare(repo: BareRepo) -> None:
        commit = write_commit(GitHead(repo, parent), {"qa/新.md": b"new", "catalog.json": b"{}"}, "消息\n", author)
        root, qa = repo.tree(commit, recursive=False), repo.tree(commit, recursive=False, folder="qa")
        assert {entry.path for entry in qa} == {"qa/a.md", "qa/b", "qa/新.md"}
        folder = repo.write_tree([replace(entry, path=entry.path.removeprefix("qa/")) for entry in qa])
        assert folder == next(entry.id for entry in root if entry.path == "qa")
        assert repo.write_blob(b"new") == next(entry.id for entry in qa if entry.path == "qa/新.md")
        assert commit == repo.write_commit(repo.write_tree(root), [parent], "消息\n", author)

    mirror.run(compare)


# ---------------------------------------------------------------- git alone: pushes that do not simply work


def test_a_protected_branch_refuses_the_page_and_says_so(git: GitRig) -> None:
    git.server.protect(REPO.owner, REPO.name)
    receipt = only(git.writer.commit(REPO, [change("query-1-2")]))
    assert "protected branch main" in receipt.errors[0]
    assert (receipt.commit_id, receipt.path) == ("", "")
    git.server.unprotect(REPO.owner, REPO.name)
    assert only(git.writer.commit(REPO, [change("query-1-2")])).commit_id


def test_an_answer_lost_after_the_push_is_found_in_the_history(git: GitRig) -> None:
    git.server.faults.drop_pushes = 1
    receipt = only(git.writer.commit(REPO, [change("query-1-2")]))
    assert receipt.commit_id == git.server.head(REPO.owner, REPO.name)
    assert receipt.created
    assert len(git.messages()) == 2


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_push_that_was_taken_and_then_denied_is_found_in_the_history(git: GitRig, status: int) -> None:
    """A proxy, or a token that ends at that moment: the result must not say that the page was not written."""
    git.server.faults.late_status = status
    receipt = only(git.writer.commit(REPO, [change("query-1-2")]))
    assert receipt.path in git.files()
    assert receipt.commit_id == git.server.head(REPO.owner, REPO.name)


def test_a_push_that_takes_too_long_is_not_made_twice(git: GitRig) -> None:
    only(git.another("slow").commit(REPO, [change("query-0-0", "热身")]))
    slow = git.another("slow", transfer_s=1.0)
    git.server.faults.push_delay_s = 1.5
    waiting = threading.Timer(2.0, lambda: setattr(git.server.faults, "push_delay_s", 0.0))
    waiting.start()
    receipt = only(tried(slow, [change("query-1-2")]))  # a busy machine may be too slow for the look afterwards, too
    waiting.join()
    assert sum("Task-Id: query-1-2" in message for message in git.messages()) == 1
    assert receipt.path in git.files()


def test_a_stale_push_is_worked_into_the_new_head(git: GitRig) -> None:
    """Another writer's commit lands between our look at the head and our push."""
    mirrors = Mirrors(git.cache / "late", git.server.url, git.server.user, git.server.token, SystemClock())
    late = Committer(mirrors, SystemClock(), "kb-bot")
    only(late.commit(REPO, [change("query-0-0", "热身")]))
    git.server.faults.push_delay_s = 600.0
    with ThreadPoolExecutor(1) as pool:
        ours = pool.submit(late.commit, REPO, [change("query-1-2")])
        while not any("\0push\0" in command_of(process) for process in processes_below(os.getpid())):
            assert not ours.done(), "nothing was pushed"
            threading.Event().wait(0.01)
        pages = [*entries(git.files()).values(), {"path": "concepts/b.md", "title": "乙", "x": "他们的"}]
        git.put({"concepts/b.md": b"# b", "catalog.json": as_json({**CATALOG, "pages": pages})})
        git.server.faults.push_delay_s = 0.0
        receipt = only(ours.result())
    found = entries(git.files())
    assert found["concepts/b.md"]["x"] == "他们的"
    assert receipt.path in found
    assert git.messages()[0].startswith("kbw:")


def test_wrong_credentials_and_a_missing_repository_are_told_apart(git: GitRig, tmp_path: Path) -> None:
    bad = Committer(
        Mirrors(tmp_path / "bad", git.server.url, "kb-bot", "wrong", SystemClock()), SystemClock(), "kb-bot"
    )
    with pytest.raises(PermanentError) as auth:
        bad.commit(REPO, [change("query-1-2")])
    assert auth.value.code is Code.KB_AUTH
    with pytest.raises(PermanentError) as missing:
        git.writer.commit(RepoRef("team", "nope"), [change("query-1-2")])
    assert missing.value.code is Code.KB_NOT_FOUND


@pytest.mark.parametrize("part", ["HEAD", "config", "refs"])
def test_a_mirror_that_was_damaged_since_is_cloned_anew_for_the_push(git: GitRig, part: str) -> None:
    only(git.writer.commit(REPO, [change("query-0-0", "热身")]))
    mirror = next(path for path in git.cache.glob("first/*.git") if path.is_dir())
    if part == "refs":
        shutil.rmtree(mirror / part)
    else:
        (mirror / part).write_bytes(b"\0[[")
    receipt = only(git.writer.commit(REPO, [change("query-1-2")]))
    assert receipt.path in git.files()
    assert receipt.commit_id == git.server.head(REPO.owner, REPO.name)


def test_an_unreachable_server_is_worth_another_try(git: GitRig) -> None:
    git.server.faults.status = 503
    with pytest.raises(TransientError) as down:
        git.writer.commit(REPO, [change("query-1-2")])
    assert down.value.code is Code.KB_UNREACHABLE
    assert "demo-token" not in f"{down.value.en}{down.value.zh}"


def test_a_new_machine_knows_from_the_history_what_is_done(git: GitRig) -> None:
    first = git.writer.commit(REPO, [change("query-1-2"), change("query-1-3", "别的")])
    assert git.another("second").commit(REPO, [change("query-1-3", "别的"), change("query-1-2")]) == first[::-1]
    table = next(git.cache.glob("second/*.sqlite3"))
    table.write_bytes(b"no database")
    assert git.another("second").commit(REPO, [change("query-1-2")]) == first[:1]


def test_a_rewritten_history_forgets_what_it_no_longer_holds(git: GitRig) -> None:
    start = git.server.head(REPO.owner, REPO.name)
    first = only(git.writer.commit(REPO, [change("query-1-2")]))
    git.git("update-ref", "refs/heads/main", start)
    second = only(git.writer.commit(REPO, [change("query-1-2")]))
    assert second.commit_id == git.server.head(REPO.owner, REPO.name)
    assert second.path == first.path in git.files()


def test_a_squashed_history_that_still_holds_the_page_gets_no_second_commit(git: GitRig) -> None:
    first = only(git.writer.commit(REPO, [change("query-1-2")]))
    squashed = git.git(
        "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-m", "squashed", "main^{tree}"
    ).strip()
    git.git("update-ref", "refs/heads/main", squashed)
    second = only(git.another("second").commit(REPO, [change("query-1-2")]))
    assert (second.path, second.commit_id, second.errors) == (first.path, squashed, ())
    assert len(git.messages()) == 1


# ---------------------------------------------------------------- git alone: races


def test_two_writers_and_a_foreign_pusher_lose_nothing(git: GitRig) -> None:
    """Two machines with 20 pages each, in batches, while a person pushes pages and catalog entries of their own."""
    writers = [git.another("a"), git.another("b")]
    stop, pushed, foreign = threading.Event(), threading.Event(), []

    def someone_else() -> None:
        clone = git.cache / "person"
        url = git.server.repo_url(REPO.owner, REPO.name).replace("://", f"://{git.server.user}:{git.server.token}@")
        run = lambda *args: subprocess.run(["git", "-C", str(clone), *args], capture_output=True)  # noqa: E731
        subprocess.run(["git", "clone", "-q", url, str(clone)], check=True, capture_output=True)
        for number in range(100):
            if stop.is_set():
                return
            run("fetch", "-q")
            run("reset", "-q", "--hard", "origin/main")
            path = f"notes/{number:02d}.md"
            (clone / "notes").mkdir(exist_ok=True)
            (clone / path).write_text("# note")
            data = catalog.parse((clone / "catalog.json").read_bytes())
            (clone / "catalog.json").write_bytes(catalog_edit.upsert(data, [{"path": path, "by": "person"}], "x"))
            run("add", "-A")
            run("-c", "user.name=p", "-c", "user.email=p@x", "commit", "-qm", "person")
            if run("push", "-q").returncode == 0:
                foreign.append(path)
                pushed.set()
            stop.wait(0.3)

    person = threading.Thread(target=someone_else)
    person.start()
    assert pushed.wait(60), "the person could not push before anybody else did"
    try:
        with ThreadPoolExecutor(2) as pool:
            receipts = [
                receipt for batch in pool.map(lambda n: write_twenty(writers[n], n), range(2)) for receipt in batch
            ]
    finally:
        stop.set()
        person.join()
    files, found = git.files(), entries(git.files())
    assert len({receipt.path for receipt in receipts}) == 40
    for path in [*(receipt.path for receipt in receipts), *foreign]:
        assert path in files
        assert path in found
    assert all(found[path]["by"] == "person" for path in foreign)
    trailers = git.git("log", "--format=%(trailers:key=Task-Id,valueonly)", "main").split()
    assert sorted(trailers) == sorted(receipt.task_id for receipt in receipts)
    index = files["index.md"].decode()
    assert all(f"({receipt.path})" in index for receipt in receipts)
    git.git("fsck", "--strict")


def write_twenty(writer: KbWriter, who: int) -> list[Receipt]:
    """20 pages in batches of 4; what a busy server turns away is tried again, as a job is."""
    receipts: list[Receipt] = []
    for start in range(0, 20, 4):
        batch = [change(f"query-{who}-{n}", f"问题 {who} {n}") for n in range(start, start + 4)]
        receipts += tried(writer, batch)
    return receipts


def tried(writer: KbWriter, batch: list[Change]) -> list[Receipt]:
    for _ in range(20):
        with suppress(TransientError):
            return writer.commit(REPO, batch)
    raise AssertionError("turned away twenty times")


def test_the_same_task_on_two_machines_at_once_is_committed_once(git: GitRig) -> None:
    writers = [git.another(name) for name in "abc"]
    with ThreadPoolExecutor(3) as pool:
        receipts = list(pool.map(lambda writer: only(writer.commit(REPO, [change("query-1-2")])), writers))
    assert len({receipt.commit_id for receipt in receipts}) == 1
    assert sum("Task-Id: query-1-2" in message for message in git.messages()) == 1


def test_writers_of_one_machine_queue_up_instead_of_racing(git: GitRig) -> None:
    writers = [git.another("shared") for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        batches = pool.map(lambda n: writers[n].commit(REPO, [change(f"query-{n}-0", f"问题 {n}")]), range(5))
        receipts = [only(batch) for batch in batches]
    assert git.server.counts.pushes == len({receipt.commit_id for receipt in receipts}) == 5
    assert len(entries(git.files())) == 6


def test_what_we_pushed_ourselves_is_not_fetched_again(git: GitRig) -> None:
    git.writer.commit(REPO, [change("query-0-0", "热身")])
    before = git.server.counts.fetches
    for number in range(3):
        git.writer.commit(REPO, [change(f"query-1-{number}", f"问题 {number}")])
    assert git.server.counts.fetches == before
    git.put({"concepts/b.md": b"# b"})
    git.writer.commit(REPO, [change("query-2-0", "最后")])
    assert git.server.counts.fetches == before + 1
    assert "concepts/b.md" in git.files()


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2, 0.4, 0.8])
def test_a_writer_killed_at_any_moment_leaves_one_commit_when_it_is_done_again(git: GitRig, after_s: float) -> None:
    """The process is killed with its git processes; whether its push arrived is the server's secret."""
    only(git.another("killed").commit(REPO, [change("query-0-0", "热身")]))
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(target=commit_alone, args=(git.server.url, git.cache / "killed", begun))
    process.start()
    assert begun.wait(60)
    process.join(after_s)
    process.kill()
    process.join()
    receipts = git.another("killed").commit(REPO, [change("query-1-2"), change("query-3-4", "别的")])
    trailers = git.git("log", "--format=%(trailers:key=Task-Id,valueonly)", "main").split()
    assert sorted(trailers) == ["query-0-0", "query-1-2", "query-3-4"]
    assert {receipt.path for receipt in receipts} < set(entries(git.files()))
    git.git("fsck", "--strict")


def commit_alone(url: str, cache: Path, begun: Any) -> None:
    """A process of its own that writes two pages and says when it begins."""
    begun.set()
    mirrors = Mirrors(cache, url, "bot", "demo-token", SystemClock())
    Committer(mirrors, SystemClock(), "kb-bot").commit(REPO, [change("query-1-2"), change("query-3-4", "别的")])


# ---------------------------------------------------------------- the real knowledge base


def test_the_real_knowledge_base_takes_a_page_with_the_smallest_change(
    shared: Callable[[str], Path], server: GitServer, tmp_path: Path
) -> None:
    server.create(REPO.owner, REPO.name, from_bundle=shared("kb") / "vue-zh.bundle")
    rig = GitRig(server, tmp_path / "cache")
    receipt = only(rig.writer.commit(REPO, [change("query-1-2")]))
    diff = rig.git("show", "--format=", "--unified=0", "main", "--", "catalog.json", "index.md").split("\n")
    gone = [line for line in diff if line.startswith("-") and not line.startswith("---")]
    assert [line.strip("- ")[:12] for line in gone] == ['"updatedAt":', "Updated at: "]
    assert f"+- [KeepAlive 怎么缓存？]({receipt.path}) - 词" in diff
    data = rig.file("catalog.json")
    whole = json.loads(data)
    assert data.decode() == json.dumps(whole, ensure_ascii=False, indent=2)
    assert [page["path"] for page in whole["pages"]] == sorted(page["path"] for page in whole["pages"])
    assert [line for line in rig.file("index.md").decode().split("\n") if line.startswith("## ")] == [
        "## Concepts", "## Notes", "## Overview", "## Projects", "## QA", "## Resources", "## Tech Notes",
    ]  # fmt: skip


def test_the_real_catalog_and_index_can_be_rebuilt_from_their_own_entries(
    shared: Callable[[str], Path], server: GitServer, tmp_path: Path
) -> None:
    """Every third entry and line taken out and put back gives the same bytes: the formats are met exactly."""
    server.create(REPO.owner, REPO.name, from_bundle=shared("kb") / "vue-zh.bundle")
    rig = GitRig(server, tmp_path / "cache")
    data, text = rig.file("catalog.json"), rig.file("index.md").decode()
    whole = json.loads(data)
    kept = {**whole, "pages": [page for number, page in enumerate(whole["pages"]) if number % 3]}
    some = catalog.parse(json.dumps(kept, ensure_ascii=False, indent=2).encode())
    assert catalog_edit.upsert(some, whole["pages"][::3], whole["updatedAt"]) == data
    lines = text.split("\n")
    removed = [page for page in whole["pages"][::3] if any(f"({page['path']})" in line for line in lines)]
    less = "\n".join(line for line in lines if not any(f"({page['path']})" in line for page in removed))
    back = [index_page.IndexEntry(p["path"], p["title"], p["type"], tuple(p["keywords"][:5])) for p in removed]
    assert index_page.update(less, back, {page["path"] for page in kept["pages"]}, whole["updatedAt"]) == text


# ---------------------------------------------------------------- git alone: big catalogs


def noise(number: int) -> str:
    """Text that no packing makes small."""
    return random.Random(number).randbytes(200).hex()


def big(count: int = 3_000) -> dict[str, bytes]:
    """A repository whose catalog and index are written as deltas."""
    pages = [{**ENTRY, "path": f"concepts/{n:05}.md", "title": f"第 {n} 页", "about": noise(n)} for n in range(count)]
    index = "".join(f"- [第 {n} 页](concepts/{n:05}.md) - {noise(n)}\n" for n in range(count))
    files = {str(page["path"]): f"# {page['title']}\n".encode() for page in pages[:20]}
    head = "# Knowledge Base Index\n\nUpdated at: 2026-01-01T00:00:00Z\n\n## Concepts\n\n"
    return {**files, "catalog.json": as_json({**CATALOG, "pages": pages}), "index.md": (head + index).encode()}


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_commits_on_a_big_catalog_are_small_and_git_takes_them(
    server: GitServer, tmp_path: Path, object_format: str
) -> None:
    files = big()
    server.create(REPO.owner, REPO.name, files, object_format=object_format)
    rig = GitRig(server, tmp_path / "cache")
    before = json.loads(files["catalog.json"])["pages"]
    for number in range(20):  # more than a chain of deltas may be long
        if number == 7:  # another writer's catalog in between
            catalog_now = rig.files()["catalog.json"].replace("第 1 页".encode(), "第一页".encode())
            rig.put({"catalog.json": catalog_now})
        if number == 12:  # another process of ours goes on
            rig.writer = rig.another("first")
        assert only(rig.writer.commit(REPO, [change(f"query-{number}-0", f"问题 {number}？")])).commit_id
    after = json.loads(rig.files()["catalog.json"])["pages"]
    assert len(after) == len(before) + 20
    assert [page for page in after if page["path"].startswith("concepts/")] == [
        {**page, "title": "第一页"} if page["title"] == "第 1 页" else page for page in before
    ]
    mirror = next((tmp_path / "cache" / "first").glob("*.git"))
    for repo in (mirror, server.repo_path(REPO.owner, REPO.name)):
        subprocess.run(["git", "-C", str(repo), "fsck", "--strict", "--no-dangling"], check=True, capture_output=True)
    assert server.counts.pushed_bytes < len(files["catalog.json"])  # of twenty


def test_packs_of_many_commits_are_rolled_up(git: GitRig) -> None:
    for number in range(MAX_PACKS + 3):
        only(git.writer.commit(REPO, [change(f"query-{number}-0", f"问题 {number}？")]))
    assert len(list(git.cache.glob("first/*.git/objects/pack/*.pack"))) <= MAX_PACKS
    assert len(entries(git.files())) == MAX_PACKS + 4
