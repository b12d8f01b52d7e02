"""One search within one deadline: secrets filled in at the last moment, bounded tries; must not know the dialects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tasks.knowledge.found import Found, Hit, Status
from tasks.knowledge.secrets import MissingVariableError, resolve
from tasks.ports import Clock
from worker.adapters.knowledge.fault import SearchFault, fault_of
from worker.outbound import OutboundError

MASK = "[secret]"
FIRST_WAIT_S = 0.2
_SHORTEST_MASKED = 4

T = TypeVar("T")


@dataclass(frozen=True)
class Environment:
    """Where ``{{env.X}}`` comes from: asked at each call, so that a missing variable is no crash at start."""

    lookup: Callable[[str], str | None]
    allowed: Callable[[str], bool]

    def fill(self, text: str) -> tuple[str, list[str]]:
        """The text with its variables, and their values. Raises ``SearchFault`` (MISCONFIGURED) naming one."""
        try:
            return resolve(text, self.lookup, self.allowed)
        except MissingVariableError as error:
            raise SearchFault(Status.MISCONFIGURED, error.reason) from error

    def fill_headers(self, headers: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """All header values filled in, and every value used."""
        filled, used = dict[str, str](), list[str]()
        for name, value in headers.items():
            filled[name], values = self.fill(value)
            used += values
        return filled, used


def seconds(own: float, given: float | None) -> float:
    """The time of one search: the source's own ``timeout``, or less when the caller has less."""
    return own if given is None else max(0.0, min(own, given))


def searched(work: Callable[[], list[Hit]], source: str, clock: Clock) -> Found:
    """What came of a search, as a value. An error nobody foresaw is a status too: knowledge never stops a job."""
    started = clock.monotonic()

    def ms() -> int:
        return max(0, round((clock.monotonic() - started) * 1000))

    try:
        hits = work()
    except OutboundError as error:
        fault = fault_of(error)
        return Found(fault.status, ms=ms(), detail=fault.detail, answered_by=source)
    except SearchFault as fault:
        return Found(fault.status, ms=ms(), detail=fault.detail, answered_by=source)
    except Exception as error:  # noqa: BLE001 - the port never raises; the type tells where to look
        return Found(Status.BAD_RESPONSE, ms=ms(), detail=f"unexpected {type(error).__name__}", answered_by=source)
    return Found(Status.HIT if hits else Status.ZERO_HIT, tuple(hits), ms(), answered_by=source)


def with_tries(attempt: Callable[[], T], *, retries: int, deadline: float, clock: Clock) -> T:
    """``attempt``, again after faults that may pass, at most ``retries`` times and never past the deadline."""
    for number in range(retries + 1):
        try:
            return attempt()
        except OutboundError as error:
            fault = fault_of(error)
            if not _wait(fault, number, retries, deadline, clock):
                raise fault from error
        except SearchFault as fault:
            if not _wait(fault, number, retries, deadline, clock):
                raise
    raise AssertionError("unreachable: the last try returns or raises")


def without_secrets(hits: list[Hit], secrets: list[str]) -> list[Hit]:
    """Hits of a service that repeats what it was sent: our secrets must not reach a prompt."""
    told = [secret for secret in secrets if len(secret) >= _SHORTEST_MASKED]
    if not told:
        return hits

    def clean(text: str) -> str:
        for secret in told:
            text = text.replace(secret, MASK)
        return text

    return [replace(hit, content=clean(hit.content), title=clean(hit.title), url=clean(hit.url)) for hit in hits]


def _wait(fault: SearchFault, number: int, retries: int, deadline: float, clock: Clock) -> bool:
    """Whether another try is worth it; waits before it, longer each time, with jitter."""
    if not fault.again or number >= retries:
        return False
    jitter = 0.5 + int(clock.token(1), 16) / 255
    wait = fault.wait_s if fault.wait_s is not None else FIRST_WAIT_S * 2**number * jitter
    if clock.monotonic() + wait >= deadline:
        return False
    clock.sleep(wait)
    return True
