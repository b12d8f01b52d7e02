"""What the model tests share: one call, one configuration for each driver, and how a failing call is looked at."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from tasks.errors import JobError
from tasks.ports import ModelCall, ModelDriver
from worker.adapters.model.factory import ModelConfig

TOKEN = "sekret-token-0123456789"
QUESTION = "知识库的发布流程是什么？"
DRIVERS = ("openclaw", "openai")
SWITCH = "gateway.http.endpoints.chatCompletions.enabled = true"
CALL = ModelCall(
    stage="answer",
    system="只依据给出的页面回答",
    user=f"问题：{QUESTION}",
    schema_name="answer",
    schema={"type": "object", "properties": {"answer": {"type": "string"}}},
    session="query-12-345",
    timeout=10.0,
    question=QUESTION,
)


def config(driver: str, url: str, **more: Any) -> ModelConfig:
    """A configuration for ``driver`` at a scripted server."""
    if driver == "openclaw":
        return ModelConfig(gateway_url=url, gateway_token=TOKEN, agent="kb", **more)
    return ModelConfig(base_url=f"{url}/v1", api_key=TOKEN, model="scripted-1", **more)


def failure(driver: ModelDriver, call: ModelCall = CALL) -> JobError:
    """The error of a call that must fail; neither it nor its traceback holds a secret or the prompt."""
    with pytest.raises(JobError) as caught:
        driver.complete(call)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caught.value.zh
    assert TOKEN not in shown
    assert QUESTION not in shown
    assert caught.value.zh
    return caught.value
