"""A model without a socket: the rules of ``tests.model_shapes`` behind the port; and a clock that stands still."""

from __future__ import annotations

import json
from collections.abc import Callable

from tasks.errors import Code, PermanentError, TransientError
from tasks.ports import ModelCall, RawReply
from tests.model_shapes import Reply, Request, Rule, echo


class FakeModel:
    """Answers each call by ``rule`` (a server's rule, or a function from the call to a reply's text) and keeps calls.

    ``play`` puts replies or errors in front, one a call.
    """

    name = "openai"
    endpoint = "fake://model"

    def __init__(self, rule: Rule = echo, *, by_call: Callable[[ModelCall], str] | None = None) -> None:
        self._rule = rule
        self._by_call = by_call
        self._next: list[Reply | Exception] = []
        self.calls: list[ModelCall] = []

    def play(self, *replies: Reply | Exception) -> None:
        self._next.extend(replies)

    def complete(self, call: ModelCall) -> RawReply:
        self.calls.append(call)
        if self._next:
            chosen = self._next.pop(0)
            if isinstance(chosen, Exception):
                raise chosen
            return _as_raw(chosen)
        if self._by_call:
            return RawReply(text=self._by_call(call), finish_reason="stop", model="fake")
        return _as_raw(self._rule(_as_request(call)))


class StillClock:
    """A clock that moves only when told to; chance is a counter. ``step``: how far somebody has set its wall time."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.time = now
        self.step = 0.0
        self._tokens = 0

    def now(self) -> float:
        return self.time + self.step

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def token(self, n_bytes: int) -> str:
        self._tokens += 1
        return f"{self._tokens:0{2 * n_bytes}x}"


def _as_request(call: ModelCall) -> Request:
    messages = [{"role": "system", "content": call.system}, {"role": "user", "content": call.user}]
    schema = {"name": call.schema_name, "schema": call.schema}
    document = {"messages": messages, "response_format": {"type": "json_schema", "json_schema": schema}}
    return Request("POST", "/v1/chat/completions", {}, b"", document)


def _as_raw(reply: Reply) -> RawReply:
    if reply.status in (401, 403):
        raise PermanentError(Code.MODEL_AUTH, en="the fake model refuses access", zh="测试模型拒绝访问")
    if reply.status == 400:
        raise PermanentError(Code.MODEL_REFUSED, en="the fake model refuses the request", zh="测试模型拒绝请求")
    if reply.status != 200:
        raise TransientError(Code.MODEL_UNREACHABLE, en=f"fake HTTP {reply.status}", zh="测试模型暂时不可用")
    document = json.loads(reply.body)
    choice = document["choices"][0]
    usage = document["usage"]
    return RawReply(
        text=choice["message"]["content"] or "",
        finish_reason=choice["finish_reason"],
        model=document["model"],
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
    )
