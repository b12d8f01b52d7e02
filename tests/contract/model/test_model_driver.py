"""One suite over the model drivers and their fake: what goes out, what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tasks.errors import Code, PermanentError, TransientError
from tasks.ports import ModelDriver, RawReply
from tests import scripted_model as scripted
from tests.fakes_model import FakeModel, StillClock
from tests.model_calls import CALL, DRIVERS, TOKEN, config, failure
from worker.adapters.model.factory import ProbedDriver, build_driver

# ---------------------------------------------------------------- what holds for every driver, the fake included


@pytest.fixture(params=[*DRIVERS, "fake"])
def any_driver(request: pytest.FixtureRequest) -> Iterator[tuple[ModelDriver, Callable[..., None]]]:
    if request.param == "fake":
        fake = FakeModel()
        yield fake, fake.play
        return
    with scripted.ScriptedModel(token=TOKEN) as running:
        built = build_driver(config(request.param, running.url), StillClock())
        yield built, running.play
        built.close()


def test_a_reply_comes_back_untouched(any_driver: tuple[ModelDriver, Callable[..., None]]) -> None:
    driver, play = any_driver
    play(scripted.completion('  {"answer": "好\\n"}  '))
    reply = driver.complete(CALL)
    assert reply == RawReply('  {"answer": "好\\n"}  ', "stop", "scripted-1", 200, 11, 7)


@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
def test_an_unfinished_reply_is_handed_on_with_its_reason(
    any_driver: tuple[ModelDriver, Callable[..., None]], reason: str
) -> None:
    driver, play = any_driver
    play(scripted.completion("半", finish_reason=reason))
    assert driver.complete(CALL).finish_reason == reason


def test_the_appended_truncation_line_stays_for_the_reader(
    any_driver: tuple[ModelDriver, Callable[..., None]],
) -> None:
    driver, play = any_driver
    play(scripted.truncated("半"))
    reply = driver.complete(CALL)
    assert reply.text == f"半{scripted.TRUNCATION_LINE}"
    assert reply.finish_reason == "length"


def test_null_content_is_an_empty_text(any_driver: tuple[ModelDriver, Callable[..., None]]) -> None:
    driver, play = any_driver
    play(scripted.completion(None, finish_reason="content_filter"))
    assert driver.complete(CALL).text == ""


def test_errors_are_typed(any_driver: tuple[ModelDriver, Callable[..., None]]) -> None:
    driver, play = any_driver
    play(scripted.gateway_token_refused(), scripted.error(502, "api_error", "upstream provider error"))
    auth, outage = failure(driver), failure(driver)
    assert (type(auth), auth.code) == (PermanentError, Code.MODEL_AUTH)
    assert (type(outage), outage.code) == (TransientError, Code.MODEL_UNREACHABLE)


# ---------------------------------------------------------------- what is sent


def test_rules_stand_in_the_system_message_and_no_tools_are_offered(
    driver: ProbedDriver, server: scripted.ScriptedModel
) -> None:
    driver.complete(CALL)
    sent = server.chats[0]
    assert sent.document["messages"] == [
        {"role": "system", "content": CALL.system},
        {"role": "user", "content": CALL.user},
    ]
    assert not {"tools", "tool_choice", "functions", "user"} & set(sent.document)
    assert sent.document["stream"] is False
    assert sent.document["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": CALL.schema},
    }


def test_openclaw_is_asked_for_its_agent_in_the_session_of_the_call(
    server: scripted.ScriptedModel, clock: StillClock
) -> None:
    build_driver(config("openclaw", server.url), clock).complete(CALL)
    sent = server.chats[0]
    assert sent.document["model"] == "openclaw/kb"
    assert sent.headers["x-openclaw-session-key"] == "query-12-345"
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN.encode() not in sent.body


def test_other_servers_get_the_model_name_and_no_session(server: scripted.ScriptedModel, clock: StillClock) -> None:
    build_driver(config("openai", server.url), clock).complete(CALL)
    sent = server.chats[0]
    assert sent.document["model"] == "scripted-1"
    assert not any(name.startswith("x-openclaw") for name in sent.headers)


@pytest.mark.parametrize("session", ["agent:main:x", "subagent:1", "cron:1", "hook:1", "a b", "a\nb", "中文", ""])
def test_a_session_that_openclaw_would_misread_is_a_bug_here(
    server: scripted.ScriptedModel, clock: StillClock, session: str
) -> None:
    built = build_driver(config("openclaw", server.url), clock)
    with pytest.raises(ValueError, match="session"):
        built.complete(replace(CALL, session=session))
    assert server.chats == []


def test_a_lone_surrogate_in_the_prompt_does_not_stop_the_call(
    driver: ProbedDriver, server: scripted.ScriptedModel
) -> None:
    driver.complete(replace(CALL, user="a\ud800b"))
    assert server.chats[0].message("user") == "a\ufffdb"


# ---------------------------------------------------------------- response_format


def test_a_refused_response_format_is_left_out_from_then_on(
    driver: ProbedDriver, server: scripted.ScriptedModel
) -> None:
    server.rule = scripted.refuse_response_format(scripted.always(scripted.completion("好")))
    assert driver.complete(CALL).text == "好"
    assert driver.complete(CALL).text == "好"
    assert ["response_format" in chat.document for chat in server.chats] == [True, False, False]


def test_it_is_asked_once_more_only(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    server.rule = scripted.always(scripted.error(400, "invalid_request_error", "response_format is odd"))
    assert failure(driver).code == Code.MODEL_REFUSED
    assert len(server.chats) == 2
    server.rule = scripted.always(scripted.completion("好"))
    driver.complete(CALL)
    assert "response_format" in server.chats[2].document, "the server never worked without it: nothing was learnt"


def test_another_400_is_not_asked_again(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    server.rule = scripted.always(scripted.error(400, "invalid_request_error", "no user message"))
    assert "no user message" in failure(driver).en
    assert len(server.chats) == 1


def test_the_cooperative_model_talks_to_the_driver(driver: ProbedDriver, server: scripted.ScriptedModel) -> None:
    server.rule = scripted.answer_from_pages()
    select = replace(CALL, schema_name="page_selection", user="目录：guide/发布.md guide/发布.md a.md")
    chosen = json.loads(driver.complete(select).text)
    assert [page["path"] for page in chosen["selectedPages"]] == ["guide/发布.md", "a.md"]
    answer = replace(CALL, user="页面 guide/发布.md\n发布前必须先通过全部检查并打标签。\n")
    said = json.loads(driver.complete(answer).text)
    assert said["sources"][0] == {
        "path": "guide/发布.md",
        "title": "guide/发布.md",
        "snippet": "发布前必须先通过全部检查并打标签。",
    }
