"""Serves the HTTP application beside the other ways in; must not know its routes.

uvicorn does HTTP (BSD, well kept, its only needs, click and h11, are ours already; waitress had no release for two
years and, like cheroot, gives a slow client a place for as long as it likes). What uvicorn leaves open is closed here:
the time a client may take for the head of a request and for everything, and the number of connections.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from worker.intake.http.app import HttpApp, Probes, Times
from worker.intake.http.jobs_api import JobsApi
from worker.intake.http.retrieval import RetrievalApi

log = logging.getLogger("kbw.http")

HEAD_S = 10.0
REQUEST_S = 120.0
KEEP_ALIVE_S = 30  # clients that pool connections must not meet a closing one too often
MAX_HEAD_BYTES = 32 * 1024
MAX_CONNECTIONS = 400
THREADS = 8
REBIND_S = 5.0
GRACE_S = 5


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with a watchdog: first for the head of a request, then for the whole exchange."""

    head_s = HEAD_S
    request_s = REQUEST_S
    max_connections = MAX_CONNECTIONS
    _watchdog: asyncio.TimerHandle | None = None
    _watched: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Turn surplus connections away; give the others the time for a head."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
            return
        self._watch(self.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The watchdog goes with it."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The first bytes of a further request on a kept connection start its time for a head."""
        if self._watchdog is None:
            self._watch(self.head_s)
        super().data_received(data)

    def handle_events(self) -> None:
        """With a whole head, the exchange has its time."""
        super().handle_events()
        cycle = self.cycle
        if cycle is not None and cycle is not self._watched and not cycle.response_complete:
            self._watched = cycle
            self._watch(self.request_s)

    def on_response_complete(self) -> None:
        """Idle again: uvicorn's own keep-alive limit counts."""
        self._unwatch()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is answered in JSON, too; too large a head is called that."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()  # the answer is under way already
            return
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        status, code = (431, "HEAD_TOO_LARGE") if hint == 431 else (400, "BAD_REQUEST")
        body = json.dumps({"errorCode": code, "errors": ["请求格式不正确"], "reason": msg}, ensure_ascii=False).encode()
        headers = [("content-type", "application/json; charset=utf-8"), ("content-length", str(len(body)))]
        response = h11.Response(status_code=status, headers=[*headers, ("connection", "close")])
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _watch(self, seconds: float) -> None:
        self._unwatch()
        self._watchdog = self.loop.call_later(seconds, self.transport.abort)

    def _unwatch(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str
    port: int


def read_address(text: str) -> Address:
    """``host:port`` (``[::1]:8765`` for IPv6; ``:8765``: all interfaces). Raises ``ValueError``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is no host:port, as in 127.0.0.1:8765")
    return Address(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))  # noqa: S104 - asked for


class HttpServer:
    """Serves until ``stop`` is set; a taken port is told and tried again, the other ways in go on meanwhile."""

    def __init__(
        self,
        address: Address,
        jobs: JobsApi,
        probes: Probes,
        token: str,
        *,
        times: Times | None = None,
        rebind_s: float = REBIND_S,
        retrieval: RetrievalApi | None = None,
    ) -> None:
        self._address = address
        self._rebind_s = rebind_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="http")
        self._app = HttpApp(jobs, probes, token, self._threads, times, retrieval=retrieval)
        self.bound: tuple[str, int] | None = None
        """Where it listens, once it does."""

    def run(self, stop: Event, protocol: type[BoundedProtocol] = BoundedProtocol) -> None:
        """In a thread of its own."""
        while not stop.is_set():
            try:
                listener = _listen(self._address)
            except OSError as error:
                place = f"{self._address.host}:{self._address.port}"
                reason = f"{error.strerror}: {place} (KBW_HTTP_ADDR); tried again every {self._rebind_s:g} s"
                log.warning("http.not_listening", extra={"kbw": {"reason": reason}})
                stop.wait(self._rebind_s)
                continue
            try:
                asyncio.run(self._serve(listener, stop, protocol))
            except Exception:
                log.exception("http.failed")
                stop.wait(self._rebind_s)
            finally:
                listener.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, listener: socket.socket, stop: Event, protocol: type[BoundedProtocol]) -> None:
        config = uvicorn.Config(
            cast(Any, self._app),
            http=protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        server = uvicorn.Server(config)
        self.bound = listener.getsockname()[:2]
        log.info("http.listening", extra={"kbw": {"host": self.bound[0], "port": self.bound[1]}})
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not stop.is_set() and not serving.done():
            await asyncio.sleep(0.1)
        server.should_exit = True
        await serving


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(256)
    except BaseException:
        listener.close()
        raise
    return listener
