"""Our driver and our shipped gateway configuration against the real OpenClaw: ``./kbw test --openclaw``.

The model behind the gateway is the scripted server, so each fact is about the gateway: nothing leaves loopback, except
that npm installs the pinned packages once into ``~/.cache/kbw/openclaw``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tasks.errors import Code, PermanentError, TransientError
from tasks.ports import ModelCall
from tests import openclaw_gateway, scripted_model
from tests.fakes_model import StillClock
from worker.adapters.model.factory import ModelConfig, ProbedDriver, build_driver

pytestmark = [pytest.mark.openclaw, pytest.mark.acceptance, pytest.mark.timeout(1_500)]

TOKEN = "gateway-sekret-0123456789abcdef"
UPSTREAM_KEY = "upstream-sekret-0123456789abcdef"
PAGES = "guide/发布.md guide/发布.md\n发布前必须先通过全部检查并打标签。\n"
SELECT = ModelCall(
    stage="select",
    system="只从目录中选择页面",
    user=f"目录：{PAGES}",
    schema_name="page_selection",
    schema={"type": "object", "properties": {"selectedPages": {"type": "array"}}},
    session="query-12-345",
    timeout=200.0,
)
ANSWER = replace(SELECT, stage="answer", schema_name="answer", session="query-12-345.r1", user=f"页面：{PAGES}")


@pytest.fixture(scope="module")
def upstream() -> Iterator[scripted_model.ScriptedModel]:
    with scripted_model.ScriptedModel(scripted_model.answer_from_pages(), token=UPSTREAM_KEY) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    upstream: scripted_model.ScriptedModel,
) -> Iterator[openclaw_gateway.Gateway]:
    if "openclaw" not in (request.config.option.markexpr or ""):
        pytest.skip("opt-in, installs about 0.8 GB from npm: ./kbw test --openclaw")
    try:
        modules = openclaw_gateway.install()
    except openclaw_gateway.NotInstallable as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("openclaw")
    with openclaw_gateway.running(
        modules, folder, upstream=upstream.url, token=TOKEN, upstream_key=UPSTREAM_KEY
    ) as running:
        yield running


@pytest.fixture(scope="module")
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(scope="module")
def driver(gateway: openclaw_gateway.Gateway, clock: StillClock) -> Iterator[ProbedDriver]:
    built = build_driver(ModelConfig(gateway_url=gateway.url, gateway_token=TOKEN, agent="kb"), clock)
    yield built
    built.close()


def test_the_agent_is_listed_and_the_endpoint_is_on(driver: ProbedDriver) -> None:
    assert [(finding.level, finding.check) for finding in driver.probe()] == [
        ("ok", "gateway ready"),
        ("ok", "chat completions"),
        ("ok", "model"),
    ]


def test_an_agent_that_is_not_there_is_named(gateway: openclaw_gateway.Gateway, clock: StillClock) -> None:
    other = build_driver(ModelConfig(gateway_url=gateway.url, gateway_token=TOKEN, agent="nobody"), clock)
    assert "openclaw/kb" in other.probe()[-1].message
    with pytest.raises(PermanentError) as caught:
        other.complete(SELECT)
    assert caught.value.code == Code.MODEL_REFUSED


def test_a_wrong_gateway_token_is_told_apart(gateway: openclaw_gateway.Gateway, clock: StillClock) -> None:
    other = build_driver(ModelConfig(gateway_url=gateway.url, gateway_token="wrong", agent="kb"), clock)
    with pytest.raises(PermanentError) as caught:
        other.complete(SELECT)
    assert caught.value.code == Code.MODEL_AUTH
    assert "OPENCLAW_GATEWAY_TOKEN" in caught.value.en
    assert other.probe()[-1].level == "fail"


def test_select_and_answer_go_round_and_the_format_reaches_the_model(
    driver: ProbedDriver, upstream: scripted_model.ScriptedModel
) -> None:
    before = len(upstream.chats)
    selection = driver.complete(SELECT)
    answer = driver.complete(ANSWER)
    assert selection.finish_reason == answer.finish_reason == "stop"
    assert json.loads(selection.text)["selectedPages"][0]["path"] == "guide/发布.md"
    assert json.loads(answer.text)["sources"][0]["snippet"] == "发布前必须先通过全部检查并打标签。"
    assert answer.prompt_tokens > 0
    sent = upstream.chats[before:]
    assert [request.schema_name for request in sent] == ["page_selection", "answer"], "one model turn a call, no more"
    assert sent[1].document["response_format"]["json_schema"]["schema"] == ANSWER.schema


def test_the_agent_has_no_tools_and_rules_stay_apart_from_data(
    driver: ProbedDriver, upstream: scripted_model.ScriptedModel
) -> None:
    driver.complete(SELECT)
    sent = upstream.chats[-1]
    assert not sent.document.get("tools")
    assert SELECT.system in sent.message("system")
    assert "发布前必须先通过" not in sent.message("system")
    assert len(sent.body) < 20_000, "the gateway adds little of its own"


def test_the_session_key_reaches_the_gateway_and_a_fresh_one_knows_nothing(
    driver: ProbedDriver, upstream: scripted_model.ScriptedModel
) -> None:
    first = replace(SELECT, session="query-77-1", user="目录：a/第一次.md")
    driver.complete(first)
    driver.complete(replace(first, user="目录：a/第二次.md"))
    assert "第一次" in json.dumps(upstream.chats[-1].document, ensure_ascii=False), "the same key is the same session"
    driver.complete(replace(first, session="query-77-1.r1", user="目录：a/第三次.md"))
    assert "第一次" not in json.dumps(upstream.chats[-1].document, ensure_ascii=False)


def test_a_cut_reply_says_so_twice(driver: ProbedDriver, upstream: scripted_model.ScriptedModel) -> None:
    upstream.play(scripted_model.completion('{"answer": "半截', finish_reason="length"))
    reply = driver.complete(replace(ANSWER, session="query-77-2"))
    assert reply.finish_reason == "length"
    assert reply.text == '{"answer": "半截' + scripted_model.TRUNCATION_LINE


def test_a_server_behind_it_that_refuses_the_format_is_asked_without_and_no_log_holds_a_reply(
    gateway: openclaw_gateway.Gateway, clock: StillClock, upstream: scripted_model.ScriptedModel
) -> None:
    rule = upstream.rule
    upstream.rule = scripted_model.refuse_response_format(rule)
    try:
        other = build_driver(ModelConfig(gateway_url=gateway.url, gateway_token=TOKEN, agent="kb"), clock)
        reply = other.complete(replace(SELECT, session="query-77-3"))
    finally:
        upstream.rule = rule
    assert "guide/发布.md" in reply.text
    log = gateway.log.read_text("utf-8", "replace") + gateway.errors.read_text("utf-8", "replace")
    assert "response_format" in log, "the refusal is what a log is for"
    assert "guide/发布.md" not in log
    assert TOKEN not in log
    assert UPSTREAM_KEY not in log


def test_a_refused_provider_key_cools_down_and_passes_within_the_time_we_wait(
    driver: ProbedDriver, upstream: scripted_model.ScriptedModel
) -> None:
    upstream.token = "another-key-now"
    try:
        with pytest.raises(PermanentError) as refused:
            driver.complete(replace(SELECT, session="query-77-4"))
        refused_at = time.monotonic()
    finally:
        upstream.token = UPSTREAM_KEY
    assert refused.value.code == Code.MODEL_AUTH
    assert "models.providers.*.apiKey" in refused.value.en
    with pytest.raises(TransientError) as cooling:
        driver.complete(replace(SELECT, session="query-77-5"))
    assert cooling.value.retry_after == 90
    time.sleep(refused_at + 90 - time.monotonic())
    assert driver.complete(replace(SELECT, session="query-77-6")).text
