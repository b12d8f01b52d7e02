"""Calls to services that configuration names: allowed hosts only, bounded time and size; must not know what is asked.

CONTRACT §6: https, or a host on the allow-list; private and link-local addresses only for such a host. The name is
resolved once, the address checked, and the connection made to that very address, so that a name that resolves to
something else a moment later gains nothing. Redirects are not followed, proxies and netrc not asked.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal
from urllib.parse import urlsplit

import httpcore
import httpx

MAX_REPLY_BYTES = 8 * 1024 * 1024
_SHORTEST_S = 0.001
_KEEPALIVE_S = 30.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")  # RFC 4291: all that is given out; elsewhere lie old private ranges

FaultKind = Literal["NOT_ALLOWED", "BAD_REQUEST", "UNREACHABLE", "TIMEOUT", "BAD_REPLY"]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class OutboundError(Exception):
    """A call that gave no reply. ``detail`` names the host and what to do; it holds no secret, no path, no reply."""

    def __init__(self, kind: FaultKind, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Reply:
    """What came back, whatever its status. ``retry_after`` in seconds, when the service asked for a wait."""

    status: int
    content_type: str
    body: bytes
    retry_after: float | None = None


@dataclass(frozen=True)
class AllowedHosts:
    """``KBW_KNOWLEDGE_ALLOWED_HOSTS``: ``host``, ``host:port``, ``*.zone`` or a network (``10.1.0.0/16``)."""

    entries: tuple[str, ...] = ()

    def names(self, host: str, port: int) -> bool:
        """Whether the host itself is listed, by name or as the address it is written as."""
        host = host.lower().strip("[]").rstrip(".")
        for entry in self.entries:
            name, _, its_port = entry.lower().rpartition(":")
            if not its_port.isdigit() or (":" in name and not name.startswith("[")):
                name, its_port = entry.lower(), ""
            if fnmatchcase(host, name.strip("[]")) and its_port in ("", str(port)):
                return True
        address = _address(host)
        return address is not None and self.holds(address)

    def holds(self, address: Address) -> bool:
        """Whether the address lies in a listed network."""
        for entry in self.entries:
            try:
                network = ipaddress.ip_network(entry, strict=False)
            except ValueError:
                continue
            if address in network:
                return True
        return False

    def may_connect(self, host: str, port: int, address: Address) -> bool:
        """Whether ``host``, which resolves to ``address``, may be called there."""
        return is_public(address) or self.names(host, port) or self.holds(address)


def is_public(address: Address) -> bool:
    """Whether it is an address of the internet, also seen through the notations that wrap an IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast


def check_url(url: str, allowed: AllowedHosts) -> None:
    """Raises ``NOT_ALLOWED`` for a scheme or host that may not be called, ``BAD_REQUEST`` for what is no URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise OutboundError("BAD_REQUEST", "the endpoint is no URL: mend config.endpoint") from error
    if parts.scheme not in ("https", "http") or not host:
        raise OutboundError("BAD_REQUEST", "the endpoint is no http(s) URL: mend config.endpoint")
    if "@" in parts.netloc:
        raise OutboundError("BAD_REQUEST", f"credentials in the endpoint at {host} are not sent: use config.headers")
    if any(ord(character) <= 32 or ord(character) > 126 for character in url):
        raise OutboundError("BAD_REQUEST", f"the endpoint at {host} holds characters that belong percent-encoded")
    if parts.scheme == "http" and not allowed.names(host, port):
        raise OutboundError(
            "NOT_ALLOWED", f"{host} may not be called without TLS: use https, or add it to KBW_KNOWLEDGE_ALLOWED_HOSTS"
        )


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted (``SSL_CERT_FILE`` counts); reading them takes 30 ms, so once a process."""
    return httpx.create_ssl_context()


Resolve = Callable[[str, int], Iterable[str]]


def resolve_by_system(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system's resolver knows them. Raises :class:`OSError`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_addresses(host: str, port: int, allowed: AllowedHosts, resolve: Resolve) -> list[str]:
    """The addresses of a host that may be connected to. Raises ``UNREACHABLE`` without any, ``NOT_ALLOWED``."""
    try:
        found = list(resolve(host, port))
    except (OSError, UnicodeError) as error:
        raise OutboundError("UNREACHABLE", f"{host} has no address: check the host name and DNS") from error
    addresses = [address for text in found if (address := _address(text.partition("%")[0])) is not None]
    fine = [str(address) for address in addresses if allowed.may_connect(host, port, address)]
    if not fine:
        detail = f"{host} is a private or special address: add it to KBW_KNOWLEDGE_ALLOWED_HOSTS if that is meant"
        raise OutboundError("NOT_ALLOWED", detail)
    return fine


@dataclass
class Outbound:
    """Sends requests. Safe for threads; open it after a fork (it makes its connections when first used)."""

    allowed: AllowedHosts
    monotonic: Callable[[], float]
    resolve: Resolve = resolve_by_system
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _pool: httpcore.ConnectionPool | None = field(default=None, init=False, repr=False)
    _backend: _CheckedBackend | None = field(default=None, init=False, repr=False)

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes,
        deadline: float,
        *,
        max_bytes: int = MAX_REPLY_BYTES,
    ) -> Reply:
        """One request, one reply, never repeated. ``deadline``: monotonic seconds for all of it, name look-up included.

        Raises :class:`OutboundError`.
        """
        check_url(url, self.allowed)
        host = urlsplit(url).hostname or ""
        sent = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "kbw"}
        sent |= {name.lower(): value for name, value in headers.items()}
        pool, backend = self._connections()
        try:
            encoded = [(name.encode("ascii"), value.encode("utf-8")) for name, value in sent.items()]
            times = dict.fromkeys(("connect", "read", "write", "pool"), self._left(deadline))
            more = {"timeout": times}
            with (
                backend.until(deadline),
                pool.stream(method, url, headers=encoded, content=content or None, extensions=more) as response,
            ):
                return self._read(response, host, deadline, max_bytes)
        except (httpcore.TimeoutException, TimeoutError) as error:
            raise OutboundError("TIMEOUT", f"{host} did not answer in time") from error
        except (httpcore.LocalProtocolError, UnicodeEncodeError, ValueError) as error:
            raise OutboundError("BAD_REQUEST", f"the request to {host} cannot be sent: check config.headers") from error
        except httpcore.RemoteProtocolError as error:
            raise OutboundError("UNREACHABLE", f"{host} broke off or speaks no HTTP") from error
        except (httpcore.NetworkError, ssl.SSLError, OSError) as error:
            raise OutboundError("UNREACHABLE", f"{host} cannot be reached: {_reason(error)}") from error

    def check(self, url: str, deadline: float) -> None:
        """Whether a client of another kind may call the URL now. Raises :class:`OutboundError`."""
        check_url(url, self.allowed)
        parts = urlsplit(url)
        host = parts.hostname or ""
        _, backend = self._connections()
        try:
            with backend.until(deadline):
                backend.checked(host, parts.port or (443 if parts.scheme == "https" else 80))
        except httpcore.TimeoutException as error:
            raise OutboundError("TIMEOUT", f"{host} has no address in time: check DNS") from error

    def close(self) -> None:
        """Give the connections back."""
        with self._lock:
            if self._pool is not None:
                self._pool.close()
            self._pool = self._backend = None

    def _read(self, response: httpcore.Response, host: str, deadline: float, max_bytes: int) -> Reply:
        parts: list[bytes] = []
        size = 0
        for part in response.iter_stream():
            size += len(part)
            if size > max_bytes:
                raise OutboundError("BAD_REPLY", f"{host} sent more than {max_bytes // 2**20} MiB")
            if self.monotonic() > deadline:
                raise OutboundError("TIMEOUT", f"{host} did not finish its answer in time")
            parts.append(part)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        waited = headers.get("retry-after", "")
        wait = float(waited) if waited.isascii() and waited.isdigit() else None
        return Reply(response.status, headers.get("content-type", ""), b"".join(parts), wait)

    def _left(self, deadline: float) -> float:
        left = deadline - self.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _connections(self) -> tuple[httpcore.ConnectionPool, _CheckedBackend]:
        with self._lock:
            if self._pool is None or self._backend is None:
                self._backend = _CheckedBackend(self.allowed, self.monotonic, self.resolve)
                self._pool = httpcore.ConnectionPool(
                    ssl_context=_trusted(),
                    max_connections=20,
                    max_keepalive_connections=10,
                    keepalive_expiry=_KEEPALIVE_S,
                    network_backend=self._backend,
                )
            return self._pool, self._backend


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects to addresses that were checked, and holds every wait to the deadline of the call at work here."""

    def __init__(self, allowed: AllowedHosts, monotonic: Callable[[], float], resolve: Resolve) -> None:
        self._allowed = allowed
        self._monotonic = monotonic
        self._resolve = resolve
        self._inner = httpcore.SyncBackend()
        self._call = threading.local()
        self._resolvers = ThreadPoolExecutor(4, thread_name_prefix="kbw-resolve")

    @contextmanager
    def until(self, deadline: float) -> Iterator[None]:
        """All waits of this thread end then."""
        self._call.deadline = deadline
        try:
            yield
        finally:
            self._call.deadline = None

    def left(self, wanted: float | None) -> float | None:
        """The seconds a wait may take. Raises ``ReadTimeout`` when none are left."""
        deadline = getattr(self._call, "deadline", None)
        if deadline is None:
            return wanted
        left = deadline - self._monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout
        return float(left if wanted is None else min(left, wanted))

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first checked address that answers."""
        fault: Exception = httpcore.ConnectError("no address")
        for address in self.checked(host, port):
            try:
                stream = self._inner.connect_tcp(address, port, self.left(timeout), local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                fault = error
            else:
                return _TimedStream(stream, self)
        raise fault

    def checked(self, host: str, port: int) -> list[str]:
        """The addresses that may be connected to, by the deadline."""
        future = self._resolvers.submit(checked_addresses, host, port, self._allowed, self._resolve)
        try:
            return future.result(self.left(None))
        except FutureTimeoutError as error:
            raise httpcore.ConnectTimeout from error


class _TimedStream(httpcore.NetworkStream):
    """A stream whose every wait is held to the deadline: a server that sends a byte a minute gains nothing."""

    def __init__(self, stream: httpcore.NetworkStream, backend: _CheckedBackend) -> None:
        self._stream = stream
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """As the stream."""
        return self._stream.read(max_bytes, self._backend.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """As the stream."""
        self._stream.write(buffer, self._backend.left(timeout))

    def close(self) -> None:
        """As the stream."""
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """As the stream; the name is still the URL's, so the certificate is checked against it."""
        inner = self._stream.start_tls(ssl_context, server_hostname, self._backend.left(timeout))
        return _TimedStream(inner, self._backend)

    def get_extra_info(self, info: str) -> object:
        """As the stream."""
        return self._stream.get_extra_info(info)


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _reason(error: BaseException) -> str:
    """A word an operator can act on, without what the other side wrote."""
    text = str(error).lower()
    if "certificate" in text:
        return "its certificate is not trusted"
    if "refused" in text:
        return "connection refused"
    if "reset" in text or "broken pipe" in text:
        return "connection reset"
    return type(error).__name__
