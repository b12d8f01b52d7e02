"""Telling what an attempt took, for whoever draws traces; must not delay or fail what it tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Facts = Mapping[str, str | int]
"""Short facts by their name in traces; never a question, an answer or a document's text."""


class Span(Protocol):
    """One attempt at a stage, from its claim on."""

    @property
    def traceparent(self) -> str:
        """What a call made inside it hands on (W3C)."""

    def end(self, facts: Facts, *, fault: str = "") -> None:
        """It is over, now; ``fault`` is the code of the error that ended it."""


class Spans(Protocol):
    """Takes spans. Neither call raises nor waits."""

    def begin(self, name: str, traceparent: str) -> Span:
        """A span that begins now, below the span that ``traceparent`` names."""

    def whole(self, name: str, traceparent: str, began: float, facts: Facts, *, fault: str = "") -> None:
        """The very span that ``traceparent`` names, the first of its trace; ``began`` in seconds since the epoch."""

    def close(self) -> None:
        """Hand over what is still here, in a second or two at most: the process ends."""


@dataclass(frozen=True)
class UntoldSpan:
    """Nobody draws it: calls go on in the sender's span, as W3C Trace Context asks of those that open none."""

    traceparent: str

    def end(self, facts: Facts, *, fault: str = "") -> None:
        """Nothing."""


class NoSpans:
    """``Spans`` where no collector is configured."""

    def begin(self, name: str, traceparent: str) -> Span:  # noqa: ARG002 - the port's shape
        """A span that is told to nobody."""
        return UntoldSpan(traceparent)

    def whole(self, name: str, traceparent: str, began: float, facts: Facts, *, fault: str = "") -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
