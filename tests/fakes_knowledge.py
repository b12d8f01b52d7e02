"""Knowledge sources for tests: scripted ones behind the port, and services on loopback that behave or lie."""

from __future__ import annotations

import hashlib
import json
import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

from tasks.knowledge.found import Found, Hit, Status
from tasks.knowledge.secrets import allow_list
from tasks.knowledge.spec import Injection, KnowledgeSpec
from tasks.ports import MountedSource
from worker.adapters.knowledge.calling import Environment


@dataclass
class ScriptedSource:
    """Says the given answers, the last one again and again; keeps what it was asked, and with how much time."""

    answers: list[Found]
    asked: list[str] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)

    def search(self, query: str, *, timeout_s: float | None = None) -> Found:
        self.asked.append(query)
        self.times.append(timeout_s)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def hits(*contents: str) -> Found:
    return Found(Status.HIT, tuple(Hit(content, f"条目 {n}") for n, content in enumerate(contents, 1)), ms=3)


def mounted(source_id: str, source: Any, variable: str = "context_knowledge", **injection: Any) -> MountedSource:
    return MountedSource(source_id, Injection(target_variable=variable, **injection), source)


def spec(text: str = "", **config: Any) -> KnowledgeSpec:
    """A source spec out of YAML text, or a SEMANTIC_API one with this config."""
    if text:
        return KnowledgeSpec.model_validate(yaml.safe_load(text))
    whole = {"endpoint": "https://kb.example.com/search", "method": "POST", "timeout": 5, **config}
    return KnowledgeSpec.model_validate(
        {
            "id": "kb",
            "provider_type": "VDB_DIRECT" if "vdb_params" in config else "SEMANTIC_API",
            "config": whole,
            "injection": {"target_variable": "context_knowledge"},
        }
    )


def environment(**values: str) -> Environment:
    return Environment(values.get, allow_list(["KB_*"]))


# ---------------------------------------------------------------- services on loopback


@dataclass(frozen=True)
class Asked:
    """A request as a service sees it."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Said:
    """A service's answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def said(document: Any, status: int = 200, **headers: str) -> Said:
    return Said(status, json.dumps(document, ensure_ascii=False).encode(), headers=headers)


@dataclass
class Service:
    """A running service: its address, and what it was asked."""

    url: str
    port: int
    asked: list[Asked]


@contextmanager
def service(*answers: Said | Callable[[Asked], Said], tls: ssl.SSLContext | None = None) -> Iterator[Service]:
    """An HTTP(S) service that says ``answers`` in turn, the last one again and again."""
    asked: list[Asked] = []
    waiting = list(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes: 40 ms of waiting otherwise

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            request = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            asked.append(request)
            chosen = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            reply = chosen(request) if callable(chosen) else chosen
            self.send_response(reply.status)
            for name, value in {"content-type": reply.content_type, **reply.headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            try:
                self.wfile.write(reply.body)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_PUT = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:  # the handshake belongs to the connection's thread, not to the one that accepts
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    port = server.server_address[1]
    try:
        yield Service(f"{'https' if tls else 'http'}://127.0.0.1:{port}", port, asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def silent_service(first: bytes = b"", *, drip: bytes = b"") -> Iterator[int]:
    """Takes connections, says ``first`` and then nothing, or a byte of ``drip`` every 50 ms for as long as it lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)  # a thread left waiting in accept would take connections of whoever gets this number next
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(first)
                while not over.wait(0.05):
                    if drip:
                        connection.sendall(drip)
            except OSError:
                return

    def listen() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        thread.join(10)
        listener.close()


# ---------------------------------------------------------------- vectors


def hashed_vector(text: str, size: int = 16) -> list[float]:
    """A unit vector of a text's characters: texts that share characters lie near each other. No model, no weights."""
    vector = [0.0] * size
    for character in text:
        digest = hashlib.sha256(character.encode("utf-8", "replace")).digest()
        vector[digest[0] % size] += 1.0 if digest[1] % 2 else -1.0
    length = math.sqrt(sum(number * number for number in vector)) or 1.0
    return [number / length for number in vector]


@dataclass
class TableEmbeddings:
    """``Embeddings``: vectors out of a table, else hashed; keeps what it was asked."""

    table: Mapping[str, list[float]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def vector(self, text: str, deadline: float) -> list[float]:
        self.asked.append(text)
        return list(self.table.get(text) or hashed_vector(text))


def embeddings_answer(request: Asked) -> Said:
    """What an OpenAI-compatible ``/v1/embeddings`` says, with hashed vectors, in reversed order of index."""
    texts = request.json["input"]
    data = [{"object": "embedding", "index": n, "embedding": hashed_vector(text)} for n, text in enumerate(texts)]
    return said({"object": "list", "model": request.json["model"], "data": data[::-1]})
