"""One exchange with WeKnora's REST API over the guarded client of ``worker.outbound``; must not read what it says."""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tasks.knowledge.found import Status
from worker.adapters.weknora.results import WeknoraFault
from worker.outbound import FaultKind, Outbound, OutboundError, Reply

MAX_BYTES = 8 * 1024 * 1024
MAX_EXPORT_BYTES = 256 * 1024 * 1024

_STATUS: dict[FaultKind, Status] = {
    "NOT_ALLOWED": Status.MISCONFIGURED,
    "BAD_REQUEST": Status.MISCONFIGURED,
    "UNREACHABLE": Status.UNAVAILABLE,
    "TIMEOUT": Status.TIMEOUT,
    "BAD_REPLY": Status.BAD_RESPONSE,
}


@dataclass(frozen=True)
class WeknoraWire:
    """Where the API is (``…/api/v1``) and what every request carries."""

    base_url: str
    api_key: str
    outbound: Outbound

    def exchange(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        json: Any = None,
        params: dict[str, str] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Reply:
        """The whole answer, of any status, within ``timeout`` seconds. Raises :class:`WeknoraFault`."""
        headers = {"X-API-Key": self.api_key} if self.api_key else {}
        content = b""
        if json is not None:
            headers["Content-Type"] = "application/json"
            content = json_format.dumps(json, ensure_ascii=False).encode("utf-8", "replace")
        url = self.base_url.rstrip("/") + path + (f"?{urlencode(params)}" if params else "")
        try:
            deadline = self.outbound.monotonic() + timeout
            return self.outbound.send(method, url, headers, content, deadline, max_bytes=max_bytes)
        except OutboundError as error:
            detail = error.detail.replace("config.endpoint", "the address of WeKnora")
            raise WeknoraFault(_STATUS[error.kind], detail) from None
