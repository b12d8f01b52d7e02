"""One bounded HTTP exchange with WeKnora: wall clock, size, no redirects, no proxies of the environment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from tasks.knowledge.found import Status
from worker.adapters.weknora.results import WeknoraFault

MAX_BYTES = 8 * 1024 * 1024
MAX_EXPORT_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class HttpAnswer:
    """A complete answer of any status."""

    status: int
    body: bytes = field(repr=False)


def exchange(
    method: str,
    url: str,
    headers: dict[str, str],
    *,
    timeout: float,
    json: Any = None,
    params: dict[str, Any] | None = None,
    max_bytes: int = MAX_BYTES,
) -> HttpAnswer:
    """The whole answer within ``timeout`` seconds of wall clock. Raises :class:`WeknoraFault`.

    httpx bounds each read, not their sum; an event loop of its own for each call bounds everything, drips included.
    """
    return asyncio.run(_exchange(method, url, headers, timeout, json, params, max_bytes))


async def _exchange(
    method: str,
    url: str,
    headers: dict[str, str],
    timeout: float,
    json: Any,
    params: dict[str, Any] | None,
    max_bytes: int,
) -> HttpAnswer:
    try:
        async with asyncio.timeout(timeout), httpx.AsyncClient(trust_env=False, timeout=timeout) as client:
            request = client.build_request(
                method, url, headers={"Accept-Encoding": "identity", **headers}, json=json, params=params
            )
            response = await client.send(request, stream=True)
            parts, size = [], 0
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > max_bytes:
                    raise WeknoraFault(Status.BAD_RESPONSE, f"the answer is larger than {max_bytes} bytes")
                parts.append(chunk)
            return HttpAnswer(response.status_code, b"".join(parts))
    except (TimeoutError, httpx.TimeoutException):
        raise WeknoraFault(Status.TIMEOUT, f"no complete answer within {timeout:.1f} s") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise WeknoraFault(Status.MISCONFIGURED, "KBW_WEKNORA_URL is no http(s) address") from None
    except (httpx.HTTPError, OSError) as error:
        # `from None`: the foreign exception holds our request and its headers
        raise WeknoraFault(Status.UNAVAILABLE, f"not reachable ({type(error).__name__})") from None
