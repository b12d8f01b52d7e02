"""One long-lived MCP session for all threads of a process; must not know what the tools mean.

The SDK is asynchronous and is imported when the first call is made: it is an optional extra (``mcp``). Its session
lives in one task of an event loop in a thread of its own; a session that broke is opened again once a call.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.knowledge.found import Status
from worker.adapters.weknora.results import ToolFault, WeknoraFault

CONNECT_S = 20.0
REFUSED = "the MCP server refuses our token: check KBW_WEKNORA_MCP_TOKEN, or config.headers of the source"
_TIMED_OUT = -32001
_GRACE_S = 1.0


@dataclass(frozen=True)
class McpServer:
    """Where the server is: a streamable-HTTP ``url`` with its ``token``, or a ``command`` that speaks on stdio."""

    url: str = ""
    token: str = field(default="", repr=False)
    command: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class McpSession:
    """Calls tools of one server. Safe for threads; every process that uses it opens its own session."""

    def __init__(self, server: McpServer, *, connect_s: float = CONNECT_S) -> None:
        self._server = server
        self._connect_s = connect_s
        self._lock = threading.Lock()
        self._loops: dict[int, _Loop] = {}

    def call(self, tool: str, arguments: dict[str, Any], *, timeout: float) -> str:
        """The text of the tool's answer within ``timeout`` seconds. Raises :class:`WeknoraFault`, also its kinds."""
        loop = self._loop()
        waiting = asyncio.run_coroutine_threadsafe(loop.call(tool, arguments, timeout), loop.loop)
        try:
            return waiting.result(timeout + _GRACE_S)
        except (FutureTimeoutError, CancelledError):
            waiting.cancel()
            raise WeknoraFault(Status.TIMEOUT, f"{tool}: no answer within {timeout:.1f} s") from None

    def close(self) -> None:
        """End the session of this process."""
        if loop := self._loops.pop(os.getpid(), None):
            loop.close()

    def _loop(self) -> _Loop:
        with self._lock:
            return self._loops.get(os.getpid()) or self._loops.setdefault(
                os.getpid(), _Loop(self._server, self._connect_s)
            )


class _Loop:
    """The event loop of one process, and the task that owns the open session."""

    def __init__(self, server: McpServer, connect_s: float) -> None:
        self._server = server
        self._connect_s = connect_s
        self.loop = asyncio.new_event_loop()
        self._client: asyncio.Future[Any] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._last_status = 0
        self._lie = ""
        self._thread = threading.Thread(target=self.loop.run_forever, name="weknora-mcp", daemon=True)
        self._thread.start()

    async def call(self, tool: str, arguments: dict[str, Any], timeout: float) -> str:
        try:
            async with asyncio.timeout(timeout):
                for again in (True, False):
                    try:
                        return await self._call(tool, arguments, timeout)
                    except WeknoraFault as fault:
                        if fault.status is not Status.UNAVAILABLE or not again:
                            raise
                        await self._drop()  # a session that broke (server restarted): once more with a new one
        except TimeoutError:
            raise WeknoraFault(Status.TIMEOUT, f"{tool}: no answer within {timeout:.1f} s") from None
        raise AssertionError("unreachable")

    async def _call(self, tool: str, arguments: dict[str, Any], timeout: float) -> str:
        from mcp import MCPError

        client = await self._connected()
        try:
            result = await client.call_tool(tool, arguments, read_timeout_seconds=timeout)
        except MCPError as error:
            raise self._fault(tool, getattr(error.error, "code", 0)) from None
        except (OSError, RuntimeError, ValueError) as error:
            raise WeknoraFault(Status.UNAVAILABLE, f"{tool}: {type(error).__name__}") from None
        texts = [text for part in result.content if isinstance(text := getattr(part, "text", None), str)]
        if result.is_error or len(texts) != 1:
            raise ToolFault(Status.BAD_RESPONSE, f"{tool}: the tool failed")
        return texts[0]

    def _fault(self, tool: str, code: int) -> WeknoraFault:
        if code == _TIMED_OUT:
            return WeknoraFault(Status.TIMEOUT, f"{tool}: no answer in time")
        if self._last_status in (401, 403):
            return WeknoraFault(Status.UNAUTHORIZED, REFUSED)
        if self._lie:
            return WeknoraFault(Status.BAD_RESPONSE, f"the MCP server {self._lie}")
        return WeknoraFault(Status.UNAVAILABLE, f"{tool}: MCP error {code}")

    async def _connected(self) -> Any:
        if self._client is None or self._serving is None or self._serving.done():
            self._client = self.loop.create_future()
            self._over = asyncio.Event()
            self._serving = self.loop.create_task(self._serve(self._client, self._over))
        return await asyncio.shield(self._client)

    async def _serve(self, ready: asyncio.Future[Any], over: asyncio.Event) -> None:
        """Own the session from beginning to end: the SDK's scopes must be left by the task that entered them."""
        fault: WeknoraFault | None = None
        try:
            async with asyncio.timeout(self._connect_s) as limit, self._session() as client:
                limit.reschedule(None)  # for the handshake only: one that never ends would hold every later call
                if not ready.done():
                    ready.set_result(client)
                await over.wait()
        except ImportError:
            fault = WeknoraFault(
                Status.MISCONFIGURED, "the MCP SDK is not installed: pip install 'kb-query-worker[mcp]'"
            )
        except FileNotFoundError:
            fault = WeknoraFault(Status.MISCONFIGURED, "KBW_WEKNORA_MCP_COMMAND names no command that can be started")
        except BaseException as error:  # noqa: BLE001 - groups of the SDK; whatever it is, there is no session
            if self._last_status in (401, 403):
                fault = WeknoraFault(Status.UNAUTHORIZED, REFUSED)
            elif self._lie:
                fault = WeknoraFault(Status.BAD_RESPONSE, f"the MCP server {self._lie}")
            else:
                fault = WeknoraFault(Status.UNAVAILABLE, f"no MCP session: {_reason(error)}")
        if fault is not None and not ready.done():
            ready.set_exception(fault)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        if not self._server.url:
            command, *arguments = shlex.split(self._server.command)
            parameters = StdioServerParameters(
                command=command, args=arguments, env=dict(self._server.environment), cwd=None
            )
            with Path(os.devnull).open("w") as nowhere:  # a server's log may hold what it was asked
                async with Client(stdio_client(parameters, nowhere)) as client:
                    yield client
            return
        from worker.adapters.weknora.mcp_http import guarded_client

        self._last_status, self._lie = 0, ""
        async with guarded_client(self._server.token, self._note) as http:
            transport = streamable_http_client(self._server.url, http_client=http)
            async with Client(transport) as client:
                yield client

    def _note(self, status: int, lie: str) -> None:
        self._last_status, self._lie = status, lie

    async def _drop(self) -> None:
        serving, self._serving, self._client = self._serving, None, None
        self._over.set()
        if serving is not None:
            await asyncio.wait([serving], timeout=_GRACE_S)
            serving.cancel()

    def close(self) -> None:
        with suppress(FutureTimeoutError):  # a server that does not let go must not keep us
            asyncio.run_coroutine_threadsafe(self._drop(), self.loop).result(2 * _GRACE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_GRACE_S)


def _reason(error: BaseException) -> str:
    """What went wrong at the bottom of the SDK's groups, in a word that holds nothing a server wrote."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if "certificate" in str(error).lower():
        return "its certificate is not trusted; SSL_CERT_FILE may name an authority of your own"
    return type(error).__name__
