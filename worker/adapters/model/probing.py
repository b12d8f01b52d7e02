"""Looks at a model endpoint without asking the model anything, and says what to mend; for ``kbw doctor``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from worker.adapters.model.endpoint import Endpoint
from worker.adapters.model.error_table import Refusal, as_error
from worker.adapters.model.reading import read_answer
from worker.adapters.model.wire import Answer, Wire, WireError

PROBE_TIMEOUT_S = 10.0
_SWITCH = "set gateway.http.endpoints.chatCompletions.enabled = true in the gateway's configuration"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``cure`` is the line that mends it, ``""`` when nothing is wrong."""

    check: str
    level: Literal["ok", "warn", "fail"]
    message: str
    cure: str = ""


def probe_endpoint(endpoint: Endpoint, wire: Wire) -> list[Finding]:
    """Health (OpenClaw only), then token, chat endpoint and model by ``GET …/models``. Stops at the first failure."""
    findings: list[Finding] = []
    if endpoint.name == "openclaw":
        findings.append(_readiness(endpoint, wire))
    if not any(finding.level == "fail" for finding in findings):
        findings.append(_chat_switch(endpoint, wire))
    if not any(finding.level == "fail" for finding in findings):
        findings.append(_model(endpoint, wire))
    return findings


def _readiness(endpoint: Endpoint, wire: Wire) -> Finding:
    check = "gateway ready"
    answer = _get(endpoint, wire, f"{endpoint.root}/readyz", with_token=False)
    if isinstance(answer, Finding):
        return answer
    if answer.status == 200:
        return Finding(check, "ok", f"{endpoint.host} is ready")
    if answer.status == 503:
        return Finding(check, "fail", f"{endpoint.host} is not ready yet", "wait, or read the gateway's log")
    # an older gateway has no such page; the model list below decides
    return Finding(check, "warn", f"{endpoint.host} has no /readyz (HTTP {answer.status})", "pin openclaw 2026.9.6")


def _chat_switch(endpoint: Endpoint, wire: Wire) -> Finding:
    """``GET`` on the chat address costs no model call: 405 says that it is there, 404 that it is not."""
    check = "chat completions"
    url = f"{endpoint.base_url}/chat/completions"
    answer = _get(endpoint, wire, url, with_token=True)
    if isinstance(answer, Finding):
        return answer
    if answer.status in (401, 403):
        return _refused(endpoint, answer, "token")
    if answer.status == 404 or answer.content_type == "text/html":
        if endpoint.name == "openclaw":
            return Finding(check, "fail", f"{endpoint.host}: the chat completions endpoint is off", _SWITCH)
        return Finding(check, "fail", f"no {url}", f"set {endpoint.url_setting} to an address that ends in /v1")
    return Finding(check, "ok", f"{url} answers")


def _model(endpoint: Endpoint, wire: Wire) -> Finding:
    check = "model"
    answer = _get(endpoint, wire, f"{endpoint.base_url}/models", with_token=True)
    if isinstance(answer, Finding):
        return answer
    if answer.status in (401, 403):
        return _refused(endpoint, answer, "token")
    names = _listed(answer)
    if endpoint.model in names:
        return Finding(check, "ok", f"{endpoint.model} is listed")
    if endpoint.name == "openclaw":
        shown = ", ".join(names[:10]) or "nothing"
        cure = f"set KBW_OPENCLAW_AGENT to one of these, or add agents.entries.{endpoint.agent} to the gateway"
        return Finding(check, "fail", f"{endpoint.host} lists {shown}, not {endpoint.model}", cure)
    # many servers serve models that they do not list
    return Finding(check, "warn", f"{endpoint.host} does not list {endpoint.model}", "check KBW_LLM_MODEL")


def _refused(endpoint: Endpoint, answer: Answer, check: str) -> Finding:
    outcome = read_answer(answer, asked_model=endpoint.model)
    refusal = outcome if isinstance(outcome, Refusal) else Refusal(answer.status)
    error = as_error(Refusal(refusal.status, refusal.kind), endpoint, cooling=False)
    return Finding(check, "fail", error.en, f"set {endpoint.token_setting} to the server's token")


def _get(endpoint: Endpoint, wire: Wire, url: str, *, with_token: bool) -> Answer | Finding:
    headers = endpoint.headers() if with_token else {"Accept": "application/json", "Accept-Encoding": "identity"}
    try:
        return wire.exchange("GET", url, headers, timeout=PROBE_TIMEOUT_S)
    except WireError as error:
        cure = f"start the server, or set {endpoint.url_setting}"
        if error.fault == "certificate":
            cure = "have the server present a certificate of a trusted authority"
        return Finding("reach", "fail", f"{endpoint.host}: {error.detail}", cure)


def _listed(answer: Answer) -> list[str]:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return []
    data = document.get("data") if isinstance(document, dict) else None
    entries = data if isinstance(data, list) else []
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
