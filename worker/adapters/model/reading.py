"""A server's bytes → the model's reply or a refusal; must not raise, and must not judge what the model wrote."""

from __future__ import annotations

import json
from typing import Any

from tasks.ports import RawReply
from worker.adapters.model.error_table import Refusal
from worker.adapters.model.wire import Answer

_HTTP_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

_MOST_TOKENS = 1_000_000_000
"""No call has more. Added up, nonsense would overflow the fleet's 64-bit counters for good."""


def read_answer(answer: Answer, *, asked_model: str) -> RawReply | Refusal:
    """What ``answer`` is. Only a chat completion with at least one choice is a reply; its text may well be empty.

    Refusal kinds of our own: ``html``, ``text``, ``stream``, ``not_chat``, ``no_choices``, ``broken``.
    """
    if answer.content_type == "text/event-stream" or answer.body.lstrip()[:5] == b"data:":
        return _read_stream(answer)
    document = _parse(answer.body)
    if not isinstance(document, dict):
        return _refusal(answer, _kind_of_bytes(answer), "")
    if document.get("error"):
        return _read_error(answer, document["error"])
    if answer.status != 200:
        message = document.get("message") or document.get("detail") or ""
        return _refusal(answer, "unknown", message if isinstance(message, str) else "")
    return _read_completion(answer, document, asked_model)


def _read_completion(answer: Answer, document: dict[str, Any], asked_model: str) -> RawReply | Refusal:
    choices = document.get("choices")
    if not isinstance(choices, list):
        return _refusal(answer, "not_chat", "")
    choice = choices[0] if choices and isinstance(choices[0], dict) else None
    if choice is None:
        return _refusal(answer, "no_choices", "")
    message = choice.get("message")
    usage = document.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return RawReply(
        text=_text(message.get("content") if isinstance(message, dict) else None),
        finish_reason=_word(choice.get("finish_reason")),
        model=_word(document.get("model")) or asked_model,
        status=answer.status,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _read_error(answer: Answer, error: Any) -> Refusal:
    if not isinstance(error, dict):
        return _refusal(answer, "unknown", error if isinstance(error, str) else "")
    kind = _word(error.get("type")) or _word(error.get("code"))
    if answer.status == 200 and isinstance(error.get("code"), int):
        # OpenRouter's way: HTTP 200, the real status as error.code
        return Refusal(error["code"], kind, _word(error.get("message")), answer.retry_after)
    return _refusal(answer, kind or _HTTP_KINDS.get(answer.status, "unknown"), _word(error.get("message")))


def _read_stream(answer: Answer) -> Refusal:
    """A stream nobody asked for: its error event if there is one, else a server that is no use to us."""
    for line in answer.body.split(b"\n"):
        event = _parse(line.removeprefix(b"data:")) if line.startswith(b"data:") else None
        if isinstance(event, dict) and event.get("error"):
            return _read_error(answer, event["error"])
    return _refusal(answer, "stream", "")


def _refusal(answer: Answer, kind: str, message: str) -> Refusal:
    return Refusal(answer.status, kind, message, answer.retry_after, answer.location)


def _kind_of_bytes(answer: Answer) -> str:
    head = answer.body.lstrip()[:200].lower()
    if answer.content_type == "text/html" or head.startswith((b"<!doctype html", b"<html")):
        return "html"
    if "json" in answer.content_type or head.startswith((b"{", b"[")):
        return "broken"
    return "text" if head or answer.status != 200 else "broken"


def _parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _text(content: Any) -> str:
    """``content`` as text: a string, ``null``, or a list of parts of which the text ones count."""
    if isinstance(content, list):
        return "".join(_word(part.get("text")) for part in content if isinstance(part, dict))
    return _word(content)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else 0
