"""A scripted OpenAI-compatible server on loopback, for tests and benches; what it can answer is in ``model_shapes``.

In a test: ``with ScriptedModel(rule) as server: …server.base_url…``. As a process, for acceptance tests and benches:
``python -m tests.scripted_model --port 0 --script cooperative`` prints its URL on the first line and serves until it
is ended. ``server.play(...)`` puts replies in front of the rule, one a request.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from tests.cooperative_model import answer_from_pages
from tests.model_shapes import (
    TRUNCATION_LINE,
    Reply,
    Request,
    Rule,
    always,
    as_json,
    completion,
    cooldown_after_refused_key,
    cut_json,
    dropped,
    echo,
    error,
    gateway_token_refused,
    hanging,
    html,
    huge,
    internal_error,
    no_choices,
    plain,
    provider_key_refused,
    rate_limited,
    redirect,
    refuse_response_format,
    sse_error,
    truncated,
)

__all__ = [
    "TRUNCATION_LINE",
    "Reply",
    "Request",
    "Rule",
    "ScriptedModel",
    "always",
    "answer_from_pages",
    "as_json",
    "completion",
    "cooldown_after_refused_key",
    "cut_json",
    "dropped",
    "echo",
    "error",
    "gateway_token_refused",
    "hanging",
    "html",
    "huge",
    "internal_error",
    "no_choices",
    "plain",
    "provider_key_refused",
    "rate_limited",
    "redirect",
    "refuse_response_format",
    "sse_error",
    "truncated",
]

HANG_S = 120.0
"""Longest time a hanging or dripping reply holds its thread; the server ends it earlier when it is closed."""


# ---------------------------------------------------------------- the server


class ScriptedModel:
    """The server. ``rule`` answers chat requests; ``models`` are listed; ``token`` set: another bearer gets a 401."""

    def __init__(
        self,
        rule: Rule = echo,
        *,
        models: Sequence[str] = ("scripted-1",),
        token: str = "",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.rule = rule
        self.models = list(models)
        self.token = token
        self.routes: dict[str, Rule] = {"/readyz": always(Reply(body=b'{"ready":true}')), "/v1/models": self._models}
        self.requests: list[Request] = []
        self.in_flight_max = 0
        self._in_flight = 0
        self._queue: deque[Reply | Rule] = deque()
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.script = self
        self._scheme = "https" if tls else "http"
        if tls:
            # the handshake belongs to the connection's thread, not to the one that accepts
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        """The same with ``/v1``."""
        return f"{self.url}/v1"

    @property
    def chats(self) -> list[Request]:
        """The requests to ``/v1/chat/completions`` so far."""
        return [request for request in self.requests if request.path.endswith("/chat/completions")]

    def play(self, *replies: Reply | Rule) -> None:
        """The next chat requests get these, one each, before the rule has its say again."""
        with self._lock:
            self._queue.extend(replies)

    def start(self) -> Self:
        """Serve in the background."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop, ending hanging and dripping replies."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def respond(self, request: Request) -> Reply:
        """The reply to one recorded request."""
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}" and request.path != "/readyz":
            return gateway_token_refused()
        if route := self.routes.get(request.path):
            return route(request)
        if not request.path.endswith("/v1/chat/completions"):
            return plain(404, "Not Found")
        if request.method != "POST":
            return plain(405, "Method Not Allowed")
        with self._lock:
            chosen = self._queue.popleft() if self._queue else self.rule
        return chosen if isinstance(chosen, Reply) else chosen(request)

    @contextlib.contextmanager
    def counted(self, request: Request) -> Any:
        """Keep the request, and count it as in flight until it is answered."""
        with self._lock:
            self.requests.append(request)
            self._in_flight += 1
            self.in_flight_max = max(self.in_flight_max, self._in_flight)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    def _models(self, _request: Request) -> Reply:
        data = [{"id": name, "object": "model"} for name in self.models]
        return Reply(body=as_json({"object": "list", "data": data}))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    script: ScriptedModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the script; anything else is a fault of the rule and is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Tests read ``requests`` instead."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        document: object = {}
        with contextlib.suppress(ValueError):
            document = json.loads(body or b"{}")
        request = Request(self.command, self.path, headers, body, document if isinstance(document, dict) else {})
        script = self.server.script
        with script.counted(request):
            reply = script.respond(request)
            if reply.stream and request.document.get("stream"):
                reply = _as_stream(reply)
            if script.closing.wait(HANG_S if reply.hang else reply.delay_s) or reply.hang:
                self.close_connection = True
                return
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        reason = self.responses.get(reply.status, ("", ""))[0]
        head = [f"HTTP/1.1 {reply.status} {reason}", f"Content-Type: {reply.content_type}"]
        head += [f"Content-Length: {len(reply.body)}", *(f"{name}: {value}" for name, value in reply.headers)]
        data = "\r\n".join([*head, "", ""]).encode() + reply.body
        if reply.drip_s:
            self._drip(data, reply.drip_s)
        elif reply.drop_after is None:
            self.wfile.write(data)
        else:
            self.wfile.write(data[: len(data) - len(reply.body) + reply.drop_after])
            # linger 0: a reset, not a clean end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True

    def _drip(self, data: bytes, pause_s: float) -> None:
        end = time.monotonic() + HANG_S
        for byte in data:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if self.server.script.closing.wait(pause_s) or time.monotonic() > end:
                self.close_connection = True
                return


def _as_stream(reply: Reply) -> Reply:
    """The completion as server-sent events: content, finish reason and usage, end mark."""
    document = json.loads(reply.body)
    choice = document["choices"][0]
    common = {"id": document["id"], "object": "chat.completion.chunk", "created": 1, "model": document["model"]}
    deltas = [
        {**common, "choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}]},
        {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**common, "choices": [], "usage": document["usage"]},
    ]
    lines = [f"data: {json.dumps(delta, ensure_ascii=False)}\n\n" for delta in deltas]
    return replace(reply, content_type="text/event-stream", body="".join([*lines, "data: [DONE]\n\n"]).encode())


# ---------------------------------------------------------------- as a process


def scripts() -> dict[str, Callable[[], Rule]]:
    """Rules by name, for the command line; a fresh one each, since some remember what they did."""
    return {
        "cooperative": answer_from_pages,
        "echo": lambda: echo,
        "gateway-401": lambda: always(gateway_token_refused()),
        "provider-401": lambda: always(provider_key_refused()),
        "cooldown": lambda: cooldown_after_refused_key(answer_from_pages()),
        "rate-limited": lambda: always(rate_limited()),
        "truncated": lambda: always(truncated('{"answer": "half')),
        "no-response-format": lambda: refuse_response_format(answer_from_pages()),
        "sse-error": lambda: always(sse_error()),
        "html": lambda: always(html()),
        "hang": lambda: always(hanging()),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one script until the process is ended."""
    named = scripts()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", choices=sorted(named), default="cooperative")
    parser.add_argument("--model", action="append", default=[], help="a name that /v1/models lists")
    parser.add_argument("--token", default="", help="refuse any other bearer")
    options = parser.parse_args(arguments)
    models = options.model or ["scripted-1"]
    with ScriptedModel(named[options.script](), models=models, token=options.token, port=options.port) as server:
        print(server.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
