"""One model call over ``POST …/chat/completions``, for OpenClaw and OpenAI-compatible servers; retries nothing."""

from __future__ import annotations

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
from tasks.errors import Code, PermanentError, TransientError
from tasks.ports import Clock, ModelCall, RawReply
from worker.adapters.model.discretion import quotable
from worker.adapters.model.endpoint import Endpoint
from worker.adapters.model.error_table import COOLDOWN_S, Refusal, as_error, row_for
from worker.adapters.model.probing import Finding, probe_endpoint
from worker.adapters.model.reading import read_answer
from worker.adapters.model.wire import Fault, Wire, WireError

# fault → whether another try may help, what operators read, what the team member reads
_WIRE: dict[Fault, tuple[bool, str, str]] = {
    "connect": (True, "cannot connect to {host}", "无法连接模型服务 {host}"),
    "name": (True, "the host name of {host} cannot be resolved", "无法解析模型服务的主机名 {host}"),
    "certificate": (False, "the TLS certificate of {host} is not trusted", "模型服务 {host} 的 TLS 证书不受信任"),
    "tls": (True, "no TLS connection to {host}", "无法与模型服务 {host} 建立 TLS 连接"),
    "timeout": (True, "{host} did not answer in time", "模型服务 {host} 未在规定时间内回答"),
    "dropped": (True, "{host} dropped the connection", "模型服务 {host} 中断了连接"),
    "too_large": (False, "{host} sent too much", "模型服务 {host} 的回应过大"),
    "encoded": (False, "{host} sent an answer that cannot be read", "模型服务 {host} 的回应无法读取"),
}


class ChatDriver:
    """A model behind an HTTP endpoint. One instance serves all threads of a process and survives a fork.

    Remembers for the life of the process that the server refuses ``response_format``, and when its provider last
    refused the gateway's key: what follows for a while is a cooldown, however the server calls it.
    """

    def __init__(self, endpoint: Endpoint, wire: Wire, clock: Clock) -> None:
        self._endpoint = endpoint
        self._wire = wire
        self._clock = clock
        self._takes_format = True
        self._key_refused_at: float | None = None

    def __repr__(self) -> str:
        return f"ChatDriver({self._endpoint!r})"

    @property
    def name(self) -> str:
        """``openclaw`` or ``openai``."""
        return self._endpoint.name

    @property
    def endpoint(self) -> str:
        """The base URL; it holds no secret (``build_driver`` refuses one that would)."""
        return self._endpoint.base_url

    def complete(self, call: ModelCall) -> RawReply:
        """One reply, within ``call.timeout`` seconds of wall clock for everything.

        The only second request is the one without ``response_format``, after a 400 that names it (CONTRACT §4.4).
        """
        ends_at = self._clock.monotonic() + call.timeout
        with_format = self._takes_format
        outcome = self._ask(call, ends_at, with_format=with_format)
        if with_format and isinstance(outcome, Refusal) and _dislikes_format(outcome):
            outcome = self._ask(call, ends_at, with_format=False)
            if not (isinstance(outcome, Refusal) and outcome.status == 400):
                self._takes_format = False
        if isinstance(outcome, Refusal):
            raise self._refused(outcome, call)
        return outcome

    def probe(self) -> list[Finding]:
        """What ``kbw doctor`` should know about this endpoint; asks no model."""
        return probe_endpoint(self._endpoint, self._wire)

    def close(self) -> None:
        """Give connections back; the driver may still be used."""
        self._wire.close()

    def _ask(self, call: ModelCall, ends_at: float, *, with_format: bool) -> RawReply | Refusal:
        body = strict_json.line(_request(call, self._endpoint.model, with_format=with_format))
        try:
            answer = self._wire.exchange(
                "POST",
                f"{self._endpoint.base_url}/chat/completions",
                self._endpoint.headers(call.session) | _more_headers(call),
                timeout=ends_at - self._clock.monotonic(),
                body=body,
            )
        except WireError as error:
            raise self._unreachable(error) from None
        return read_answer(answer, asked_model=self._endpoint.model)

    def _refused(self, refusal: Refusal, call: ModelCall) -> PermanentError | TransientError:
        now = self._clock.monotonic()
        if row_for(refusal, self._endpoint.name).key_refused:
            self._key_refused_at = now
        cooling = self._key_refused_at is not None and now - self._key_refused_at < COOLDOWN_S
        said = quotable(refusal.message, prompt=f"{call.system}\n{call.user}", secrets=(self._endpoint.token,))
        shown = Refusal(refusal.status, refusal.kind, said, refusal.retry_after, refusal.location)
        return as_error(shown, self._endpoint, cooling=cooling)

    def _unreachable(self, error: WireError) -> PermanentError | TransientError:
        transient, en, zh = _WIRE[error.fault]
        setting = self._endpoint.url_setting
        en = f"{en.format(host=self._endpoint.host)} ({error.detail}); check {setting}"
        zh = f"{zh.format(host=self._endpoint.host)}；请检查 {setting}"
        kind = TransientError if transient else PermanentError
        return kind(Code.MODEL_UNREACHABLE, en=en, zh=zh)


def _more_headers(call: ModelCall) -> dict[str, str]:
    """The job's trace goes on: in the sender's span, or in that of the stage where spans are told."""
    trace = {"traceparent": call.traceparent} if call.traceparent else {}
    return {"Content-Type": "application/json", **trace}


def _request(call: ModelCall, model: str, *, with_format: bool) -> JsonObject:
    """The request body. No tools are offered: a model call can only write words (CONTRACT §4.4)."""
    body: JsonObject = {
        "model": model,
        "stream": False,
        "messages": [{"role": "system", "content": call.system}, {"role": "user", "content": call.user}],
    }
    if with_format:
        schema = {"name": call.schema_name, "schema": call.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _dislikes_format(refusal: Refusal) -> bool:
    said = refusal.message.lower()
    return refusal.status == 400 and ("response_format" in said or "json_schema" in said)
