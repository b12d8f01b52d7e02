"""A real git server on loopback for demo and tests: smart HTTP with Basic auth around ``git http-backend``.

It stands in for Gitea's git side only (no API, no web pages), and can be told to fail in the ways Gitea does.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast
from urllib.parse import unquote, urlsplit

_GIT_TIMEOUT_S = 120
_IDLE_S = 60
_LOOK_AGAIN_S = 0.02
_SPOOL = 4 << 20
_ROUTE = re.compile(r"/([A-Za-z0-9_.-]+)/([A-Za-z0-9_.-]+)\.git/(info/refs|git-upload-pack|git-receive-pack)\Z")
_PROTECTED = """#!/bin/sh
echo "" >&2
echo "Gitea: Not allowed to push to protected branch main" >&2
exit 1
"""


@dataclass
class Faults:
    """How the server misbehaves; all off at first, may be changed while it runs.

    ``drop_pushes``: so many accepted pushes whose answer never arrives · ``delay_s``: before each answer ·
    ``push_delay_s``: before a pushed pack is taken (a delay that is lowered lets go whoever waits) ·
    ``status``: this HTTP status instead of an answer · ``push_status``: the same for pushes only (403: read only) ·
    ``late_status``: the same after a push was taken ·
    ``redirect_to``: 302 to that base URL.
    """

    drop_pushes: int = 0
    delay_s: float = 0.0
    push_delay_s: float = 0.0
    status: int = 0
    push_status: int = 0
    late_status: int = 0
    redirect_to: str = ""


@dataclass
class Counts:
    """What was asked so far: all requests, finished fetches (packs sent) and pushes (packs taken, refused ones too)."""

    requests: int = 0
    fetches: int = 0
    pushes: int = 0
    pushed_bytes: int = 0


class GitServer:
    """Serves the repositories below ``root`` as ``<url>/<owner>/<name>.git`` to ``user`` with ``token``.

    ``port=0`` takes a free one; a server that is started again names its last one.
    """

    def __init__(self, root: Path, user: str = "bot", token: str = "demo-token", *, port: int = 0) -> None:  # noqa: S107  # a loopback server's
        self.root = root.resolve()
        self._port = port
        self.user = user
        self.token = token
        self.faults = Faults()
        self.counts = Counts()
        self.lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        self._server = _Server(("127.0.0.1", self._port), type("Handler", (_Handler,), {"git_server": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    @property
    def url(self) -> str:
        """The base URL: what ``GITEA_URL`` would be."""
        assert self._server is not None, "use the server as a context manager"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def repo_url(self, owner: str, name: str) -> str:
        """The clone URL of one repository."""
        return f"{self.url}/{owner}/{name}.git"

    def repo_path(self, owner: str, name: str) -> Path:
        """The bare repository on disk."""
        return self.root / owner / f"{name}.git"

    def create(
        self,
        owner: str,
        name: str,
        files: Mapping[str, bytes] | None = None,
        *,
        from_dir: Path | None = None,
        from_bundle: Path | None = None,
        branch: str = "main",
        object_format: str = "sha1",
    ) -> Path:
        """A new repository with ``files``, a folder's files, a bundle's history, or nothing; its path on disk."""
        path = self.repo_path(owner, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if from_bundle is not None:
            _git(["clone", "--quiet", "--bare", str(from_bundle), str(path)], self.root)
        else:
            init = ["init", "--quiet", "--bare", "--template=", f"--object-format={object_format}"]
            _git([*init, f"--initial-branch={branch}", str(path)], self.root)
        for key, value in (("http.receivepack", "true"), ("receive.autogc", "false"), ("gc.auto", "0")):
            _git(["config", key, value], path)
        if from_dir is not None:
            files = {
                p.relative_to(from_dir).as_posix(): p.read_bytes() for p in sorted(from_dir.rglob("*")) if p.is_file()
            }
        if files:
            self.commit(owner, name, files, message="Initial content", branch=branch)
        return path

    def commit(
        self,
        owner: str,
        name: str,
        files: Mapping[str, bytes],
        *,
        delete: Iterable[str] = (),
        message: str = "Edit by someone else",
        branch: str = "main",
        when: int | None = None,
    ) -> str:
        """Another writer's commit on top of ``branch``, straight into the repository; its id."""
        path = self.repo_path(owner, name)
        ref = f"refs/heads/{branch}"
        known = _git(["for-each-ref", "--format=%(objectname)", ref], path).decode().strip()
        text = message.encode()
        stamp = int(time.time()) if when is None else when
        parts = [f"commit {ref}\ncommitter Someone <someone@example.invalid> {stamp} +0000\n".encode()]
        parts.append(b"data %d\n%s\n" % (len(text), text))
        if known:
            parts.append(f"from {known}\n".encode())
        parts += [b"D " + _quoted(item) + b"\n" for item in delete]
        for item, data in files.items():
            parts.append(b"M 100644 inline " + _quoted(item) + b"\ndata %d\n%s\n" % (len(data), data))
        _git(["fast-import", "--quiet", "--date-format=raw"], path, b"".join(parts))
        return self.head(owner, name, branch)

    def head(self, owner: str, name: str, branch: str = "main") -> str:
        """The commit of ``branch`` on the server, ``""`` when there is none."""
        ref = f"refs/heads/{branch}"
        return _git(["for-each-ref", "--format=%(objectname)", ref], self.repo_path(owner, name)).decode().strip()

    def git(self, owner: str, name: str, *args: str) -> str:
        """Run git inside a repository of the server, for looking at the outcome."""
        return _git([*args], self.repo_path(owner, name)).decode("utf-8", "replace")

    def protect(self, owner: str, name: str) -> None:
        """Refuse every push the way Gitea refuses one to a protected branch."""
        hook = self.repo_path(owner, name) / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_PROTECTED)
        hook.chmod(0o755)

    def unprotect(self, owner: str, name: str) -> None:
        """Take pushes again."""
        (self.repo_path(owner, name) / "hooks" / "pre-receive").unlink(missing_ok=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no event here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    git_server: GitServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Silent: a demo prints its own story."""

    def _answer(self) -> None:
        server = self.git_server
        with server.lock:
            server.counts.requests += 1
        with tempfile.SpooledTemporaryFile(_SPOOL) as body:
            if not self._read_body(cast("IO[bytes]", body)):
                self._plain(400, "bad chunked body")
                return
            _wait(lambda: server.faults.delay_s)
            if self._fails() or not self._knows_user():
                return
            target = urlsplit(self.path)
            route = _ROUTE.match(unquote(target.path))
            if route is None or ".." in route[0] or not server.repo_path(route[1], route[2]).is_dir():
                self._plain(404, "Not found.")
                return
            self._serve(route, target.query, cast("IO[bytes]", body))

    def _fails(self) -> bool:
        faults = self.git_server.faults
        if faults.redirect_to:
            self._plain(302, "moved", {"Location": faults.redirect_to + self.path})
        elif faults.status:
            self._plain(faults.status, "the server was told to fail")
        elif faults.push_status and "git-receive-pack" in self.path:
            self._plain(faults.push_status, "the server was told to refuse pushes")
        else:
            return False
        return True

    def _knows_user(self) -> bool:
        expected = base64.b64encode(f"{self.git_server.user}:{self.git_server.token}".encode())
        given = self.headers.get("Authorization", "").removeprefix("Basic ").encode()
        if hmac.compare_digest(expected, given):
            return True
        self._plain(401, "Unauthorized", {"WWW-Authenticate": 'Basic realm="git"'})
        return False

    def _serve(self, route: re.Match[str], query: str, body: IO[bytes]) -> None:
        server = self.git_server
        is_push = route[3] == "git-receive-pack"
        if is_push:
            _wait(lambda: server.faults.push_delay_s)
        body.seek(0, os.SEEK_END)
        length = body.tell()
        body.seek(0)
        with tempfile.TemporaryFile() as sent:
            sent.write(body.read())
            sent.seek(0)
            done = subprocess.run(  # noqa: S603  # constant command, no shell
                [_git_path(), "http-backend"],
                stdin=sent,
                capture_output=True,
                timeout=_GIT_TIMEOUT_S,
                check=False,
                env=self._cgi(route, query, length),
                cwd=server.root,
            )
        with server.lock:
            server.counts.pushes += is_push
            server.counts.pushed_bytes += length if is_push else 0
            server.counts.fetches += route[3] == "git-upload-pack" and b"PACK" in done.stdout
            dropped = is_push and server.faults.drop_pushes > 0
            server.faults.drop_pushes -= dropped
        if is_push and server.faults.late_status:
            self._plain(server.faults.late_status, "the server was told to deny what it did")
        else:
            self._relay(done.stdout, dropped=dropped)

    def _cgi(self, route: re.Match[str], query: str, length: int) -> dict[str, str]:
        return {
            **_environment(self.git_server.root),
            "GIT_PROJECT_ROOT": str(self.git_server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": self.git_server.user,
            "REMOTE_ADDR": "127.0.0.1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": route[0],
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(length) if self.command == "POST" else "",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }

    def _relay(self, answer: bytes, *, dropped: bool) -> None:
        """A CGI answer as an HTTP answer; of a dropped one only the head (curl would repeat a request without any)."""
        head, _, content = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode("latin-1").split("\r\n") if ": " in line)
        status = headers.pop("Status", "200 OK" if answer else "500 Internal Server Error")
        self.send_response(int(status.split()[0]))
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.close_connection |= dropped
        if not dropped:
            self.wfile.write(content)

    def _plain(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        data = f"{text}\n".encode()
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _read_body(self, body: IO[bytes]) -> bool:
        """The request's body, chunked or of known length; ``False`` when it cannot be read."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            _copy(cast("IO[bytes]", self.rfile), body, int(self.headers.get("Content-Length") or 0))
            return True
        while True:
            try:
                size = int(self.rfile.readline(100).split(b";")[0], 16)
            except ValueError:
                self.close_connection = True
                return False
            _copy(cast("IO[bytes]", self.rfile), body, size)
            self.rfile.readline(3)
            if size == 0:
                return True


def _wait(seconds: Callable[[], float]) -> None:
    """As long as the fault says by now."""
    began = time.monotonic()
    while (left := began + seconds() - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_AGAIN_S))


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size > 0:
        data = source.read(min(size, 1 << 20))
        if not data:
            raise ConnectionResetError("the client hung up")
        target.write(data)
        size -= len(data)


def _quoted(path: str) -> bytes:
    """A path for fast-import, C-quoted so that any name is one word."""
    raw = path.encode("utf-8", "surrogateescape")
    return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _git(args: list[str], folder: Path, data: bytes | None = None) -> bytes:
    done = subprocess.run(  # noqa: S603  # constant command, no shell
        [_git_path(), *args],
        cwd=folder,
        input=data,
        capture_output=True,
        timeout=_GIT_TIMEOUT_S,
        check=False,
        env=_environment(folder),
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {args[0]} failed: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout


def _git_path() -> str:
    found = shutil.which("git")
    if found is None:
        raise RuntimeError("git is not installed: apt-get install git")
    return found


def _environment(home: Path) -> dict[str, str]:
    """Nothing of the caller's git set-up reaches the server."""
    return {
        "PATH": os.defpath,
        "HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_COMMITTER_NAME": "Someone",
        "GIT_COMMITTER_EMAIL": "someone@example.invalid",
    }
