"""Requests to answers: routes, the token, limits of size and time; must not know how a job is accepted."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from worker.intake.document import MAX_PAYLOAD_BYTES
from worker.intake.http.answer import Answer, RefusedError, error_answer, json_answer
from worker.intake.http.jobs_api import JobsApi
from worker.intake.http.retrieval import RetrievalApi

log = logging.getLogger("kbw.http")

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

DRAIN_BYTES = 4 * MAX_PAYLOAD_BYTES
DRAIN_PAUSE_S = 1.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Probe:
    """Whether something is well, and facts for people. Never a job's text: probes need no token."""

    ok: bool
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Probes:
    """What monitoring asks. Each is called in a thread and may take a second or two."""

    live: Callable[[], Probe]
    ready: Callable[[], Probe]
    metrics: Callable[[], str]


@dataclass(frozen=True)
class Times:
    """Limits in seconds: for reading a request's body, and for working on it."""

    body_s: float = 30.0
    work_s: float = 30.0


class HttpApp:
    """An ASGI application. ``threads`` does the blocking work; without a ``token`` nobody gets at jobs.

    ``retrieval`` answers ``POST /retrieval``; it has a token of its own.
    """

    def __init__(
        self,
        jobs: JobsApi,
        probes: Probes,
        token: str,
        threads: ThreadPoolExecutor,
        times: Times | None = None,
        *,
        retrieval: RetrievalApi | None = None,
    ) -> None:
        if not token and retrieval is None:
            raise ValueError("without a token the HTTP way in is off")
        self._jobs = jobs
        self._probes = probes
        self._token = hashlib.sha256(token.encode()).digest() if token else b""
        self._retrieval = retrieval
        self._threads = threads
        self._times = times or Times()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(Request(scope, receive, self._times.body_s))
        except RefusedError as refused:
            answer = refused.answer
        except Exception:
            log.exception("http.crashed", extra={"kbw": {"method": scope["method"]}})
            answer = error_answer(500, "INTERNAL", "系统内部错误", "our fault; the log has the trace")
        await _send(answer, send)

    async def _answer(self, request: Request) -> Answer:
        request.check_framing()
        path = request.path.rstrip("/") or "/"
        if path in ("/live", "/ready", "/metrics"):
            request.allow("GET", "HEAD")
            return await self._work(self._monitored, path)
        if path == "/jobs" or path.startswith("/jobs/"):
            await self._check_token(request)
            return await self._about_jobs(path, request)
        if path == "/retrieval" and self._retrieval is not None:
            return await self._retrieved(self._retrieval, request)
        await request.drain()
        return error_answer(404, "NOT_FOUND", "没有这个地址", "paths: /jobs /jobs/<taskId> /live /ready /metrics")

    async def _retrieved(self, retrieval: RetrievalApi, request: Request) -> Answer:
        request.allow("POST")
        refusal = retrieval.refusal(request.header(b"authorization"))
        if refusal is not None:
            await request.drain()
            return refusal
        return await self._work(retrieval.retrieve, await request.content())

    async def _about_jobs(self, path: str, request: Request) -> Answer:
        if path != "/jobs":
            request.allow("GET", "HEAD")
            return await self._work(self._jobs.show, path.removeprefix("/jobs/"))
        request.allow("GET", "HEAD", "POST")
        if request.method == "POST":
            content = await request.content()
            return await self._work(self._jobs.submit, content, request.header(b"traceparent"))
        return await self._work(self._jobs.listing, request.parameter("state"), request.parameter("limit"))

    def _monitored(self, path: str) -> Answer:
        if path == "/metrics":
            return Answer(200, self._probes.metrics().encode(), METRICS_TYPE)
        probe = self._probes.live() if path == "/live" else self._probes.ready()
        return json_answer(200 if probe.ok else 503, {"ok": probe.ok, **probe.facts})

    async def _check_token(self, request: Request) -> None:
        """Compared as digests: neither length nor content of the right token shows in the time it takes."""
        scheme, _, given = request.header(b"authorization").partition(" ")
        right = hmac.compare_digest(hashlib.sha256(given.strip().encode("latin-1")).digest(), self._token)
        if scheme.lower() != "bearer" or not right:
            log.warning("http.unauthorized", extra={"kbw": {"client": request.client}})
            await request.drain()
            raise RefusedError(
                error_answer(
                    401,
                    "UNAUTHORIZED",
                    "缺少或错误的访问令牌",
                    "send: Authorization: Bearer <KBW_HTTP_TOKEN>",
                    WWW_Authenticate="Bearer",
                )
            )

    async def _work(self, call: Callable[..., Answer], *arguments: object) -> Answer:
        """In a thread. What takes too long goes on there: every call is safe to repeat."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._times.work_s):
                return await loop.run_in_executor(self._threads, call, *arguments)
        except TimeoutError:
            reason = f"not done after {self._times.work_s:g} s; send the same request again"
            return error_answer(503, "UNAVAILABLE", "服务繁忙，请稍后重试", reason, Retry_After="5")


class Request:
    """One request as the routes see it."""

    def __init__(self, scope: Scope, receive: Receive, body_s: float) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode("latin-1")
        self.client: str = (scope.get("client") or ("",))[0]
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._body_s = body_s

    def header(self, name: bytes) -> str:
        """The header's value, ``""`` without one; given twice, it is none: nobody should guess which is meant."""
        values = [value for key, value in self._headers if key == name]
        return values[0].decode("latin-1") if len(values) == 1 else ""

    def check_framing(self) -> None:
        """Raises 400 for a length and chunks at once: a proxy before us may have read another end of the body."""
        names = {name for name, _ in self._headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            reason = "Content-Length and Transfer-Encoding exclude each other"
            raise RefusedError(error_answer(400, "BAD_REQUEST", "请求格式不正确", reason, connection="close"))

    def parameter(self, name: str) -> str:
        """The query's value, ``""`` without one. Raises 400 for a query that cannot be read."""
        try:
            return parse_qs(self.query, max_num_fields=20).get(name, [""])[-1]
        except ValueError as error:
            raise RefusedError(error_answer(400, "BAD_REQUEST", "查询参数无效", f"query: {error}")) from error

    def allow(self, *methods: str) -> None:
        """Raises 405 for other methods."""
        if self.method not in methods:
            allowed = ", ".join(methods)
            raise RefusedError(
                error_answer(405, "METHOD_NOT_ALLOWED", "不支持的请求方法", f"use {allowed}", Allow=allowed)
            )

    async def content(self) -> bytes:
        """The whole body. Raises 413 above 16 MiB (told at once to a client that asks first), 415, 408, 400."""
        if self.header(b"content-encoding").lower() not in ("", "identity"):
            await self.drain()
            raise RefusedError(
                error_answer(
                    415, "UNSUPPORTED_ENCODING", "不支持压缩的请求内容", "send the body as it is: no Content-Encoding"
                )
            )
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > MAX_PAYLOAD_BYTES:
            await self.drain()
            raise RefusedError(_too_large())
        try:
            async with asyncio.timeout(self._body_s):
                return await self._read()
        except TimeoutError as error:
            raise RefusedError(
                error_answer(
                    408, "TIMEOUT", "请求发送超时", f"the body took more than {self._body_s:g} s", connection="close"
                )
            ) from error

    async def _read(self) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            part, more = await self._part()
            size += len(part)
            if size > MAX_PAYLOAD_BYTES:
                parts.clear()
                await self.drain(size)
                raise RefusedError(_too_large())
            parts.append(part)
        return b"".join(parts)

    async def _part(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] != "http.request":
            raise RefusedError(error_answer(400, "BAD_REQUEST", "请求不完整", "the connection ended within the body"))
        return message.get("body", b""), bool(message.get("more_body"))

    async def drain(self, taken: int = 0) -> None:
        """Read what the client still sends, up to a bound: many read no answer before they have sent everything.

        A client that asks first (``Expect: 100-continue``) has sent nothing yet and is answered at once; one that
        pauses within its body may wait for us, and is answered after a second.
        """
        if self.header(b"expect").lower() == "100-continue" and not taken:
            return
        try:
            async with asyncio.timeout(self._body_s):
                more = True
                while more and taken <= DRAIN_BYTES:
                    async with asyncio.timeout(DRAIN_PAUSE_S):
                        part, more = await self._part()
                    taken += len(part)
        except (TimeoutError, RefusedError):
            return


def _too_large() -> Answer:
    limit = MAX_PAYLOAD_BYTES // (1024 * 1024)
    reason = f"a payload has at most {limit} MiB"
    return error_answer(413, "TOO_LARGE", f"任务内容超过 {limit} MiB 上限", reason, connection="close")


async def _send(answer: Answer, send: Send) -> None:
    headers = {
        "content-type": answer.content_type,
        "content-length": str(len(answer.body)),
        "cache-control": "no-store",
    }
    headers |= {name.lower(): value for name, value in answer.headers.items()}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
    await send({"type": "http.response.body", "body": answer.body})
