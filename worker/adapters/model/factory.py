"""Which driver a configuration means; a setting that cannot work becomes a driver that says so, never a crash."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx

from tasks.ports import Clock, ModelDriver
from worker.adapters.model.absent import AbsentDriver
from worker.adapters.model.chat import ChatDriver
from worker.adapters.model.endpoint import Endpoint, problem_with_token, problem_with_url
from worker.adapters.model.probing import Finding
from worker.adapters.model.recorded import RecordedDriver, RecordingError, load_recordings
from worker.adapters.model.wire import Wire

MAX_REPLY_BYTES = 8 * 1024 * 1024
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_DRIVERS = ("openclaw", "openai", "recorded")


@dataclass(frozen=True)
class ModelConfig:
    """Plain values of the model settings; ``""``: not set. ``gateway_url`` is without ``/v1``, ``base_url`` with it."""

    driver: str = ""
    gateway_url: str = ""
    gateway_token: str = field(default="", repr=False)
    agent: str = "kb"
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    model: str = ""
    recorded_file: str = ""
    proxy: str = field(default="", repr=False)
    ca_file: str = ""
    connect_timeout_s: float = 5.0
    max_reply_bytes: int = MAX_REPLY_BYTES


class ProbedDriver(ModelDriver, Protocol):
    """A driver as the composition root holds it: it can also be looked at, and closed."""

    def probe(self) -> list[Finding]:
        """What ``kbw doctor`` prints."""

    def close(self) -> None:
        """Give connections back."""


class _UnusableError(Exception):
    """A setting cannot work. ``en``/``zh`` name it."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en)
        self.en = en
        self.zh = zh


def build_driver(config: ModelConfig, clock: Clock) -> ProbedDriver:
    """The named driver; without a name OpenClaw if configured, else the OpenAI-compatible endpoint, else none.

    Never raises: what is missing or wrong in the settings is what every call of the returned driver then fails with
    (``NO_MODEL``), so that each job gets a result that says it. ``recorded`` only when it is named.
    """
    try:
        name = config.driver or ("openclaw" if config.gateway_url else "openai" if config.base_url else "")
        if not name:
            return AbsentDriver()
        if name not in _DRIVERS:
            allowed = ", ".join(_DRIVERS)
            raise _UnusableError(
                f"KBW_MODEL_DRIVER names no driver; set it to one of {allowed}, or unset it",
                f"KBW_MODEL_DRIVER 取值不对，无法回答；可用：{allowed}，或不设置",
            )
        if name == "recorded":
            return _recorded(config)
        endpoint = _openclaw(config) if name == "openclaw" else _openai(config)
        return ChatDriver(endpoint, _wire(config, clock), clock)
    except _UnusableError as error:
        return AbsentDriver(error.en, error.zh)


def _openclaw(config: ModelConfig) -> Endpoint:
    url = _url(config.gateway_url, "OPENCLAW_GATEWAY_URL", suffix="/v1")
    if not _AGENT.match(config.agent):
        raise _UnusableError(
            "KBW_OPENCLAW_AGENT is no agent id; set it to the id under agents.entries in the gateway's configuration",
            "KBW_OPENCLAW_AGENT 不是合法的智能体编号，无法回答；请设为网关配置 agents.entries 中的编号",
        )
    return Endpoint(
        name="openclaw",
        base_url=f"{url}/v1",
        model=f"openclaw/{config.agent}",
        token=_token(config.gateway_token, "OPENCLAW_GATEWAY_TOKEN"),
        agent=config.agent,
        url_setting="OPENCLAW_GATEWAY_URL",
        token_setting="OPENCLAW_GATEWAY_TOKEN",  # noqa: S106 the setting's name, not a token
    )


def _openai(config: ModelConfig) -> Endpoint:
    url = _url(config.base_url, "KBW_LLM_BASE_URL", suffix="/chat/completions")
    if not config.model:
        raise _UnusableError(
            "KBW_LLM_MODEL is not set; set it to a model name of the server at KBW_LLM_BASE_URL",
            "未设置 KBW_LLM_MODEL，无法回答；请设为 KBW_LLM_BASE_URL 服务上的模型名称",
        )
    return Endpoint(
        name="openai",
        base_url=url,
        model=config.model,
        token=_token(config.api_key, "KBW_LLM_API_KEY"),
        url_setting="KBW_LLM_BASE_URL",
        token_setting="KBW_LLM_API_KEY",  # noqa: S106 the setting's name, not a token
    )


def _recorded(config: ModelConfig) -> RecordedDriver:
    if not config.recorded_file:
        raise _UnusableError(
            "KBW_MODEL_DRIVER=recorded needs a file of replies; set KBW_RECORDED_REPLIES",
            "KBW_MODEL_DRIVER=recorded 需要预录回复文件；请设置 KBW_RECORDED_REPLIES",
        )
    try:
        return RecordedDriver(config.recorded_file, load_recordings(Path(config.recorded_file)))
    except RecordingError as error:
        raise _UnusableError(
            f"the recorded replies cannot be used: {error}; mend the file of KBW_RECORDED_REPLIES",
            f"预录回复文件无法使用：{error}；请检查 KBW_RECORDED_REPLIES",
        ) from error


def _wire(config: ModelConfig, clock: Clock) -> Wire:
    wire = Wire(
        clock=clock,
        connect_timeout_s=config.connect_timeout_s,
        max_bytes=config.max_reply_bytes,
        proxy=config.proxy,
        ca_file=config.ca_file,
    )
    try:
        if config.proxy or config.ca_file:
            wire.open()  # their faults show now, not at the first question
    except (OSError, ValueError, httpx.InvalidURL) as error:
        raise _UnusableError(
            f"the proxy or the certificate file for the model cannot be used ({type(error).__name__})",
            f"访问模型所用的代理或证书文件不可用（{type(error).__name__}）",
        ) from None
    return wire


def _url(value: str, setting: str, *, suffix: str) -> str:
    """``value`` without trailing slashes and without ``suffix``, which people tend to leave on."""
    if not value:
        raise _UnusableError(f"{setting} is not set; set it", f"未设置 {setting}，无法回答；请设置")
    if problem := problem_with_url(value):
        raise _UnusableError(
            f"{setting} {problem}; set it to an address such as http://127.0.0.1:18789",
            f"{setting} 不是可用的地址，无法回答；请设为形如 http://127.0.0.1:18789 的地址",
        )
    return value.rstrip("/").removesuffix(suffix).rstrip("/")


def _token(value: str, setting: str) -> str:
    token = value.strip()
    if problem := problem_with_token(token):
        raise _UnusableError(f"{setting} {problem}; set it again", f"{setting} 含有非法字符，无法回答；请重新设置")
    return token
