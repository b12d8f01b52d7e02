"""A search that failed, as an exception inside this package; must not cross the port, where it becomes a status."""

from __future__ import annotations

from tasks.knowledge.found import Status
from worker.outbound import FaultKind, OutboundError

STATUS_OF: dict[FaultKind, Status] = {
    "NOT_ALLOWED": Status.MISCONFIGURED,
    "BAD_REQUEST": Status.MISCONFIGURED,
    "UNREACHABLE": Status.UNAVAILABLE,
    "TIMEOUT": Status.TIMEOUT,
    "BAD_REPLY": Status.BAD_RESPONSE,
}


class SearchFault(Exception):  # noqa: N818  # a value on its way to a status, not an error of ours
    """``detail``: English, what an operator can do; no secret, no text of the service.

    ``again``: another try may succeed at once; ``wait_s`` is what the service asked for.
    """

    def __init__(self, status: Status, detail: str, *, again: bool = False, wait_s: float | None = None) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.again = again
        self.wait_s = wait_s


def fault_of(error: OutboundError) -> SearchFault:
    """The fault that a call without reply means."""
    return SearchFault(STATUS_OF[error.kind], error.detail, again=error.kind == "UNREACHABLE")


def fault_of_status(status: int, host: str, wait_s: float | None = None) -> SearchFault | None:
    """What an HTTP status means; ``None`` for success. Redirects are not followed: they may lead anywhere."""
    if status in (200, 201, 202, 203):
        return None
    if status in (401, 403):
        return SearchFault(Status.UNAUTHORIZED, f"{host} refused our credentials (HTTP {status}): check config.headers")
    if status in (404, 410):
        return SearchFault(Status.KB_NOT_FOUND, f"{host} knows no such base or path (HTTP {status})")
    if status == 429 or status >= 500:
        again = status in (429, 502, 503, 504)
        return SearchFault(Status.UNAVAILABLE, f"{host} answered HTTP {status}", again=again, wait_s=wait_s)
    if 300 <= status < 400:
        detail = f"{host} answered with a redirect (HTTP {status}), which is not followed: write its target as endpoint"
        return SearchFault(Status.BAD_RESPONSE, detail)
    if 400 <= status < 500:
        return SearchFault(Status.MISCONFIGURED, f"{host} refused the request (HTTP {status}): check config.request")
    return SearchFault(Status.BAD_RESPONSE, f"{host} answered HTTP {status} without content")
