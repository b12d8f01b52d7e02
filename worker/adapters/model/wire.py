"""One bounded HTTP exchange: wall clock, size, redirects and proxies under control; must not know what a model is."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import httpx

from tasks.ports import Clock

Fault = Literal["connect", "name", "certificate", "tls", "timeout", "dropped", "too_large", "encoded"]


class WireError(Exception):
    """No complete answer. ``fault`` says why, ``detail`` in words that hold no header and no text of either side."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault
        self.detail = detail


@dataclass(frozen=True)
class Answer:
    """A complete answer of any status. ``body`` stays out of ``repr``: it is document text."""

    status: int
    content_type: str
    body: bytes = field(repr=False)
    retry_after: float | None = None
    location: str = ""


class Wire:
    """HTTP to one server, for any number of threads; every process that uses it opens its own client.

    ``proxy`` and ``ca_file`` are what the settings say; proxies of the environment are not looked at.
    """

    def __init__(
        self, *, clock: Clock, connect_timeout_s: float, max_bytes: int, proxy: str = "", ca_file: str = ""
    ) -> None:
        self._clock = clock
        self._connect_timeout_s = connect_timeout_s
        self._max_bytes = max_bytes
        self._proxy = proxy
        self._ca_file = ca_file
        self._clients: dict[int, httpx.Client] = {}

    def exchange(
        self,
        method: Literal["GET", "POST"],
        url: str,
        headers: Mapping[str, str],
        *,
        timeout: float,
        body: bytes | None = None,
    ) -> Answer:
        """The whole answer within ``timeout`` seconds of wall clock, or :class:`WireError`."""
        if timeout <= 0:
            raise WireError("timeout", "no time is left")
        limits = httpx.Timeout(timeout, connect=min(self._connect_timeout_s, timeout))
        cutter = _Cutter(timeout)
        try:
            with (
                cutter,
                self.open().stream(
                    method, url, headers=headers, content=body, timeout=limits, extensions={"trace": cutter.watch}
                ) as response,
            ):
                data = self._read(response)
        except httpx.HTTPError as error:
            # `from None`: the foreign exception holds our request, and its text may hold bytes of the answer
            raise translate(error, timeout, cut=cutter.fired) from None
        if cutter.fired:
            raise WireError("timeout", f"no complete answer within {timeout:.0f} s")
        return Answer(
            status=response.status_code,
            content_type=response.headers.get("content-type", "").split(";")[0].strip().lower(),
            body=data,
            retry_after=self._retry_after(response.headers.get("retry-after", "")),
            location=_bare_address(response),
        )

    def open(self) -> httpx.Client:
        """This process's client. Raises ``OSError`` or ``ValueError`` for a bad ``proxy`` or ``ca_file``."""
        # by process id: after a fork the child must not share sockets, and a lock might be inherited locked;
        # setdefault is atomic, a client that lost the race has opened nothing
        pid = os.getpid()
        return self._clients.get(pid) or self._clients.setdefault(pid, self._new_client())

    def close(self) -> None:
        """Give this process's client back; the next exchange opens another."""
        if client := self._clients.pop(os.getpid(), None):
            client.close()

    def _new_client(self) -> httpx.Client:
        return httpx.Client(
            trust_env=False,
            proxy=self._proxy or None,
            verify=self._trust(),
            follow_redirects=False,
            # a model call takes seconds: a fresh connection costs nothing beside it, and a POST that must not be
            # repeated never meets a kept connection which the server has just closed
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    def _trust(self) -> ssl.SSLContext:
        """The public authorities that httpx brings, those of this machine, and the configured one."""
        context = httpx.create_ssl_context(trust_env=False)
        context.load_default_certs()
        if self._ca_file:
            context.load_verify_locations(self._ca_file)
        return context

    def _read(self, response: httpx.Response) -> bytes:
        if response.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
            # a compressed body could be a thousand times larger than what we count
            raise WireError("encoded", "the answer is compressed though none was asked for")
        parts, size = [], 0
        for chunk in response.iter_raw():
            size += len(chunk)
            if size > self._max_bytes:
                raise WireError("too_large", f"the answer is larger than {self._max_bytes} bytes")
            parts.append(chunk)
        return b"".join(parts)

    def _retry_after(self, value: str) -> float | None:
        """Seconds of a ``Retry-After`` header (RFC 9110 §10.2.3: seconds or a date), ``None`` when unreadable."""
        if value.strip().isdecimal():
            return float(value)
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.fromtimestamp(self._clock.now(), UTC)).total_seconds())


class _Cutter:
    """Shuts a call's socket down when its time is over.

    httpx bounds each read, not their sum: a server that sends one byte a second, in the head or in the body, would be
    waited for for ever. The socket comes from httpx's documented ``trace`` extension.
    """

    def __init__(self, seconds: float) -> None:
        self.fired = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self.fired:
                self._cut()

    def _cut(self) -> None:
        self.fired = True
        if self._socket is not None:
            try:
                # of the plain class: SSLSocket.shutdown would take the TLS layer away under a running read
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # closed already: the exchange ended in this very moment


def translate(error: httpx.HTTPError, timeout: float, *, cut: bool) -> WireError:
    """What a foreign exception means. ``cut``: we ended the connection ourselves because the time was over."""
    if cut or isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout | httpx.PoolTimeout):
        return WireError("timeout", f"no complete answer within {timeout:.0f} s")
    if isinstance(error, httpx.ConnectTimeout):
        return WireError("connect", "no connection in time")
    if isinstance(error, httpx.ProxyError):
        return WireError("connect", "the configured proxy refuses the connection")
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return WireError("certificate", getattr(cause, "verify_message", "") or "certificate verify failed")
        if isinstance(cause, ssl.SSLError):
            return WireError("tls", getattr(cause, "reason", "") or type(cause).__name__)
        if isinstance(cause, socket.gaierror):
            return WireError("name", cause.strerror or "name lookup failed")
        if isinstance(cause, OSError) and isinstance(error, httpx.ConnectError):
            return WireError("connect", cause.strerror or type(cause).__name__)
    if isinstance(error, httpx.ConnectError):
        return WireError("connect", "no connection")
    return WireError("dropped", f"the connection ended before the answer was complete ({type(error).__name__})")


def _causes(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and len(chain) < 10:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _bare_address(response: httpx.Response) -> str:
    """Scheme, host and path of a redirect's target; its query may hold anything."""
    location = response.headers.get("location", "")
    if not location:
        return ""
    try:
        target = response.url.join(location)
    except (httpx.InvalidURL, ValueError):
        return ""
    return f"{target.scheme}://{target.netloc.decode('ascii', 'replace').rpartition('@')[2]}{target.path}"[:200]
