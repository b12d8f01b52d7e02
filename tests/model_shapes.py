"""What a model endpoint was seen to answer, as values and rules; opens no socket (``tests.scripted_model`` does).

A rule is any function from the parsed request to a :class:`Reply`. Shapes: a real OpenClaw 2026.9.6 gateway (error
bodies, the appended truncation line) and OpenAI-compatible servers.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

TRUNCATION_LINE = (
    "\n\n⚠️ Reply truncated at the model's output token limit. The text above is partial — ask to continue it."
)
"""What OpenClaw 2026.9.6 appends, to the letter (``./kbw test --openclaw`` holds it to that)."""


@dataclass(frozen=True)
class Request:
    """One request as it arrived. ``document`` is the parsed JSON body, ``{}`` without one."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def schema_name(self) -> str:
        """The name of the asked JSON Schema, ``""`` without ``response_format``."""
        return str((self.document.get("response_format") or {}).get("json_schema", {}).get("name", ""))

    def message(self, role: str) -> str:
        """All text of the messages with this role."""
        texts = []
        for message in self.document.get("messages", []):
            if message.get("role") == role:
                content = message.get("content")
                parts = content if isinstance(content, list) else [{"text": content}]
                texts += [str(part.get("text", "")) for part in parts]
        return "\n".join(texts)


@dataclass(frozen=True)
class Reply:
    """What goes back. ``delay_s``: silence before the head. ``drip_s``: pause between single bytes, of the head too.

    ``drop_after``: the connection is reset after so many bytes of the body. ``hang``: nothing ever comes.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0.0
    drip_s: float = 0.0
    drop_after: int | None = None
    hang: bool = False
    stream: bool = False
    """The same completion as server-sent events when the request asks for ``stream`` (the gateway's upstream does)."""


Rule = Callable[[Request], Reply]


# ---------------------------------------------------------------- shapes


def completion(text: str | None, *, finish_reason: str = "stop", model: str = "scripted-1", **more: Any) -> Reply:
    """A chat completion. ``text=None`` is ``content: null``; ``more`` are further :class:`Reply` fields."""
    document = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": text}},
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
    return Reply(body=as_json(document), stream=True, **more)


def error(status: int, kind: str, message: str, **headers: str) -> Reply:
    """An error body as OpenAI and OpenClaw write it; ``Retry_After="3"`` becomes the header ``Retry-After``."""
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status=status, body=as_json({"error": {"message": message, "type": kind}}), headers=pairs)


def gateway_token_refused() -> Reply:
    """401 of the gateway itself: no or a wrong gateway token."""
    return error(401, "unauthorized", "Unauthorized")


def provider_key_refused() -> Reply:
    """401 passed on: the provider refused the gateway's own key."""
    return error(401, "authentication_error", "provider authentication failed")


def internal_error() -> Reply:
    """The gateway's one opaque 500: cooldown after an auth failure, an empty reply, a run past its deadline."""
    return error(500, "api_error", "internal error")


def rate_limited(retry_after: str | None = None) -> Reply:
    """429 with or without ``Retry-After`` (the gateway sends none for a provider's limit)."""
    headers = {} if retry_after is None else {"Retry_After": retry_after}
    return error(429, "rate_limit_error", "rate limit", **headers)


def truncated(text: str) -> Reply:
    """The output limit was hit: HTTP 200, ``finish_reason=length`` and a line the gateway appends to the text."""
    return completion(text + TRUNCATION_LINE, finish_reason="length")


def sse_error(kind: str = "api_error", message: str = "internal error") -> Reply:
    """A failure inside a stream: HTTP 200 with an error event."""
    event = json.dumps({"error": {"message": message, "type": kind}})
    return Reply(content_type="text/event-stream", body=f"data: {event}\n\ndata: [DONE]\n\n".encode())


def html(status: int = 200) -> Reply:
    """A web page where JSON was expected: the endpoint is off, or the base URL is wrong."""
    page = "<!doctype html><html><head><title>Control UI</title></head><body>Control UI</body></html>"
    return Reply(status=status, content_type="text/html; charset=utf-8", body=page.encode())


def plain(status: int, text: str) -> Reply:
    """A bare text answer (404 and 405 of the gateway)."""
    return Reply(status=status, content_type="text/plain; charset=utf-8", body=text.encode())


def no_choices() -> Reply:
    """A completion without any choice."""
    return Reply(body=as_json({"object": "chat.completion", "model": "scripted-1", "choices": []}))


def cut_json(text: str = "half") -> Reply:
    """A whole HTTP answer whose JSON body ends in the middle."""
    whole = completion(text)
    return replace(whole, body=whole.body[: len(whole.body) // 2])


def dropped(text: str = "half") -> Reply:
    """The connection is reset in the middle of the body."""
    return completion(text, drop_after=20)


def hanging() -> Reply:
    """The request is read and never answered."""
    return Reply(hang=True)


def huge(size: int) -> Reply:
    """A completion with a text of ``size`` characters."""
    return completion("x" * size)


def redirect(location: str, status: int = 307) -> Reply:
    """Somebody else should be asked."""
    return Reply(status=status, headers=(("Location", location),), content_type="text/plain")


# ---------------------------------------------------------------- rules


def always(reply: Reply) -> Rule:
    """The same reply to every request."""
    return lambda _request: reply


def echo(request: Request) -> Reply:
    """The last user message comes back as the reply."""
    return completion(request.message("user"))


def refuse_response_format(then: Rule, message: str = "response_format json_schema is not supported") -> Rule:
    """400 that names ``response_format`` while one is sent; without it, what ``then`` says."""

    def rule(request: Request) -> Reply:
        if "response_format" in request.document:
            return error(400, "invalid_request_error", message)
        return then(request)

    return rule


def cooldown_after_refused_key(then: Rule, opaque: int = 1) -> Rule:
    """First the provider's 401, then ``opaque`` times the 500 that hides it, then what ``then`` says."""
    shapes = deque([provider_key_refused(), *[internal_error()] * opaque])
    return lambda request: shapes.popleft() if shapes else then(request)


def as_json(document: object) -> bytes:
    """UTF-8 JSON, as a server writes it."""
    return json.dumps(document, ensure_ascii=False).encode()
