"""What WeKnora's answers mean, over REST and MCP alike; must not send anything.

Of a FAQ hit only ``chunk_metadata.answers`` is read (CONTRACT §7): the other copies of a card never leave this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from tasks.knowledge.found import Found, Hit, Status

Answers = Literal["first", "all"]

# WeKnora's application codes (facts/knowledge-weknora.md A1); HTTP codes of answers without one.
_CODES: dict[int, Status] = {
    1000: Status.MISCONFIGURED,
    1001: Status.UNAUTHORIZED,
    1002: Status.UNAUTHORIZED,
    1003: Status.KB_NOT_FOUND,
    1006: Status.UNAVAILABLE,
    1007: Status.UNAVAILABLE,
    1008: Status.UNAVAILABLE,
    1009: Status.TIMEOUT,
    1010: Status.MISCONFIGURED,
    2200: Status.MISCONFIGURED,
    2201: Status.UNAVAILABLE,
    400: Status.MISCONFIGURED,
    401: Status.UNAUTHORIZED,
    403: Status.UNAUTHORIZED,
    404: Status.KB_NOT_FOUND,
    408: Status.TIMEOUT,
    422: Status.MISCONFIGURED,
    429: Status.UNAVAILABLE,
    504: Status.TIMEOUT,
}


class WeknoraFault(Exception):  # noqa: N818 - a fault of the other side, which callers turn into a status
    """No usable answer. ``code``: WeKnora's own code, 0 without one; ``told``: its message, for operators only."""

    def __init__(self, status: Status, detail: str, *, code: int = 0, told: str = "") -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.code = code
        self.told = told


class ToolFault(WeknoraFault):
    """The server answered, and all it says is that the tool failed: why has to be asked by another call."""


def body_of(status: int, content: bytes, what: str) -> dict[str, Any]:
    """The JSON object of a successful answer. Raises :class:`WeknoraFault` for both shapes of its errors and others."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    code, told = _error_of(document)
    if 200 <= status < 300 and isinstance(document, dict) and is_success(document):
        return document
    if 200 <= status < 300 and not code:
        raise WeknoraFault(Status.BAD_RESPONSE, f"{what}: HTTP {status}, but no answer of WeKnora")
    if 300 <= status < 400:
        raise WeknoraFault(Status.BAD_RESPONSE, f"{what}: HTTP {status}, a redirect is not followed")
    meant = _CODES.get(code) or _CODES.get(status) or (Status.UNAVAILABLE if status >= 500 else Status.BAD_RESPONSE)
    if status == 404 and not isinstance(_member(document, "error"), Mapping):  # a wrong base URL, an old server
        meant = Status.BAD_RESPONSE
    raise WeknoraFault(meant, f"{what}: HTTP {status}" + (f", code {code}" if code else ""), code=code, told=told)


def is_success(document: Mapping[str, Any]) -> bool:
    """Whether an answer says so: ``success`` true (seed 000 §1.2), or bare ``data``; no ``error`` beside it."""
    return document.get("success", "data" in document) is True and not document.get("error")


def _member(document: object, name: str) -> object:
    return document.get(name) if isinstance(document, Mapping) else None


def _error_of(document: object) -> tuple[int, str]:
    """Code and message of ``{"success":false,"error":{code,message}}``; of ``{"error":"…"}`` only the message.

    The code is a number, also written as a text; the documentation has words, which count as none.
    """
    error = _member(document, "error")
    if isinstance(error, Mapping):
        code = str(error.get("code"))
        return (int(code) if code.isdecimal() and len(code) < 10 else 0), str(error.get("message") or "")[:300]
    return 0, error[:300] if isinstance(error, str) else ""


def found_in(document: Mapping[str, Any], answers: Answers, *, passages: bool = False) -> Found:
    """The cards of a search answer; ``data`` null or empty is ZERO_HIT, no error.

    ``passages``: a base of documents is read too, whose hits are no cards but pieces of text.
    """
    data = document.get("data")
    if data is None or data == []:
        return Found(Status.ZERO_HIT)
    if not isinstance(data, list):
        return Found(Status.BAD_RESPONSE, detail="the search answer's data is no list")
    rows = [row for row in data if isinstance(row, dict)]
    read = [_card(row, answers) or (_passage(row) if passages else None) for row in rows]
    hits = tuple(hit for hit in read if hit)
    if not hits:
        return Found(Status.ZERO_HIT, detail="hits without chunk_metadata.answers: is the base of type faq?")
    return Found(Status.HIT, hits)


def _passage(row: Mapping[str, Any]) -> Hit | None:
    content, kind = row.get("content"), row.get("chunk_type")
    if not kind or kind == "faq" or not isinstance(content, str) or not content.strip():
        return None
    return Hit(content, title=str(row.get("knowledge_title") or ""), score=_score(row))


def _card(row: Mapping[str, Any], answers: Answers) -> Hit | None:
    metadata = row.get("chunk_metadata")
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except ValueError:
            return None
    found = metadata.get("answers") if isinstance(metadata, Mapping) else None
    texts = [text for text in found if isinstance(text, str) and text.strip()] if isinstance(found, list) else []
    if not texts:
        return None
    return Hit(content=texts[0] if answers == "first" else "\n\n".join(texts), score=_score(row))


def _score(row: Mapping[str, Any]) -> float | None:
    score = row.get("score")
    return float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None
