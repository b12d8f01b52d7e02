"""What answers of WeKnora's MCP tools mean: a success is one, every failure is told apart by one probe."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.knowledge.found import Status
from tests.fakes_model import StillClock
from worker.adapters.weknora.mcp import WeknoraMcp
from worker.adapters.weknora.results import ToolFault, WeknoraFault

KB, ASKED = "MCN极致事件素材库", "找一条 被质疑的修表师傅 预期反转 老街修表铺 的 钩子 型事件素材"
HIT = {
    "score": 0.6,
    "content": "Q: …",
    "matched_content": "Q: …",
    "chunk_metadata": {"answers": ["卡片原文", "另一份"]},
}
BASES = json.dumps({"success": True, "data": [{"id": "7f0c", "name": KB}]})
SHARED = json.dumps(
    {"success": True, "data": [{"knowledge_base": {"id": "91ab", "name": "别组的库"}, "share_id": "s1"}]}
)
FAILED = ToolFault(Status.BAD_RESPONSE, "the tool failed")


class Tools:
    """A session whose tools answer with a text, or raise."""

    def __init__(self, **answers: str | Exception) -> None:
        self.answers = answers
        self.called: list[tuple[str, dict[str, Any]]] = []

    def call(self, tool: str, arguments: dict[str, Any], *, timeout: float) -> str:
        assert timeout > 0
        self.called.append((tool, arguments))
        answer = self.answers[tool]
        if isinstance(answer, Exception):
            raise answer
        return answer


def searched(
    search: str | Exception, probe: str | Exception = BASES, kb: str = KB, shared: str | Exception = FAILED
) -> tuple[Any, Tools]:
    tools = Tools(hybrid_search=search, list_knowledge_bases=probe, list_shared_knowledge_bases=shared)
    return WeknoraMcp(tools, StillClock()).find(kb, ASKED, timeout=5.0), tools


def test_one_call_with_the_arguments_of_the_contract_and_no_other() -> None:
    found, tools = searched(json.dumps({"success": True, "data": [HIT]}))
    assert (found.status, [hit.content for hit in found.hits]) == (Status.HIT, ["卡片原文"])
    arguments = {"kb_id": KB, "query": ASKED, "match_count": 3, "vector_threshold": 0.5}
    assert tools.called == [("hybrid_search", arguments)]


@pytest.mark.parametrize("more", [{"data": None}, {"data": []}, {"data": None, "error": None}])
def test_success_without_data_is_zero_hits_and_neither_probed_nor_tried_again(more: dict[str, Any]) -> None:
    found, tools = searched(json.dumps({"success": True, **more}))
    assert found.status is Status.ZERO_HIT
    assert len(tools.called) == 1


@pytest.mark.parametrize(
    "failure",
    [
        FAILED,
        "Error executing tool hybrid_search: connection refused",  # servers before 1.1 said so as a success
        "[]",
        json.dumps({"success": False, "error": {"code": 1003, "message": "knowledge base not found"}}),
        json.dumps({"error": "Unauthorized: invalid API key"}),
        json.dumps({"message": "welcome"}),
    ],
)
@pytest.mark.parametrize(
    ("probe", "kb", "status"),
    [
        (BASES, "没有的库", Status.KB_NOT_FOUND),
        (BASES, KB, Status.UNAVAILABLE),
        (BASES, "7F0C", Status.UNAVAILABLE),
        (FAILED, KB, Status.UNAVAILABLE),
        ("Error executing tool list_knowledge_bases", KB, Status.UNAVAILABLE),
        (WeknoraFault(Status.TIMEOUT, "no answer"), KB, Status.TIMEOUT),
    ],
)
def test_a_failure_is_told_apart_by_one_probe(
    failure: str | Exception, probe: str | Exception, kb: str, status: Status
) -> None:
    found, tools = searched(failure, probe, kb)
    assert found.status is status
    more = ["list_shared_knowledge_bases"] if status is Status.KB_NOT_FOUND else []
    assert [tool for tool, _ in tools.called] == ["hybrid_search", "list_knowledge_bases", *more]


@pytest.mark.parametrize(
    ("kb", "shared", "status"),
    [
        ("别组的库", SHARED, Status.UNAVAILABLE),
        ("没有的库", SHARED, Status.KB_NOT_FOUND),
        ("别组的库", FAILED, Status.KB_NOT_FOUND),  # a server without that tool, or a key that may not list
        ("别组的库", WeknoraFault(Status.UNAVAILABLE, "MCP error -32602"), Status.KB_NOT_FOUND),
        ("别组的库", WeknoraFault(Status.TIMEOUT, "no answer"), Status.TIMEOUT),
    ],
)
def test_a_base_that_others_share_is_there_too(kb: str, shared: str | Exception, status: Status) -> None:
    """A search finds shared bases by name: one that failed must not turn the feature off."""
    assert searched(FAILED, BASES, kb, shared)[0].status is status


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.UNAUTHORIZED, Status.MISCONFIGURED])
def test_what_the_session_itself_can_tell_is_not_probed(status: Status) -> None:
    found, tools = searched(WeknoraFault(status, "told"))
    assert found.status is status
    assert len(tools.called) == 1
