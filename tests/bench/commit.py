"""How many QA pages a second reach the repository, and whether all of them stay: ours beside optimistic retry.

    python -m tests.bench.commit --pages 1000 --writers 16 --seconds 20

``group``: waiting pages are drained into one commit and one push (``worker.adapters.kb_git.committer``).
``retry``: every writer has its own clone, fetches, writes page, catalog and index, commits and pushes; refused, it
starts again from the new head: correct, and slow. ``rebase`` and ``contents``: see ``tests.bench.other_ways``.
All talk to the same server in a process of its own; a writer hands in its next page when the last one is in. Lost:
pages reported as written that are not in tree and catalog, and pages in the tree that the catalog does not know.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tasks.contract.answer import QaEvaluation
from tasks.contract.evidence import EvidencePage
from tasks.contract.outcome import Receipt
from tasks.errors import TransientError
from tasks.kb import index_page, qa_page
from tasks.kb.catalog import entry_facts
from tasks.ports import Change, RepoRef
from tests.bench.other_ways import serve_contents, write_by_contents, write_by_rebase
from worker.adapters.kb_git.committer import Committer
from worker.adapters.kb_git.mirror import Mirrors
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

MAX_BATCH = 64
WAYS = ("group", "contents", "rebase", "retry")
WORDS = [
    "缓存", "组件", "响应式", "路由", "状态", "编译", "插槽", "指令",
    "渲染", "测试", "部署", "安全", "性能", "类型", "工具链", "生命周期",
]  # fmt: skip


# ---------------------------------------------------------------- the repository


def entry(number: int) -> dict[str, Any]:
    """A catalog entry of about the size of the real ones (750 bytes)."""
    chance = random.Random(number)
    words = chance.sample(WORDS, 8)
    return {
        "path": f"concepts/{number % 50:02d}/page-{number:06d}.md",
        "title": f"{words[0]}与{words[1]}的关系（{number}）",
        "type": "concept",
        "kbType": "concept",
        "sourceIds": [number],
        "updatedAt": "2026-01-01T00:00:00Z",
        "keywords": words,
        "projectIds": ["demo"],
        "relatedConcepts": [],
        "relatedResources": [],
        "relatedCodePages": [],
        "relatedPages": [],
        "contentHash": f"{chance.getrandbits(256):064x}",
        "sourceStatus": "active",
    }


def content(pages: int) -> dict[str, bytes]:
    """A repository of ``pages`` pages with catalog and index."""
    entries = sorted((entry(number) for number in range(pages)), key=lambda page: page["path"])
    files = {page["path"]: f"# {page['title']}\n\n{'。'.join(page['keywords'])}\n".encode() for page in entries}
    catalog = {"version": 1, "updatedAt": "2026-01-01T00:00:00Z", "pages": entries}
    files["catalog.json"] = json.dumps(catalog, ensure_ascii=False, indent=2).encode()
    files["index.md"] = index_page.create(map(index_entry, entries), "2026-01-01T00:00:00Z").encode()
    return files


def index_entry(page: dict[str, Any]) -> index_page.IndexEntry:
    facts = entry_facts(page["path"], page)
    return index_page.IndexEntry(facts.path, facts.title, facts.type, facts.keywords)


def serve(root: str, pages: int, pipe: Connection) -> None:
    """The server's process: tells its address, ends when the pipe is closed."""
    with GitServer(Path(root)) as server:
        server.create("team", "kb", content(pages))
        subprocess.run(["git", "-C", str(server.repo_path("team", "kb")), "repack", "-adq"], check=True)
        contents = serve_contents(server.repo_path("team", "kb"))
        pipe.send((server.url, contents.server_address[1]))
        while True:
            try:
                pipe.recv()
            except EOFError:
                return


@contextmanager
def running_server(pages: int, folder: Path) -> Iterator[tuple[str, int]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(str(folder / "server"), pages, theirs))
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join(10)


# ---------------------------------------------------------------- what is measured


@dataclass
class Tally:
    """Seconds that each page waited, and the paths that were reported as written."""

    waits: list[float] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    pushes: int = 0
    failed: int = 0


def change(writer: int, number: int) -> Change:
    page = qa_page.build_qa_page(
        task_id=f"query-{writer}-{number}",
        question=f"第 {writer} 组第 {number} 个问题：{WORDS[number % len(WORDS)]}怎么用？",
        wanted_path="",
        title="",
        content="结论。" * 200,
        scenario="任何时候",
        evaluation=QaEvaluation(reuse_value=1, synthesis_depth=1, evidence_quality=1, stability=1, reason="常问"),
        evidence=[EvidencePage(path=entry(0)["path"], title="甲", type="concept", keywords=tuple(WORDS[:8]))],
        now="2026-11-30T12:00:00Z",
    )
    return Change(page.frontmatter["taskId"], page)  # type: ignore[arg-type]


def closed_loop(writers: int, seconds: float, write: Callable[[int, int], str | None], tally: Tally) -> float:
    """``writers`` threads, each handing in a page when its last one is in; the time until all have come to rest."""
    start = time.monotonic()

    def run(writer: int) -> None:
        number = 0
        while time.monotonic() - start < seconds:
            began = time.monotonic()
            path = write(writer, number)
            if path:
                tally.waits.append(time.monotonic() - began)
                tally.paths.append(path)
            else:
                tally.failed += 1
            number += 1

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(run, range(writers)))
    return time.monotonic() - start


def group(url: str, folder: Path, writers: int, seconds: float) -> tuple[Tally, float]:
    """One committer drains what waits."""
    tally, waiting = Tally(), queue.Queue[tuple[Change, Future[Receipt]] | None]()
    committer = Committer(Mirrors(folder / "mirrors", url, "bot", "demo-token", SystemClock()), SystemClock(), "bot")
    committer.commit(RepoRef("team", "kb"), [change(999, 0)])  # the clone is not what is measured

    def drain() -> None:
        while (first := waiting.get()) is not None:
            time.sleep(0.02)  # linger: those that were just released hand in their next page
            batch = [first]
            while len(batch) < MAX_BATCH and not waiting.empty():
                if (more := waiting.get()) is not None:
                    batch.append(more)
            tally.pushes += 1
            try:
                receipts = committer.commit(RepoRef("team", "kb"), [item for item, _ in batch])
            except TransientError as error:
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (_, future), receipt in zip(batch, receipts, strict=True):
                future.set_result(receipt)

    thread = threading.Thread(target=drain)
    thread.start()

    def write(writer: int, number: int) -> str | None:
        future: Future[Receipt] = Future()
        waiting.put((change(writer, number), future))
        try:
            return future.result(timeout=600).path
        except TransientError:
            return None

    spent = closed_loop(writers, seconds, write, tally)
    waiting.put(None)
    thread.join()
    return tally, spent


def retry(url: str, folder: Path, writers: int, seconds: float) -> tuple[Tally, float]:
    """Everybody pulls, edits, pushes, and starts again when refused."""
    tally = Tally()
    remote = f"{url}/team/kb.git".replace("://", "://bot:demo-token@")
    for writer in range(writers):
        run_git(folder, "clone", "-q", remote, str(folder / f"clone-{writer}"))
    stop = time.monotonic() + seconds

    def write(writer: int, number: int) -> str | None:
        clone, made = folder / f"clone-{writer}", change(writer, number).page
        while time.monotonic() < stop + seconds:
            run_git(clone, "fetch", "-q")
            run_git(clone, "reset", "-q", "--hard", "origin/main")
            (clone / "qa").mkdir(exist_ok=True)
            (clone / made.path).write_text(qa_page.render(made), encoding="utf-8")
            catalog = json.loads((clone / "catalog.json").read_bytes())
            catalog["pages"] = sorted([*catalog["pages"], made.catalog_entry], key=lambda page: page["path"])
            (clone / "catalog.json").write_text(json.dumps(catalog, ensure_ascii=False, indent=2), encoding="utf-8")
            index = index_page.create(map(index_entry, catalog["pages"]), "2026-11-30T12:00:00Z")
            (clone / "index.md").write_text(index, encoding="utf-8")
            run_git(clone, "add", "-A")
            run_git(clone, "-c", "user.name=bot", "-c", "user.email=bot@x.invalid", "commit", "-qm", made.title)
            tally.pushes += 1
            if run_git(clone, "push", "-q"):
                return made.path
        return None

    return tally, closed_loop(writers, seconds, write, tally)


def rebase(url: str, folder: Path, writers: int, seconds: float) -> tuple[Tally, float]:
    """Everybody commits, pulls with rebase, pushes."""
    tally = Tally()
    remote = f"{url}/team/kb.git".replace("://", "://bot:demo-token@")
    for writer in range(writers):
        run_git(folder, "clone", "-q", remote, str(folder / f"clone-{writer}"))
    stop = time.monotonic() + 2 * seconds

    def write(writer: int, number: int) -> str | None:
        made = change(writer, number).page
        pushes = write_by_rebase(folder / f"clone-{writer}", made, index_entry, lambda: time.monotonic() < stop)
        tally.pushes += abs(pushes)
        return made.path if pushes > 0 else None

    return tally, closed_loop(writers, seconds, write, tally)


def contents(port: int, writers: int, seconds: float) -> tuple[Tally, float]:
    """Everybody writes three files through the contents API."""
    tally = Tally()

    def write(writer: int, number: int) -> str | None:
        made = change(writer, number).page
        tally.pushes += 3
        return made.path if write_by_contents(port, made, index_entry) else None

    return tally, closed_loop(writers, seconds, write, tally)


def run_git(folder: Path, *args: str) -> bool:
    done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, timeout=300)
    return done.returncode == 0


# ---------------------------------------------------------------- the table


def lost(url: str, folder: Path, paths: list[str]) -> int:
    """Pages that are in the tree only, or that were reported as written and are not in both tree and catalog."""
    check = folder / "check.git"
    run_git(folder, "clone", "-q", "--bare", f"{url}/team/kb.git".replace("://", "://bot:demo-token@"), str(check))

    def show(*args: str) -> bytes:
        return subprocess.run(["git", "-C", str(check), *args], capture_output=True, check=True).stdout

    names = set(show("ls-tree", "-r", "-z", "--name-only", "main").decode().split("\0"))
    known = {page["path"] for page in json.loads(show("cat-file", "blob", "main:catalog.json"))["pages"]}
    orphans = {name for name in names if name.startswith("qa/") and name not in known}
    return len(orphans | {path for path in paths if path not in names or path not in known})


def measure(name: str, pages: int, writers: int, seconds: float) -> None:
    ways = {"group": group, "retry": retry, "rebase": rebase}
    with tempfile.TemporaryDirectory() as base, running_server(pages, Path(base)) as (url, port):
        before = cpu()
        if name == "contents":
            tally, spent = contents(port, writers, seconds)
        else:
            tally, spent = ways[name](url, Path(base), writers, seconds)
        used, done = cpu() - before, max(len(tally.paths), 1)
        waits = sorted(tally.waits) or [float("nan")]
        p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
        columns = [
            f"{name:8} {pages:>7} pages {writers:>3} writers",
            f"{len(tally.paths) / spent:8.2f} pages/s",
            f"p50 {statistics.median(waits):6.2f} s",
            f"p99 {p99:6.2f} s",
            f"{tally.pushes / done:5.2f} pushes/page",
            f"{1000 * used / done:7.1f} ms CPU/page (client)",
            f"{len(tally.paths)} written, {tally.failed} given up, {lost(url, Path(base), tally.paths)} lost",
        ]
        print(" | ".join(columns), flush=True)


def cpu() -> float:
    """Seconds of this process and of its git processes that are over (the server is another process)."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=1000, help="pages in the repository (1000, 10000, 100000)")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", choices=WAYS, action="append", help="default: all")
    given = parser.parse_args()
    for name in given.only or WAYS:
        measure(name, given.pages, given.writers, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
