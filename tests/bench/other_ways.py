"""Two usual ways to share a repository, written from their description, to stand beside ours in the commit bench.

``ContentsServer``: a REST server that handles a write as Gitea's contents API does (clone, read-tree, commit, push for
each request; the loser of a race gets 500). ``write_by_contents``: a client that writes page, catalog and index through
it, one after the other, without retry. ``write_by_rebase``: commit in a clone, ``pull --rebase`` keeping the own side
of a conflict, push, and again when refused.
"""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from tasks.contract.outcome import QaPage
from tasks.kb import index_page, qa_page

NOW = "2026-11-30T12:00:00Z"
IndexOf = Callable[[dict[str, Any]], index_page.IndexEntry]


def git(folder: Path, *args: str, data: bytes | None = None, index: Path | None = None) -> bytes:
    """One git command; raises ``CalledProcessError``."""
    env = {
        "PATH": "/usr/bin:/bin:/usr/local/bin",
        "GIT_AUTHOR_NAME": "bot",
        "GIT_AUTHOR_EMAIL": "bot@x.invalid",
        "GIT_COMMITTER_NAME": "bot",
        "GIT_COMMITTER_EMAIL": "bot@x.invalid",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **({"GIT_INDEX_FILE": str(index)} if index else {}),
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *args], input=data, capture_output=True, check=True, timeout=300, env=env
    )
    return done.stdout


# ---------------------------------------------------------------- a contents API


class ContentsHandler(BaseHTTPRequestHandler):
    """``GET|POST|PUT /<path>`` on one bare repository."""

    protocol_version = "HTTP/1.1"
    repo: Path

    def do_GET(self) -> None:
        path = unquote(self.path[1:])
        try:
            sha = git(self.repo, "rev-parse", f"main:{path}").decode().strip()
            content = base64.b64encode(git(self.repo, "cat-file", "blob", sha)).decode()
        except subprocess.CalledProcessError:
            self._answer(404, {})
            return
        self._answer(200, {"sha": sha, "content": content})

    def do_POST(self) -> None:
        self._write(self._body())

    def do_PUT(self) -> None:
        self._write(self._body())

    def _write(self, body: dict[str, str]) -> None:
        path = unquote(self.path[1:])
        try:
            with tempfile.TemporaryDirectory() as folder:
                self._commit(Path(folder), path, body)
        except LookupError as error:
            self._answer(422, {"message": str(error)})
        except subprocess.CalledProcessError as error:
            self._answer(500, {"message": error.stderr.decode("utf-8", "replace")[-200:]})
        else:
            self._answer(201, {})

    def _commit(self, folder: Path, path: str, body: dict[str, str]) -> None:
        clone, index = folder / "clone.git", folder / "index"
        git(folder, "clone", "-q", "--bare", "--shared", str(self.repo), str(clone))
        head = git(clone, "rev-parse", "main").decode().strip()
        git(clone, "read-tree", head, index=index)
        known = git(clone, "ls-files", "-s", "--", path, index=index).decode().split()
        if known and known[1] != body.get("sha"):
            raise LookupError("sha does not match")
        blob = git(clone, "hash-object", "-w", "--stdin", data=base64.b64decode(body["content"])).decode().strip()
        git(clone, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", index=index)
        tree = git(clone, "write-tree", index=index).decode().strip()
        commit = git(clone, "commit-tree", tree, "-p", head, "-m", path).decode().strip()
        git(clone, "push", "-q", str(self.repo), f"{commit}:refs/heads/main")

    def _body(self) -> dict[str, str]:
        body: dict[str, str] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return body

    def _answer(self, status: int, body: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Silent."""


def serve_contents(repo: Path) -> ThreadingHTTPServer:
    """The contents API of one repository on loopback, in a thread."""
    handler = type("Handler", (ContentsHandler,), {"repo": repo})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def write_by_contents(port: int, made: QaPage, index_of: IndexOf) -> bool:
    """Page, catalog, index, each read and written by itself; whether all three were taken."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def read(path: str) -> tuple[str, bytes]:
        connection.request("GET", "/" + quote(path))
        answer = json.loads(connection.getresponse().read())
        return answer.get("sha", ""), base64.b64decode(answer.get("content", ""))

    def write(path: str, data: bytes, sha: str) -> bool:
        body = {"content": base64.b64encode(data).decode(), **({"sha": sha} if sha else {})}
        connection.request("PUT" if sha else "POST", "/" + quote(path), json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        return answer.status == 201

    try:
        sha, _ = read(made.path)
        if not write(made.path, qa_page.render(made).encode(), sha):
            return False
        sha, data = read("catalog.json")
        catalog = with_entry(json.loads(data), made)
        if not write("catalog.json", as_json(catalog), sha):
            return False
        sha, _ = read("index.md")
        return write("index.md", index_page.create(map(index_of, catalog["pages"]), NOW).encode(), sha)
    finally:
        connection.close()


# ---------------------------------------------------------------- pull --rebase


def write_by_rebase(clone: Path, made: QaPage, index_of: IndexOf, go_on: Callable[[], bool]) -> int:
    """Commit, then pull and push until it is taken; the number of pushes, negative when it was given up."""
    (clone / "qa").mkdir(exist_ok=True)
    (clone / made.path).write_text(qa_page.render(made), encoding="utf-8")
    catalog = with_entry(json.loads((clone / "catalog.json").read_bytes()), made)
    (clone / "catalog.json").write_bytes(as_json(catalog))
    (clone / "index.md").write_text(index_page.create(map(index_of, catalog["pages"]), NOW), encoding="utf-8")
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", made.title)
    pushes = 0
    while go_on():
        try:
            git(clone, "pull", "-q", "--rebase", "-X", "theirs")  # in a rebase "theirs" is the own commit
        except subprocess.CalledProcessError:
            subprocess.run(["git", "-C", str(clone), "rebase", "--abort"], capture_output=True, timeout=60)
            continue
        pushes += 1
        try:
            git(clone, "push", "-q")
        except subprocess.CalledProcessError:
            continue
        return pushes
    subprocess.run(["git", "-C", str(clone), "reset", "-q", "--hard", "origin/main"], capture_output=True, timeout=60)
    return -pushes


def with_entry(catalog: dict[str, Any], made: QaPage) -> dict[str, Any]:
    """The catalog with the page's entry at its place."""
    catalog["pages"] = sorted([*catalog["pages"], made.catalog_entry], key=lambda page: page["path"])
    return catalog


def as_json(catalog: dict[str, Any]) -> bytes:
    """As the repository has it."""
    return json.dumps(catalog, ensure_ascii=False, indent=2).encode()
