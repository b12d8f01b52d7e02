"""Every refusal that a model endpoint was seen to give: class, code, waiting time, and no secret in its text."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tasks.errors import Code, JobError, PermanentError, TransientError
from tests import scripted_model as scripted
from tests.fakes_model import StillClock
from tests.model_calls import CALL, DRIVERS, SWITCH, TOKEN, config, failure
from worker.adapters.model.factory import ProbedDriver, build_driver


@dataclass(frozen=True)
class Case:
    reply: scripted.Reply
    kind: type[JobError]
    code: Code
    retry_after: float | None = None
    says: str = ""
    only: str = ""


REDIRECT = scripted.redirect("https://user:pw@elsewhere.example/v1/chat/completions?key=k")


def fixed(reply: scripted.Reply, code: Code, says: str = "", only: str = "") -> Case:
    """Trying again changes nothing."""
    return Case(reply, PermanentError, code, None, says, only)


def later(reply: scripted.Reply, retry_after: float | None = None, says: str = "") -> Case:
    """Another try may succeed."""
    return Case(reply, TransientError, Code.MODEL_UNREACHABLE, retry_after, says)


CASES = {
    "gateway-token": fixed(
        scripted.gateway_token_refused(), Code.MODEL_AUTH, says="OPENCLAW_GATEWAY_TOKEN", only="openclaw"
    ),
    "provider-key": fixed(
        scripted.provider_key_refused(), Code.MODEL_AUTH, says="models.providers.*.apiKey", only="openclaw"
    ),
    "api-key": fixed(
        scripted.error(401, "invalid_request_error", "bad key"), Code.MODEL_AUTH, says="KBW_LLM_API_KEY", only="openai"
    ),
    "openai-401": fixed(scripted.provider_key_refused(), Code.MODEL_AUTH, says="KBW_LLM_API_KEY", only="openai"),
    "forbidden": fixed(scripted.error(403, "forbidden", "no"), Code.MODEL_AUTH),
    "bad-request": fixed(
        scripted.error(400, "invalid_request_error", "unknown agent"), Code.MODEL_REFUSED, says="unknown agent"
    ),
    "too-long": fixed(scripted.error(413, "invalid_request_error", "body"), Code.MODEL_REFUSED, says="too large"),
    "unprocessable": fixed(scripted.plain(422, "no"), Code.MODEL_REFUSED),
    "quota": fixed(scripted.error(429, "insufficient_quota", "pay"), Code.MODEL_REFUSED, says="quota"),
    "payment": fixed(scripted.error(402, "billing_error", "pay"), Code.MODEL_REFUSED),
    "slow-down": later(scripted.rate_limited(), 60.0),
    "slow-down-7s": later(scripted.rate_limited("7"), 7.0),
    "slow-down-date": later(scripted.rate_limited("Fri, 15 Jan 2027 08:00:30 GMT"), 30.0),
    "slow-down-odd": later(scripted.rate_limited("soon"), 60.0),
    "slow-down-for-ever": later(scripted.rate_limited("9999999"), 3600.0),
    "internal": later(scripted.internal_error()),
    "bad-gateway": later(scripted.error(502, "api_error", "upstream")),
    "unavailable": later(scripted.error(503, "overloaded", "busy", Retry_After="5"), 5.0),
    "gateway-timeout": later(scripted.html(504)),
    "request-timeout": later(scripted.error(408, "timeout", "late")),
    "off-404": fixed(scripted.plain(404, "Not Found"), Code.NO_MODEL, says=SWITCH, only="openclaw"),
    "off-405": fixed(scripted.plain(405, "Method Not Allowed"), Code.NO_MODEL, says=SWITCH, only="openclaw"),
    "off-html": fixed(scripted.html(), Code.NO_MODEL, says=SWITCH, only="openclaw"),
    "base-404": fixed(scripted.plain(404, "Not Found"), Code.NO_MODEL, says="must end in /v1", only="openai"),
    "base-html-404": fixed(scripted.html(404), Code.NO_MODEL, says="must end in /v1", only="openai"),
    "base-html": fixed(scripted.html(), Code.NO_MODEL, says="must end in /v1", only="openai"),
    "no-such-model": fixed(scripted.error(404, "model_not_found", "no model x"), Code.NO_MODEL, says="no model x"),
    "other-json": fixed(scripted.Reply(body=b'{"hello": 1}'), Code.NO_MODEL),
    "other-text": fixed(scripted.plain(200, "hello"), Code.NO_MODEL),
    "redirect": fixed(REDIRECT, Code.NO_MODEL, says="https://elsewhere.example/v1/chat/completions"),
    "error-in-200": later(scripted.Reply(body=b'{"error":{"type":"api_error","message":"oops"}}')),
    "auth-in-200": fixed(
        scripted.Reply(body=b'{"error":{"type":"invalid_api_key","message":"oops"}}'), Code.MODEL_AUTH
    ),
    "limit-in-200": later(scripted.Reply(body=b'{"error":{"type":"rate_limit_error"}}'), 60.0),
    "bad-in-200": fixed(scripted.Reply(body=b'{"error":{"type":"invalid_request_error"}}'), Code.MODEL_REFUSED),
    "status-in-200": later(scripted.Reply(body=b'{"error":{"code":429,"message":"slow"}}'), 60.0),
    "text-in-200": later(scripted.Reply(body=b'{"error":"oops"}')),
    "sse-error": later(scripted.sse_error()),
    "sse-auth": fixed(scripted.sse_error("unauthorized", "no"), Code.MODEL_AUTH),
    "stream": fixed(
        scripted.Reply(content_type="text/event-stream", body=b'data: {"choices":[]}\n\ndata: [DONE]\n\n'),
        Code.NO_MODEL,
    ),
    "no-choices": later(scripted.no_choices()),
    "cut-json": later(scripted.cut_json(), says="cut or damaged"),
    "no-body": later(scripted.Reply()),
    "dropped": later(scripted.dropped(), says="dropped"),
    "compressed": fixed(scripted.completion("x", headers=(("Content-Encoding", "gzip"),)), Code.MODEL_UNREACHABLE),
}


MET = [(driver, name) for driver in DRIVERS for name, case in CASES.items() if case.only in ("", driver)]


@pytest.mark.parametrize(("driver_name", "name"), MET)
def test_a_refusal_has_its_class_code_and_waiting_time(
    server: scripted.ScriptedModel, clock: StillClock, driver_name: str, name: str
) -> None:
    case = CASES[name]
    driver = build_driver(config(driver_name, server.url), clock)
    server.play(case.reply)
    error = failure(driver)
    assert (type(error), error.code) == (case.kind, case.code), error.en
    assert case.says in error.en
    assert getattr(error, "retry_after", None) == case.retry_after
    assert server.url.removeprefix("http://") in error.en
    assert "user:pw" not in error.en
    assert "key=k" not in error.en


def test_a_500_soon_after_a_refused_provider_key_waits_for_the_cooldown(
    server: scripted.ScriptedModel, clock: StillClock
) -> None:
    built = build_driver(config("openclaw", server.url), clock)
    server.rule = scripted.cooldown_after_refused_key(scripted.always(scripted.internal_error()))
    assert failure(built).code == Code.MODEL_AUTH
    clock.sleep(30)
    cooling = failure(built)
    assert isinstance(cooling, TransientError)
    assert cooling.retry_after == 90.0
    clock.sleep(61)
    later = failure(built)
    assert isinstance(later, TransientError)
    assert later.retry_after is None, "91 s after the refused key a 500 is a fault of its own"


def test_a_500_after_our_own_token_was_refused_is_no_cooldown(
    server: scripted.ScriptedModel, clock: StillClock
) -> None:
    built = build_driver(config("openclaw", server.url), clock)
    server.play(scripted.gateway_token_refused(), scripted.internal_error())
    failure(built)
    error = failure(built)
    assert isinstance(error, TransientError)
    assert error.retry_after is None


def test_a_message_that_repeats_our_prompt_or_token_is_masked(
    driver: ProbedDriver, server: scripted.ScriptedModel
) -> None:
    said = f"invalid value {CALL.user!r} for Bearer {TOKEN}, {'x' * 5000}"
    server.play(scripted.error(400, "invalid_request_error", said))
    error = failure(driver)
    assert "invalid value" in error.en
    assert len(error.en) < 500
