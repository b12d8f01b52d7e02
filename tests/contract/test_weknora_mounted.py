"""WeKnora as a mounted source keeps to the allowed addresses, over REST and over MCP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tasks.knowledge.found import Found, Status
from tests.fakes_knowledge import environment, spec
from tests.weknora_server import RETRIEVE_KEY, Base, WeknoraServer
from worker.clock import SystemClock
from worker.mounted_weknora import Connect, WeknoraSource, over_mcp, over_rest
from worker.outbound import AllowedHosts, Outbound

CLOCK = SystemClock()
QUESTION = "找一条被当场刁难的素材"
WAYS: dict[str, Connect] = {"weknora_rest": over_rest, "weknora_mcp": over_mcp}


def ask(adapter: str, url: str, allowed: tuple[str, ...], resolve: Callable[..., Any], timeout: int = 20) -> Found:
    outbound = Outbound(AllowedHosts(allowed), CLOCK.monotonic, resolve)
    headers = {"X-API-Key": "{{env.KB_KEY}}"}
    asked = spec(endpoint=url, adapter=adapter, request={"kb_id": "素材库"}, headers=headers, timeout=timeout)
    try:
        source = WeknoraSource(asked, WAYS[adapter], environment(KB_KEY=RETRIEVE_KEY), outbound, CLOCK)
        return source.search(QUESTION)
    finally:
        outbound.close()


@pytest.mark.parametrize("adapter", WAYS)
@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "10.0.0.8", "::1", "fd00::1"])
def test_a_public_name_that_leads_inside_is_not_called(adapter: str, address: str) -> None:
    found = ask(adapter, "https://kb.example.com/api/v1", (), lambda *_: [address])

    assert (found.status, "KBW_KNOWLEDGE_ALLOWED_HOSTS" in found.detail) == (Status.MISCONFIGURED, True)


@pytest.mark.parametrize("adapter", WAYS)
def test_a_look_up_that_hangs_costs_the_deadline_and_no_more(adapter: str) -> None:
    over = threading.Event()

    found = ask(adapter, "https://kb.example.com/api/v1", (), lambda *_: over.wait(60) and [], timeout=1)

    assert (found.status, found.ms < 30_000) == (Status.TIMEOUT, True)
    over.set()


def test_over_rest_the_connection_goes_to_the_address_that_was_checked() -> None:
    looked_up: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"] if len(looked_up) == 1 else ["169.254.169.254"]

    with WeknoraServer() as server:
        server.add(Base("素材库"), {"standard_question": QUESTION, "answers": ["卡片原文"]})
        port = server.url.split(":")[2].split("/")[0]
        found = ask("weknora_rest", f"http://kb.test:{port}/api/v1", (f"kb.test:{port}",), resolve)

    assert ([hit.content for hit in found.hits], looked_up) == (["卡片原文"], ["kb.test"]), found.detail
