"""The error table and what a server's own words may become: pure decisions, no socket."""

from __future__ import annotations

import socket
import ssl

import httpx
import pytest

from tasks.errors import Code, PermanentError, TransientError
from worker.adapters.model.discretion import LONGEST, quotable
from worker.adapters.model.endpoint import Endpoint, problem_with_token, problem_with_url
from worker.adapters.model.error_table import ROWS, Refusal, Row, as_error, row_for
from worker.adapters.model.reading import read_answer
from worker.adapters.model.wire import Answer, translate

OPENCLAW = Endpoint(
    name="openclaw",
    base_url="http://gw.example:18789/v1",
    model="openclaw/kb",
    token="sekret-0123456789",
    agent="kb",
    url_setting="OPENCLAW_GATEWAY_URL",
    token_setting="OPENCLAW_GATEWAY_TOKEN",
)


def examples(row: Row) -> list[tuple[Refusal, str]]:
    """Refusals that a row is written for, with the driver that meets them."""
    drivers = [row.only] if row.only else ["openclaw", "openai"]
    return [
        (Refusal(status, kind), driver)
        for status in (row.statuses or (200, 299))
        for kind in (row.kinds or ("some_other_type",))
        for driver in drivers
    ]


@pytest.mark.parametrize("row", ROWS, ids=[f"{number}-{row.code}" for number, row in enumerate(ROWS)])
def test_no_row_is_dead_because_an_earlier_one_takes_all_it_is_for(row: Row) -> None:
    assert any(row_for(refusal, driver) is row for refusal, driver in examples(row))


@pytest.mark.parametrize("kind", ["", "unknown", "html", "api_error"])
def test_every_status_has_an_error_that_names_the_host_and_is_told_in_chinese(kind: str) -> None:
    for status in [*range(200, 600), 0, 999]:
        error = as_error(Refusal(status, kind), OPENCLAW, cooling=False)
        assert "gw.example:18789" in error.en, status
        assert "gw.example:18789" in error.zh, status
        assert any("\u4e00" <= char <= "\u9fff" for char in error.zh), status
        assert "{" not in error.en + error.zh, status


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 599, 408, 425, 429])
def test_what_passes_by_itself_is_transient(status: int) -> None:
    assert isinstance(as_error(Refusal(status, "unknown"), OPENCLAW, cooling=False), TransientError)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 402, 403, 404, 405, 413, 422, 451])
def test_what_somebody_must_mend_is_permanent(status: int) -> None:
    assert isinstance(as_error(Refusal(status, "unknown"), OPENCLAW, cooling=False), PermanentError)


def test_the_two_401s_of_a_gateway_differ_by_their_type_only() -> None:
    ours = as_error(Refusal(401, "unauthorized"), OPENCLAW, cooling=False)
    theirs = as_error(Refusal(401, "authentication_error"), OPENCLAW, cooling=False)
    assert ours.code == theirs.code == Code.MODEL_AUTH
    assert "OPENCLAW_GATEWAY_TOKEN" in ours.en
    assert "models.providers.*.apiKey" in theirs.en
    assert row_for(Refusal(401, "authentication_error"), "openclaw").key_refused
    assert not row_for(Refusal(401, "unauthorized"), "openclaw").key_refused


@pytest.mark.parametrize(("asked", "waits"), [(None, 90.0), (5.0, 90.0), (120.0, 120.0)])
def test_cooling_down_waits_ninety_seconds_or_longer_when_asked_to(asked: float | None, waits: float) -> None:
    error = as_error(Refusal(500, "api_error", retry_after=asked), OPENCLAW, cooling=True)
    assert isinstance(error, TransientError)
    assert error.retry_after == waits


def test_a_502_is_no_sign_of_the_cooldown() -> None:
    error = as_error(Refusal(502, "api_error"), OPENCLAW, cooling=True)
    assert isinstance(error, TransientError)
    assert error.retry_after is None


# ---------------------------------------------------------------- a server's own words


@pytest.mark.parametrize(
    ("said", "prompt", "shown"),
    [
        ("unknown agent kbx", "问题：发布流程", "unknown agent kbx"),
        ("bad value '发布流程是什么'", "问题：发布流程是什么", "bad value '[…]'"),
        ("near 请只依据给出的页面回答 here", "请只依据\n给出的页面回答", "near […] here"),
        ("cannot parse: The release process is long", "The release process", "cannot parse: […] is long"),
        ("key sekret-0123456789 is bad", "", "key […] is bad"),
        ("two\nlines\x00and\u2028three", "", "two lines and three"),
        ("maximum context length is 8192 tokens", "context.json", "maximum context length is 8192 tokens"),
        ("", "x", ""),
    ],
)
def test_what_is_repeated_from_us_is_masked(said: str, prompt: str, shown: str) -> None:
    assert quotable(said, prompt=prompt, secrets=("sekret-0123456789", "")) == shown


def test_a_long_message_is_cut() -> None:
    assert len(quotable("ab " * 10_000, prompt="", secrets=())) <= LONGEST + 2


# ---------------------------------------------------------------- reading what came


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "broken"),
        (b"  ", "broken"),
        (b'{"choices": [', "broken"),
        (b'{"choices": []}', "no_choices"),
        (b'{"choices": [null]}', "no_choices"),
        (b'{"choices": {}}', "not_chat"),
        (b"{}", "not_chat"),
        (b"[]", "broken"),
        (b"\xff\xfe\x00", "broken"),
        (b"<HTML>", "html"),
        (b"data: [DONE]\n\n", "stream"),
        (b'data: {"error": {"type": "x"}}\n', "x"),
        (b'{"error": {"code": "c"}}', "c"),
        (b'{"error": []}', "not_chat"),
        (b"[" * 100_000, "broken"),
    ],
)
def test_whatever_comes_is_a_refusal_with_a_kind(body: bytes, kind: str) -> None:
    outcome = read_answer(Answer(200, "application/json", body), asked_model="m")
    assert isinstance(outcome, Refusal)
    assert outcome.kind == kind


def test_missing_and_odd_fields_of_a_completion_have_plain_values() -> None:
    body = b'{"choices": [{"finish_reason": null, "message": {}}], "usage": {"prompt_tokens": -1}, "model": 7}'
    reply = read_answer(Answer(200, "application/json", body), asked_model="m")
    assert not isinstance(reply, Refusal)
    assert (reply.text, reply.finish_reason, reply.model, reply.prompt_tokens) == ("", "", "m", 0)


@pytest.mark.parametrize("figure", [2**63, 10**30, 9 * 10**18])
def test_a_token_count_that_no_call_can_have_counts_as_none(figure: int) -> None:
    body = b'{"choices": [{"message": {}}], "usage": {"prompt_tokens": %d, "completion_tokens": 7}}' % figure
    reply = read_answer(Answer(200, "application/json", body), asked_model="m")
    assert not isinstance(reply, Refusal)
    assert (reply.prompt_tokens, reply.completion_tokens) == (0, 7), "the fleet's counters hold 64 bits"


def test_text_parts_are_joined() -> None:
    parts = '[{"type": "text", "text": "上"}, {"type": "image"}, {"type": "text", "text": "下"}]'
    body = f'{{"choices": [{{"message": {{"content": {parts}}}}}]}}'.encode()
    reply = read_answer(Answer(200, "application/json", body), asked_model="m")
    assert not isinstance(reply, Refusal)
    assert reply.text == "上下"


# ---------------------------------------------------------------- connections that cannot be staged without a network


def chained(outer: Exception, *causes: Exception) -> Exception:
    """``outer`` as httpx raises it: the foreign error at the end of the chain."""
    here = outer
    for cause in causes:
        here.__cause__ = cause
        here = cause
    return outer


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (chained(httpx.ConnectError("x"), RuntimeError(), socket.gaierror(-2, "Name or service not known")), "name"),
        (chained(httpx.ConnectError("x"), OSError(111, "Connection refused")), "connect"),
        (chained(httpx.ConnectError("x"), ssl.SSLCertVerificationError(1, "self-signed certificate")), "certificate"),
        (chained(httpx.ConnectError("x"), ssl.SSLError(1, "wrong version number")), "tls"),
        (httpx.ConnectError("x"), "connect"),
        (httpx.ConnectTimeout("x"), "connect"),
        (httpx.ProxyError("x"), "connect"),
        (httpx.ReadTimeout("x"), "timeout"),
        (httpx.WriteTimeout("x"), "timeout"),
        (httpx.ReadError("x"), "dropped"),
        (httpx.WriteError("x"), "dropped"),
        (httpx.RemoteProtocolError("text of a page"), "dropped"),
    ],
)
def test_every_foreign_exception_has_one_fault_and_its_text_is_ours(error: httpx.HTTPError, fault: str) -> None:
    translated = translate(error, 30, cut=False)
    assert translated.fault == fault
    assert "page" not in str(translated)
    assert translate(error, 30, cut=True).fault == "timeout", "whatever a cut connection looks like"


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "url",
    [
        "gw.example", "ws://gw.example", "http://", "http://u:p@gw.example/v1", "http://gw.example:0", "http://[::1",
        "http://gw.example:99999", "http://gw.example/v1?key=1", "http://gw.example/#x", "http://a b/", "http://a..b/v1",
        f"http://{'a' * 64}.example/v1", "http://gw.example/\n", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_an_address_that_cannot_work_is_refused_without_repeating_it(url: str) -> None:
    problem = problem_with_url(url)
    assert problem
    assert "u:p" not in problem


@pytest.mark.parametrize("url", ["http://127.0.0.1:18789", "https://llm.example/api/v3", "http://[::1]:8080/v1"])
def test_plain_addresses_are_taken(url: str) -> None:
    assert problem_with_url(url) is None


@pytest.mark.parametrize("token", ["a\nb", "密钥", "a b", "a\x7f"])
def test_a_token_that_cannot_stand_in_a_header_is_refused_without_repeating_it(token: str) -> None:
    problem = problem_with_token(token)
    assert problem
    assert token not in problem


def test_the_token_is_in_no_repr() -> None:
    assert "sekret" not in repr(OPENCLAW)
