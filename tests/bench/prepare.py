"""How long reading the knowledge base for ``prepare`` takes, beside a client that reads page by page over HTTP.

Run: ``.venv/bin/python tests/bench/prepare.py``. Ours: snapshot, ranking of 60 pages with passages, catalog listing,
10 cards, index preview and warnings, through a real git server on loopback. The other client reads ``catalog.json``,
``index.md`` and 40 pages one after the other on one connection, each answer taking ``--delay-ms`` (what the contents
API of a real Gitea took). Exit code 1 when ours is not 50 times faster.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tasks.ports import RepoRef  # noqa: E402  # the script runs from any folder
from worker.adapters.kb_git.mirror import Mirrors  # noqa: E402
from worker.adapters.kb_git.snapshot import GitKbReader  # noqa: E402
from worker.clock import SystemClock  # noqa: E402
from worker.demo.git_server import GitServer  # noqa: E402

BUNDLE = ROOT.parent / "shared" / "kb" / "vue-zh.bundle"
REPO = RepoRef("team", "kb")
QUESTIONS = ["计算属性和方法有什么区别？", "如何缓存动态组件", "怎么防止 XSS 攻击", "watch 和 watchEffect 的区别"]
PAGES_READ = 40
AIM = 50


def generated_kb(pages: int = 120) -> dict[str, bytes]:
    """A knowledge base of the same size, where the real one is not at hand."""
    rnd = random.Random(7)
    words = ["部署", "监控", "缓存", "组件", "属性", "方法", "错误", "队列", "重试", "索引", "reactive", "timeout"]
    files: dict[str, bytes] = {"index.md": b"# Knowledge Base Index\n"}
    entries = []
    for number in range(pages):
        path, title = f"concepts/p{number}.md", "".join(rnd.sample(words, 2)) + str(number)
        text = "\n\n".join("".join(rnd.choices(words, k=40)) + "。" for _ in range(60))
        files[path] = f"---\ntitle: {title}\ntype: concept\n---\n# {title}\n\n{text}\n".encode()
        entries.append({"path": path, "title": title, "type": "concept", "keywords": rnd.sample(words, 4)})
    files["catalog.json"] = json.dumps({"version": 1, "pages": entries}, ensure_ascii=False, indent=2).encode()
    return files


def read_for_prepare(reader: GitKbReader, question: str, *, fresh: bool) -> int:
    """All that ``prepare`` takes from the knowledge base for one question; the number of characters it got."""
    snapshot = reader.latest(REPO, fresh=fresh)
    ranked = snapshot.rank(question, 60)
    listed = snapshot.listing(350, [hit.facts.path for hit in ranked])
    cards = [hit.passage for hit in ranked[:10]]
    notes = snapshot.notes([facts.path for facts in listed])
    return len(snapshot.index_text(8_000)) + sum(map(len, cards)) + len(listed) + len(notes)


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
    """The other client: one request a file on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    total = 0
    for path in paths:
        connection.request("GET", "/" + quote(path))
        total += len(connection.getresponse().read())
    connection.close()
    return total


def median_ms(action: Callable[[int], object], rounds: int) -> float:
    """Median wall time of ``action`` in milliseconds."""
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        action(number)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1_000


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, GitServer(Path(folder) / "server") as server:
        bundle = BUNDLE if BUNDLE.exists() else None
        server.create("team", "kb", None if bundle else generated_kb(), from_bundle=bundle)
        reader = GitKbReader(Mirrors(Path(folder) / "cache", server.url, server.user, server.token, SystemClock()))
        began = time.perf_counter()
        read_for_prepare(reader, QUESTIONS[0], fresh=True)
        cold = (time.perf_counter() - began) * 1_000
        warm = median_ms(lambda n: read_for_prepare(reader, QUESTIONS[n % 4], fresh=False), options.rounds)
        fresh = median_ms(lambda n: read_for_prepare(reader, QUESTIONS[n % 4], fresh=True), 5)
        snapshot = reader.latest(REPO, fresh=True)
        pages = [facts.path for facts in snapshot.listing(PAGES_READ, [])]
        paths = ["catalog.json", "index.md", *pages]
        files = {path: (server.git("team", "kb", "show", f"main:{path}")).encode() for path in paths}
        other = page_by_page_ms(files, options.delay_ms / 1_000)
        reader.close()
    print(f"knowledge base           {'vue-zh' if bundle else 'generated'}, {snapshot.page_count} pages")
    print(f"ours, first in a process {cold:8.1f} ms  (clone, read and index everything)")
    print(f"ours, warm               {warm:8.1f} ms")
    print(f"ours, looking at remote  {fresh:8.1f} ms")
    print(f"page by page             {other:8.1f} ms  ({len(paths)} requests at {options.delay_ms:g} ms)")
    print(f"ratio warm               {other / warm:8.1f} x  (aim: {AIM} x)")
    print(f"ratio looking            {other / fresh:8.1f} x")
    return 0 if other / warm >= AIM else 1


def page_by_page_ms(files: dict[str, bytes], delay_s: float) -> float:
    """One run of the other client against a server that holds ``files``."""
    handler = type("Handler", (SlowFiles,), {"files": files, "delay_s": delay_s})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        return median_ms(lambda _: read_page_by_page(server.server_address[1], list(files)), 1)
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    sys.exit(main())
