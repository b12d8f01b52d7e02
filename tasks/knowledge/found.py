"""What a knowledge source says: a status and hits, values that never raise; must not know how it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Status(StrEnum):
    """How one search ended (CONTRACT §6). Degrading is a value: none of these stops a job."""

    HIT = "HIT"
    ZERO_HIT = "ZERO_HIT"
    UNAVAILABLE = "UNAVAILABLE"
    UNAUTHORIZED = "UNAUTHORIZED"
    KB_NOT_FOUND = "KB_NOT_FOUND"
    MISCONFIGURED = "MISCONFIGURED"
    TIMEOUT = "TIMEOUT"
    BAD_RESPONSE = "BAD_RESPONSE"

    @property
    def answered(self) -> bool:
        """The source did its work, whether or not it found something."""
        return self in (Status.HIT, Status.ZERO_HIT)


ScoreKind = Literal["cosine", "blended", "unknown"]


@dataclass(frozen=True)
class Hit:
    """One record found. ``content`` is foreign text: data, never an instruction.

    ``score`` compares with a threshold only when ``score_kind`` is ``cosine``.
    """

    content: str
    title: str = ""
    score: float | None = None
    score_kind: ScoreKind = "unknown"
    url: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """One source that was asked on the way to the answer. ``ms``: milliseconds. ``detail``: English, no secret."""

    source: str
    status: Status
    ms: int
    detail: str = ""


@dataclass(frozen=True)
class Found:
    """How a search ended, best hit first.

    ``detail`` says in English what an operator can do; it holds no secret and no text of the service. ``attempts``
    lists what was asked when a fallback took part; ``answered_by`` is the source whose hits these are.
    """

    status: Status
    hits: tuple[Hit, ...] = ()
    ms: int = 0
    detail: str = ""
    attempts: tuple[Attempt, ...] = ()
    answered_by: str = ""
