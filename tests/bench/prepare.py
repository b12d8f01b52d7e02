"""How long reading the knowledge base for ``prepare`` takes, beside a client that reads page by page over HTTP.

    python -m tests.bench.prepare [--pages 10000]

Ours: snapshot, ranking of 60 pages, 10 passages, catalog listing, index preview and warnings, through a real git server
on loopback; then the index itself: first build, update after a commit of 10 pages, first use in a fresh process, memory
of several readers. The other client reads ``catalog.json``, ``index.md`` and 40 pages one after the other on one
connection, each answer taking ``--delay-ms`` (what the contents API of a real Gitea took). Without ``--pages``: the
real knowledge base, where it is at hand. Exit code 1 when an aim is missed.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import quote, unquote

from tasks.ports import RepoRef
from tests.bench import repository
from worker.adapters.kb_git.mirror import Mirrors
from worker.adapters.kb_git.snapshot import GitKbReader
from worker.clock import SystemClock
from worker.demo.git_server import GitServer

BUNDLE = Path(__file__).resolve().parents[3] / "shared" / "kb" / "vue-zh.bundle"
REPO = RepoRef("team", "kb")
REAL = ["计算属性和方法有什么区别？", "如何缓存动态组件", "怎么防止 XSS 攻击", "watch 和 watchEffect 的区别"]
GENERATED = ["v7.5 里连接池的超时怎么配置？", "备份恢复之后如何校验", "集群扩容时副本迁移很慢怎么排查", "raft 快照太大"]
PAGES_READ = 40
RATIO = 50
AIMS_MS = {1_000: 25, 10_000: 60, 100_000: 150}
READERS = 4
UPDATES = 10


def read_for_prepare(reader: GitKbReader, question: str, *, fresh: bool) -> int:
    """All that ``prepare`` takes from the knowledge base for one question; the number of characters it got."""
    snapshot = reader.latest(REPO, fresh=fresh)
    ranked = snapshot.rank(question, 60)
    listed = snapshot.listing(350, [hit.facts.path for hit in ranked])
    cards = [hit.passage for hit in ranked[:10]]
    notes = snapshot.notes([facts.path for facts in listed])
    return len(snapshot.index_text(8_000)) + sum(map(len, cards)) + len(listed) + len(notes)


def open_reader(folder: str, url: str) -> GitKbReader:
    return GitKbReader(Mirrors(Path(folder) / "cache", url, "bot", "demo-token", SystemClock()))


# ---------------------------------------------------------------- the other client


class SlowFiles(BaseHTTPRequestHandler):
    """Serves files after a pause."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]
    delay_s: float

    def do_GET(self) -> None:
        time.sleep(self.delay_s)
        data = self.files.get(unquote(self.path.lstrip("/")), b"")
        self.send_response(200 if data else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Silent."""


def read_page_by_page(port: int, paths: list[str]) -> int:
    """One request a file on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    total = 0
    for path in paths:
        connection.request("GET", "/" + quote(path))
        total += len(connection.getresponse().read())
    connection.close()
    return total


def page_by_page_ms(files: dict[str, bytes], delay_s: float) -> float:
    """One run of the other client against a server that holds ``files``."""
    handler = type("Handler", (SlowFiles,), {"files": files, "delay_s": delay_s})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return spent_ms(lambda: read_page_by_page(server.server_address[1], list(files)))
    finally:
        server.shutdown()
        server.server_close()


# ---------------------------------------------------------------- several processes


def reader_process(folder: str, url: str, questions: list[str], pipe: Connection) -> None:
    """A worker that comes new to an index that is there: its first question, then some more, then its memory."""
    began = time.perf_counter()
    reader = open_reader(folder, url)
    opened = time.perf_counter()
    read_for_prepare(reader, questions[0], fresh=False)
    first = time.perf_counter()
    base = memory_kib()
    for number in range(20):
        read_for_prepare(reader, questions[number % len(questions)], fresh=False)
    pipe.send(((opened - began) * 1e3, (first - opened) * 1e3, base))
    pipe.recv()  # all are up: what is shared is shared now
    pipe.send(memory_kib())
    pipe.recv()
    reader.close()


def memory_kib() -> dict[str, int]:
    """Memory of this process that the index takes, in KiB.

    ``index_pss``: this process's share of mapped index files (page cache) · ``own``: anonymous memory of the process.
    """
    text = Path("/proc/self/smaps").read_text(encoding="utf-8")
    index = own = 0
    for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", text):
        pss = sum(map(int, re.findall(r"(?m)^Pss:\s+(\d+)", block)))
        if ".index/" in block.partition("\n")[0]:
            index += pss
        anonymous = re.findall(r"(?m)^Anonymous:\s+(\d+)", block)
        own += sum(map(int, anonymous))
    return {"index_pss": index, "own": own}


def measure_readers(folder: str, url: str, questions: list[str]) -> tuple[float, dict[str, int], dict[str, int]]:
    """First question of a fresh process (ms), and the memory of all readers together."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(READERS):
        ours, theirs = context.Pipe()
        process = context.Process(target=reader_process, args=(folder, url, questions, theirs))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    firsts = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(None)
    memory = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join(30)
    total = {name: sum(each[name] for each in memory) for name in memory[0]}
    grown = {
        name: sum(each[name] - first[2][name] for each, first in zip(memory, firsts, strict=True)) for name in total
    }
    return statistics.median(first for _, first, _ in firsts), total, grown


# ---------------------------------------------------------------- the report


def spent_ms(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1e3


def median_ms(action: Callable[[int], object], rounds: int) -> float:
    """Median wall time of ``action`` in milliseconds."""
    return statistics.median(spent_ms(lambda number=number: action(number)) for number in range(rounds))  # type: ignore[misc]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pages", type=int, default=0, help="generate so many pages")
    parser.add_argument("--keep", type=Path, help="a folder whose generated repository is used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, GitServer((options.keep or Path(folder)) / "server") as server:
        is_real = BUNDLE.exists() and not options.pages
        if options.keep and server.repo_path("team", "kb").exists():
            return report(folder, server, GENERATED, options)
        pages = options.pages or 1_000
        server.create(
            "team", "kb", None if is_real else repository.content(pages), from_bundle=BUNDLE if is_real else None
        )
        subprocess.run(["git", "-C", str(server.repo_path("team", "kb")), "repack", "-adq"], check=True)
        return report(folder, server, REAL if is_real else GENERATED, options)


def report(folder: str, server: GitServer, questions: list[str], options: argparse.Namespace) -> int:
    reader = open_reader(folder, server.url)
    mirror = reader._mirrors.of(REPO)
    clone = spent_ms(lambda: mirror.latest(fresh=True))
    built = spent_ms(lambda: reader.latest(REPO, fresh=False))
    size = reader.latest(REPO, fresh=False).page_count
    warm = median_ms(lambda n: read_for_prepare(reader, questions[n % len(questions)], fresh=False), options.rounds)
    looking = median_ms(lambda n: read_for_prepare(reader, questions[n % len(questions)], fresh=True), 5)
    first, memory, grown = measure_readers(folder, server.url, questions)
    snapshot = reader.latest(REPO, fresh=True)
    paths = ["catalog.json", "index.md", *(facts.path for facts in snapshot.listing(PAGES_READ, []))]
    files = {path: server.git("team", "kb", "show", f"main:{path}").encode() for path in paths}
    other = page_by_page_ms(files, options.delay_ms / 1e3)
    aim = next((ms for most, ms in AIMS_MS.items() if size <= most), AIMS_MS[100_000])
    print(
        f"knowledge base            {size} pages, catalog {len(files['catalog.json']) / 1e6:.1f} MB; "
        f"clone {clone:.0f} ms"
    )
    print(f"first index               {built:9.1f} ms  ({built / max(size, 1):.2f} ms a page)")
    print(f"warm                      {warm:9.1f} ms  (aim: {aim} ms)")
    print(f"looking at the remote     {looking:9.1f} ms")
    print(f"first in a fresh process  {first:9.1f} ms  ({READERS} at once)")
    print(f"memory, {READERS} readers         mapped index {memory['index_pss'] / 1024:.1f} MiB (page cache, shared)")
    print(f"                          own, all of Python: {memory['own'] / 1024:.1f} MiB, "
          f"grown by 20 questions each: {grown['own'] / 1024:.1f} MiB")  # fmt: skip
    print(f"page by page              {other:9.1f} ms  ({len(paths)} requests at {options.delay_ms:g} ms)")
    print(f"ratio warm                {other / warm:9.1f} x  (aim: {RATIO} x)")
    print(f"ratio looking             {other / looking:9.1f} x")
    if options.pages:
        report_update(server, reader, options.pages)
    reader.close()
    return 0 if other / warm >= RATIO and warm <= aim else 1


def report_update(server: GitServer, reader: GitKbReader, pages: int) -> None:
    """Commits of 10 pages arrive.

    The first time a server that was just repacked sends the catalog whole (its bitmaps know no deltas), then only what
    differs.
    """
    mirror = reader._mirrors.of(REPO)
    for turn, files in enumerate(repository.changes(pages, UPDATES)):
        server.commit("team", "kb", files)
        fetched = spent_ms(lambda: mirror.latest(fresh=True))
        commit = mirror.latest(fresh=False).commit
        began = time.process_time()
        updated = spent_ms(lambda commit=commit: reader.at(REPO, commit))  # type: ignore[misc]
        used = (time.process_time() - began) * 1e3
        told = f"(CPU {used:.1f} ms; fetch before it {fetched:.1f} ms)"
        print(f"update by 10 pages, {turn + 1}.    {updated:9.1f} ms  {told}")


if __name__ == "__main__":
    sys.exit(main())
