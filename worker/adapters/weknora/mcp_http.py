"""The HTTP client under the MCP SDK, so that a server cannot do more than answer; must not know what is asked.

The SDK follows redirects within an origin, unpacks what is compressed and reads a body of any size. Here a redirect, a
compressed body or a page for people becomes a plain 502, and a body ends at ``max_bytes``. It needs the extra ``mcp``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

import httpx2

EXCHANGE_S = 20.0  # each wait of one exchange; the caller's deadline is mostly shorter
MAX_BYTES = 8 * 1024 * 1024
_SPOKEN = ("application/json", "text/event-stream")

Note = Callable[[int, str], None]
"""Is told the status of every answer, and why it is no answer of an MCP server (``""``: it may be one)."""


def guarded_client(token: str, note: Note, max_bytes: int = MAX_BYTES) -> httpx2.AsyncClient:
    """A client for one MCP server. Proxies of the environment are not asked."""
    headers = {"Accept-Encoding": "identity"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    transport = _GuardedTransport(note, max_bytes)
    return httpx2.AsyncClient(headers=headers, trust_env=False, timeout=EXCHANGE_S, transport=transport)


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, note: Note, max_bytes: int) -> None:
        super().__init__()  # SSL_CERT_FILE counts; a proxy of the environment is the client's affair, which asks none
        self._note = note
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, or a 502 in its place."""
        response = await super().handle_async_request(request)
        reason = _refusal(response)
        self._note(response.status_code, reason)
        if reason:
            await response.aclose()
            return httpx2.Response(HTTPStatus.BAD_GATEWAY, request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream, self._max_bytes, self._too_large)
        return response

    def _too_large(self) -> str:
        reason = f"sent more than {self._max_bytes // 2**20} MiB"
        self._note(HTTPStatus.OK, reason)
        return reason


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: int, too_large: Callable[[], str]) -> None:
        self._stream = stream
        self._left = max_bytes
        self._too_large = too_large

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._left -= len(part)
            if self._left < 0:
                raise httpx2.StreamError(self._too_large())  # of a kind that the SDK answers its caller with
            yield part

    async def aclose(self) -> None:
        """As the stream."""
        await self._stream.aclose()


def _refusal(response: httpx2.Response) -> str:
    """Why an answer is none."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if 300 <= response.status_code < 400:
        return f"answered with a redirect (HTTP {response.status_code}), which is not followed"
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        return "answered with a compressed body, which was not asked for"
    if response.status_code == HTTPStatus.OK and kind not in _SPOKEN:
        return "answered with neither JSON nor an event stream: is the endpoint right?"
    return ""
