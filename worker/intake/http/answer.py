"""What goes back to an HTTP caller: JSON with a stated length; must not know where it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

JSON_TYPE = "application/json; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    """One whole response."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """A request that gets no further, with the answer that says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(str(answer.status))
        self.answer = answer


def json_answer(status: int, document: object, **headers: str) -> Answer:
    """A JSON body; header names are given with ``_`` for ``-``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n", headers=named)


def error_answer(status: int, code: str, zh: str, reason: str, **headers: str) -> Answer:
    """An error: ``errors`` for people who asked a question, ``reason`` for those who wrote the request."""
    return json_answer(status, {"errorCode": code, "errors": [zh], "reason": reason}, **headers)
