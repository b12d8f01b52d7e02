"""Which driver a configuration means, and what a configuration that cannot work says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.errors import Code, PermanentError
from tasks.ports import ModelCall
from tests.fakes_model import StillClock
from worker.adapters.model.factory import ModelConfig, build_driver

CALL = ModelCall("select", "规则", "资料", "page_selection", {}, "query-1-2", 5.0, question="怎么发布？")


def complaint(config: ModelConfig) -> PermanentError:
    """What every call fails with under a configuration that cannot work."""
    driver = build_driver(config, StillClock())
    assert driver.name == "none"
    with pytest.raises(PermanentError) as caught:
        driver.complete(CALL)
    assert caught.value.code == Code.NO_MODEL
    assert driver.probe()[0].level == "fail"
    driver.close()
    return caught.value


@pytest.mark.parametrize(
    ("config", "name", "endpoint"),
    [
        (ModelConfig(gateway_url="http://gw:1"), "openclaw", "http://gw:1/v1"),
        (ModelConfig(gateway_url="http://gw:1/v1/"), "openclaw", "http://gw:1/v1"),
        (ModelConfig(base_url="http://llm/v1", model="m"), "openai", "http://llm/v1"),
        (ModelConfig(base_url="http://llm/v1/chat/completions", model="m"), "openai", "http://llm/v1"),
        (ModelConfig(base_url="http://llm/api/v3/", model="m"), "openai", "http://llm/api/v3"),
        (ModelConfig(gateway_url="http://gw:1", base_url="http://llm/v1", model="m"), "openclaw", "http://gw:1/v1"),
        (ModelConfig("openai", gateway_url="http://gw:1", base_url="http://llm/v1", model="m"), "openai", "http://llm/v1"),
        (ModelConfig(), "none", ""),
    ],
)  # fmt: skip
def test_openclaw_if_configured_else_the_openai_endpoint_else_none(
    config: ModelConfig, name: str, endpoint: str
) -> None:
    driver = build_driver(config, StillClock())
    assert (driver.name, driver.endpoint) == (name, endpoint)


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (ModelConfig(), "OPENCLAW_GATEWAY_URL"),
        (ModelConfig(), "KBW_LLM_BASE_URL"),
        (ModelConfig("magic"), "KBW_MODEL_DRIVER"),
        (ModelConfig("openclaw"), "OPENCLAW_GATEWAY_URL"),
        (ModelConfig("openai"), "KBW_LLM_BASE_URL"),
        (ModelConfig(base_url="http://llm/v1"), "KBW_LLM_MODEL"),
        (ModelConfig(gateway_url="ftp://gw"), "OPENCLAW_GATEWAY_URL"),
        (ModelConfig(gateway_url="http://gw", agent="a/b"), "KBW_OPENCLAW_AGENT"),
        (ModelConfig(gateway_url="http://gw", gateway_token="two\nlines"), "OPENCLAW_GATEWAY_TOKEN"),
        (ModelConfig(base_url="http://llm/v1", model="m", api_key="密"), "KBW_LLM_API_KEY"),
        (ModelConfig("recorded"), "KBW_RECORDED_REPLIES"),
        (ModelConfig("recorded", recorded_file="/nowhere/replies.yaml"), "/nowhere/replies.yaml"),
        (ModelConfig(gateway_url="http://gw", ca_file="/nowhere/ca.pem"), "certificate"),
        (ModelConfig(gateway_url="http://gw", proxy="nonsense"), "proxy"),
    ],
)
def test_what_is_missing_or_wrong_is_named_in_every_result(config: ModelConfig, setting: str) -> None:
    error = complaint(config)
    assert setting in error.en
    assert "two\nlines" not in error.en + error.zh
    assert "密" not in error.en


def test_a_token_with_a_line_break_at_its_end_is_taken_as_files_have_them() -> None:
    assert build_driver(ModelConfig(gateway_url="http://gw", gateway_token="abc\n"), StillClock()).name == "openclaw"


def test_a_configuration_shows_no_secret() -> None:
    config = ModelConfig(gateway_url="http://gw", gateway_token="sekret", api_key="sekret", proxy="http://u:sekret@p")
    assert "sekret" not in repr(config) + repr(build_driver(config, StillClock()))


# ---------------------------------------------------------------- recorded replies


def recordings(folder: Path, replies: object) -> ModelConfig:
    file = folder / "replies.json"
    file.write_text(json.dumps({"replies": replies}, ensure_ascii=False), "utf-8")
    return ModelConfig("recorded", gateway_url="http://gw", recorded_file=str(file))


def test_a_recorded_reply_is_found_by_question_and_stage(tmp_path: Path) -> None:
    replies = [
        {"question": "怎么发布？", "stage": "select", "reply": {"selectedPages": []}},
        {"question": "怎么发布？", "stage": "answer", "reply": "半截", "finishReason": "length"},
    ]
    driver = build_driver(recordings(tmp_path, replies), StillClock())
    assert driver.name == "recorded"
    assert driver.endpoint == ""
    assert json.loads(driver.complete(CALL).text) == {"selectedPages": []}
    answer = driver.complete(ModelCall(**{**CALL.__dict__, "stage": "answer", "question": " 怎么发布？\n"}))
    assert (answer.text, answer.finish_reason) == ("半截", "length")
    assert driver.probe()[0].level == "warn"


@pytest.mark.parametrize("change", [{"question": "怎么回滚？"}, {"question": "怎么发布"}, {"stage": "answer"}])
def test_any_other_question_has_no_model(tmp_path: Path, change: dict[str, str]) -> None:
    replies = [{"question": "怎么发布？", "stage": "select", "reply": "x"}]
    driver = build_driver(recordings(tmp_path, replies), StillClock())
    with pytest.raises(PermanentError) as caught:
        driver.complete(ModelCall(**{**CALL.__dict__, **change}))
    assert caught.value.code == Code.NO_MODEL
    assert "KBW_MODEL_DRIVER" in caught.value.zh


def test_yaml_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "replies.yaml"
    file.write_text("replies:\n  - question: 怎么发布？\n    stage: select\n    reply: |\n      {}\n", "utf-8")
    driver = build_driver(ModelConfig("recorded", recorded_file=str(file)), StillClock())
    assert driver.complete(CALL).text == "{}\n"


@pytest.mark.parametrize(
    "replies",
    [
        7,
        [7],
        [{"question": "", "stage": "select", "reply": "x"}],
        [{"question": "a", "reply": "x"}],
        [{"question": "a", "stage": "select"}],
        [{"question": "a", "stage": "select", "reply": 7}],
        [{"question": "a", "stage": "select", "reply": "x"}, {"question": " a ", "stage": "select", "reply": "y"}],
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, replies: object) -> None:
    assert "replies.json" in complaint(recordings(tmp_path, replies)).en


def test_broken_yaml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "replies.yaml"
    file.write_bytes(b"replies: [\xff")
    assert "replies.yaml" in complaint(ModelConfig("recorded", recorded_file=str(file))).en
