"""What a model server's refusal means, as data; must not read responses (``reading.py`` does) or decide on retries.

Rows come from a real OpenClaw 2026.9.6 gateway and from what OpenAI-compatible servers document. Two different 401s
differ only in ``error.type``; a 500 shortly after a refused provider key is the gateway cooling down, not a fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from tasks.errors import Code, PermanentError, TransientError
from worker.adapters.model.endpoint import Endpoint

COOLDOWN_S = 90.0
"""How long OpenClaw answers everything with 500 after its provider refused the key (seen: about 60 s)."""
LONGEST_WAIT_S = 3_600.0


@dataclass(frozen=True)
class Refusal:
    """A server's no. ``kind`` is ``error.type`` (else ``error.code``), or a word of ``reading.read_answer``."""

    status: int
    kind: str = ""
    message: str = ""
    retry_after: float | None = None
    location: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table: the first that fits counts. ``statuses`` empty: any; ``kinds`` empty: any.

    ``en``/``zh`` know ``{host} {status} {url_setting} {token_setting} {location}``. ``only``: this driver's servers.
    """

    statuses: range | tuple[int, ...]
    kinds: tuple[str, ...]
    code: Code
    transient: bool
    en: str
    zh: str
    retry_after: float | None = None
    key_refused: bool = False
    only: str = ""


_OFF_EN = (
    "{host}: the chat completions endpoint is off (HTTP {status}); set gateway.http.endpoints.chatCompletions.enabled"
    " = true in the gateway's configuration, and check {url_setting}"
)
_OFF_ZH = (
    "模型网关 {host} 未开启 chat completions 接口（HTTP {status}）；请在网关配置中设置"
    " gateway.http.endpoints.chatCompletions.enabled = true，并检查 {url_setting}"
)
_BASE_EN = "{host}: no chat completions there (HTTP {status}); {url_setting} is a wrong base URL, it must end in /v1"
_BASE_ZH = "{host} 没有 chat completions 接口（HTTP {status}）；{url_setting} 地址不对，应以 /v1 结尾"
_BUSY_ZH = "模型服务 {host} 暂时不可用（HTTP {status}），稍后重试"
_NOT_CHAT = ("html", "text", "stream", "not_chat")
_LATER = ("rate_limit_error", "rate_limit_exceeded", "overloaded_error")
_BAD_REQUEST = ("invalid_request_error", "invalid_request", "bad_request", "context_length_exceeded")

ROWS: tuple[Row, ...] = (
    Row(
        (401, 200),
        ("unauthorized",),
        Code.MODEL_AUTH,
        transient=False,
        en="{host} refuses our token (HTTP {status}); check {token_setting}",
        zh="模型服务 {host} 拒绝了访问令牌；请检查 {token_setting}",
    ),
    Row(
        (401, 200),
        ("authentication_error",),
        Code.MODEL_AUTH,
        transient=False,
        only="openclaw",
        en="the model provider refuses the key of gateway {host}; mend models.providers.*.apiKey in the gateway's"
        " configuration",
        zh="模型供应商拒绝了网关 {host} 的密钥；请在网关配置的 models.providers.*.apiKey 中更正",
        key_refused=True,
    ),
    Row(
        (401, 403, 407),
        (),
        Code.MODEL_AUTH,
        transient=False,
        en="{host} refuses access (HTTP {status}); check {token_setting}",
        zh="模型服务 {host} 拒绝访问（HTTP {status}）；请检查 {token_setting}",
    ),
    Row(
        (200,),
        ("authentication_error", "permission_error", "invalid_api_key"),
        Code.MODEL_AUTH,
        transient=False,
        en="{host} refuses access; check {token_setting}",
        zh="模型服务 {host} 拒绝访问；请检查 {token_setting}",
    ),
    Row(
        (402, 429, 200),
        ("insufficient_quota", "billing_error"),
        Code.MODEL_REFUSED,
        transient=False,
        en="{host}: the account's quota is used up (HTTP {status})",
        zh="模型服务 {host} 的账户额度已用完",
    ),
    Row(
        (429,),
        (),
        Code.MODEL_UNREACHABLE,
        transient=True,
        en="{host} asks us to slow down (HTTP 429)",
        zh="模型服务 {host} 限流（HTTP 429），稍后重试",
        retry_after=60.0,
    ),
    Row(
        (200,),
        _LATER,
        Code.MODEL_UNREACHABLE,
        transient=True,
        en="{host} asks us to slow down",
        zh="模型服务 {host} 限流，稍后重试",
        retry_after=60.0,
    ),
    Row((404, 405), ("html", "text", ""), Code.NO_MODEL, transient=False, only="openclaw", en=_OFF_EN, zh=_OFF_ZH),
    Row((404, 405), ("html", "text", ""), Code.NO_MODEL, transient=False, en=_BASE_EN, zh=_BASE_ZH),
    Row(
        (404, 405, 410),
        (),
        Code.NO_MODEL,
        transient=False,
        en="{host} does not have this model or address (HTTP {status}); check the model name and {url_setting}",
        zh="模型服务 {host} 没有这个模型或地址（HTTP {status}）；请检查模型名称和 {url_setting}",
    ),
    Row((200,), ("html",), Code.NO_MODEL, transient=False, only="openclaw", en=_OFF_EN, zh=_OFF_ZH),
    Row(
        (200,),
        _NOT_CHAT,
        Code.NO_MODEL,
        transient=False,
        en="{host} answers, but not with a chat completion; {url_setting} is a wrong base URL, it must end in /v1",
        zh="{host} 的回应不是 chat completion；{url_setting} 地址不对，应以 /v1 结尾",
    ),
    Row(
        range(300, 400),
        (),
        Code.NO_MODEL,
        transient=False,
        en="{host} redirects (HTTP {status}) to {location}; redirects are not followed, set {url_setting} to the"
        " final address",
        zh="{host} 重定向到 {location}（HTTP {status}）；不跟随重定向，请把 {url_setting} 设为最终地址",
    ),
    Row(
        (408, 409, 425),
        (),
        Code.MODEL_UNREACHABLE,
        transient=True,
        en="{host} could not answer now (HTTP {status})",
        zh=_BUSY_ZH,
    ),
    Row(
        (413,),
        (),
        Code.MODEL_REFUSED,
        transient=False,
        en="{host}: the request is too large for the server (HTTP 413); lower the KBW_MAX_* limits",
        zh="发给模型服务 {host} 的内容过大（HTTP 413）；请调小 KBW_MAX_* 限额",
    ),
    Row(
        range(400, 500),
        (),
        Code.MODEL_REFUSED,
        transient=False,
        en="{host} refuses the request (HTTP {status})",
        zh="模型服务 {host} 拒绝了这次请求（HTTP {status}）",
    ),
    Row(
        (200,),
        _BAD_REQUEST,
        Code.MODEL_REFUSED,
        transient=False,
        en="{host} refuses the request",
        zh="模型服务 {host} 拒绝了这次请求",
    ),
    Row(
        (),
        ("no_choices",),
        Code.MODEL_UNREACHABLE,
        transient=True,
        en="{host} answered without any choice",
        zh="模型服务 {host} 没有给出回答，稍后重试",
    ),
    Row(
        (),
        ("broken",),
        Code.MODEL_UNREACHABLE,
        transient=True,
        en="{host} sent a broken answer (HTTP {status}): its JSON is cut or damaged",
        zh="模型服务 {host} 的回应不完整，稍后重试",
    ),
    Row(
        range(500, 600),
        (),
        Code.MODEL_UNREACHABLE,
        transient=True,
        en="{host} failed (HTTP {status})",
        zh=_BUSY_ZH,
    ),
    Row(
        (),
        (),
        Code.MODEL_UNREACHABLE,
        transient=True,
        en="{host} reports a failure (HTTP {status})",
        zh=_BUSY_ZH,
    ),
)


def row_for(refusal: Refusal, driver: str) -> Row:
    """The first row that fits; the last one fits everything."""
    return next(row for row in ROWS if _fits(row, refusal, driver))


def as_error(refusal: Refusal, endpoint: Endpoint, *, cooling: bool) -> PermanentError | TransientError:
    """The error to raise. ``cooling``: a provider key was refused within the last :data:`COOLDOWN_S`."""
    row = row_for(refusal, endpoint.name)
    names = {
        "host": endpoint.host,
        "status": refusal.status,
        "url_setting": endpoint.url_setting,
        "token_setting": endpoint.token_setting,
        "location": refusal.location or "another address",
    }
    en, zh = row.en.format(**names), row.zh.format(**names)
    if refusal.message:
        en, zh = f"{en}; the server says: {refusal.message}", f"{zh}；服务器说明：{refusal.message}"
    if not row.transient:
        return PermanentError(row.code, en=en, zh=zh)
    wait = refusal.retry_after if refusal.retry_after is not None else row.retry_after
    if cooling and refusal.status == 500:
        wait = max(wait or 0.0, COOLDOWN_S)
        en += f"; the gateway is cooling down after its provider refused the key, waiting {COOLDOWN_S:.0f} s"
        zh += f"；供应商刚拒绝过网关的密钥，网关冷却中，等待 {COOLDOWN_S:.0f} 秒"
    return TransientError(row.code, en=en, zh=zh, retry_after=None if wait is None else min(wait, LONGEST_WAIT_S))


def _fits(row: Row, refusal: Refusal, driver: str) -> bool:
    return (
        (not row.statuses or refusal.status in row.statuses)
        and (not row.kinds or refusal.kind in row.kinds)
        and (not row.only or row.only == driver)
    )
