"""Material retrieval with real processes: WeKnora on, off, empty, slow, without the base; by file, run and command."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.acceptance.system import PATIENCE_S, System, contents, pid_of, running_system, wait_for
from tests.fakes_material import CARD, LEAKING, TRANSFER, node, payload, screen
from tests.model_shapes import Reply, Request, completion
from tests.weknora_server import RETRIEVE_KEY, Base, WeknoraServer

pytestmark = [pytest.mark.acceptance, pytest.mark.enable_socket]
KB, KB_ID = "MCN极致事件素材库", "5d3e0c1a-9b7f-4a52-8c64-2f1e6b0d9a37"  # the id that workers remember
FIRST = "【素材内容 · 来源：极致事件机制检索】"
OFF = FIRST + "\n（检索不可用时此段留空，按 references/素材库/ 源文件填充）"
SENTENCES = ("把对方的外行话一句句拆穿", "你锅都没热透", "先给围观者的脸", "周铁锅")
QUESTION = "找一条 被质疑的修表师傅 预期反转 老街修表铺 的 钩子 型事件素材"


def model_rule(request: Request) -> Reply:
    """Screens by what the card says, transfers without its words."""
    if request.schema_name == "material_rescreen":
        return completion(screen(request.message("user")))
    return completion(json.dumps(TRANSFER, ensure_ascii=False))


@pytest.fixture(scope="module")
def weknora() -> Iterator[WeknoraServer]:
    with WeknoraServer() as server:
        yield server


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, weknora: WeknoraServer) -> Iterator[System]:
    settings = {
        "KBW_WEKNORA_URL": weknora.url,
        "KBW_WEKNORA_API_KEY": RETRIEVE_KEY,
        "KBW_WEKNORA_TIMEOUT_S": "8",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }
    with running_system(tmp_path_factory.mktemp("material"), **settings) as found:
        found.model.rule = model_rule
        found.up()
        yield found
        assert not traces(found), "what any test of this module left of a card"


@pytest.fixture(autouse=True)
def base(weknora: WeknoraServer) -> Base:
    weknora.bases.clear()
    weknora.calls.clear()
    return weknora.add(Base(KB, id=KB_ID), {"standard_question": QUESTION, "answers": [CARD]})


def forms(text: str) -> list[bytes]:
    """A text as it may stand in a file: plain, and escaped as JSON does, once and twice."""
    once = json.dumps(text)[1:-1]
    return [text.encode(), once.encode(), json.dumps(once)[1:-1].encode()]


def traces(system: System) -> list[str]:
    """Where a sentence of a card, or a key, still stands: artefacts, logs, the append-only file, every Redis key."""
    wanted = [form for text in (*SENTENCES, RETRIEVE_KEY) for form in forms(text)]
    files = {str(path): held for path, held in contents(system.home) if "references" not in path.parts}
    assert any("appendonlydir" in name for name in files)
    return [name for name, held in {**files, **redis_values(system)}.items() if any(form in held for form in wanted)]


def redis_values(system: System) -> dict[str, bytes]:
    """Every key with all it holds."""
    told = json.loads((system.home / "state" / "valkey" / "server.json").read_bytes())
    reading = {
        "string": "GET",
        "hash": "HGETALL",
        "list": "LRANGE",
        "set": "SMEMBERS",
        "zset": "ZRANGE",
        "stream": "XRANGE",
    }
    ends = {"list": (0, -1), "zset": (0, -1), "stream": ("-", "+")}
    with redis.Redis(port=told["port"], password=told["password"]) as client:
        found = {}
        for key in client.scan_iter():
            kind = client.type(key).decode()
            if kind in reading:  # a key may be gone by now
                found[repr(key)] = key + pickle.dumps(client.execute_command(reading[kind], key, *ends.get(kind, ())))
        assert found
        return found


def result_of(system: System, number: str, *nodes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    document = payload(*(nodes or (node(),)), number=number, **changes)
    system.drop(document)
    return system.results([document["taskId"]])[document["taskId"]]


def test_on(system: System, weknora: WeknoraServer) -> None:
    result = result_of(system, "on", node(1), node(2, bridge="已有"), node(3, anchor="反转"))
    assert result["success"], result
    assert "机制来源：28325-3" in result["materialContent"]
    assert [n["status"] for n in result["nodes"]] == ["HIT", "SKIPPED", "REFUSED"]
    assert list(result["timings"]) == ["plan", "find", "render"]
    assert len(weknora.searches()) == 1
    assert not traces(system)


def test_empty(system: System, weknora: WeknoraServer, base: Base) -> None:
    base.entries.clear()
    calls = len(system.model.chats)
    result = result_of(system, "empty")
    assert result["nodes"][0]["status"] == "ZERO_HIT"
    assert "机制来源：专业碾压" in result["materialContent"]
    assert len(system.model.chats) == calls, "nothing is invented"


def test_slow(system: System, weknora: WeknoraServer) -> None:
    with weknora.trapped(hang_s=60.0):
        result = result_of(system, "slow")
    assert (result["success"], result["materialContent"]) == (True, OFF)
    assert result["degraded"] == [{"stage": "find", "source": "weknora", "status": "TIMEOUT"}]


def test_without_the_base(system: System, weknora: WeknoraServer) -> None:
    result = result_of(system, "missing", node(1), node(2), kbId="没有的库")
    assert result["materialContent"] == OFF
    assert {n["status"] for n in result["nodes"]} == {"KB_NOT_FOUND"}
    assert not weknora.searches()


def test_a_worker_killed_between_two_nodes_leaves_one_result(system: System, weknora: WeknoraServer) -> None:
    """What was ready before the kill is not searched again; the model is slow enough to be hit in the middle."""

    def slow(request: Request) -> Reply:
        return replace(model_rule(request), delay_s=0.5)

    system.model.rule = slow
    document = payload(node(1), node(2), number="killed")
    task_id = document["taskId"]
    nodes = system.shared / ".kbw" / "jobs" / task_id / "material-nodes.jsonl"
    system.drop(document)
    try:
        wait_for(nodes.exists, PATIENCE_S, system.tail)
        [start] = [e for e in system.events(task_id) if (e["event"], e["stage"]) == ("start", "find")]
        os.kill(pid_of(start["worker"]), signal.SIGKILL)
        result = system.results([task_id])[task_id]
    finally:
        system.model.rule = model_rule
    assert [n["status"] for n in result["nodes"]] == ["HIT", "HIT"]
    assert len(weknora.searches()) <= 3
    assert re.findall("■ 节点(.)", result["materialContent"]) == ["①", "②"]


def test_a_transfer_that_leaks_is_refused(system: System) -> None:
    def leaking(request: Request) -> Reply:
        if request.schema_name == "material_rescreen":
            return completion(screen(request.message("user")))
        return completion(json.dumps(LEAKING, ensure_ascii=False))

    system.model.rule = leaking
    try:
        result = result_of(system, "leak")
    finally:
        system.model.rule = model_rule
    assert (result["nodes"][0]["status"], result["materialContent"]) == ("LEAK", FIRST)


def test_off_with_local_files_by_the_command(system: System, tmp_path: Path) -> None:
    folder = tmp_path / "references" / "素材库"
    folder.mkdir(parents=True)
    source = folder / "市井.md"
    source.write_text(f"# 市井\n\n## 被质疑的修表师傅一类\n{CARD}", "utf-8")
    before = source.read_bytes()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        system.environment["KBW_WEKNORA_URL"] = f"http://127.0.0.1:{probe.getsockname()[1]}/api/v1"
        system.environment["KBW_MATERIAL_DIR"] = str(tmp_path)
        nodes = tmp_path / "nodes.json"
        nodes.write_text(json.dumps({"nodes": [node()]}, ensure_ascii=False), "utf-8")
        done = system.kbw("material", str(nodes))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(FIRST + "\n\n■ 节点① ")
    assert "local_md" in done.stderr
    assert source.read_bytes() == before


def test_a_fleet_without_weknora_searches_the_local_files_and_counts_it(tmp_path: Path) -> None:
    folder = tmp_path / "references" / "素材库"
    folder.mkdir(parents=True)
    (folder / "市井.md").write_text(f"# 市井\n\n## 被质疑的修表师傅一类\n{CARD}", "utf-8")
    with running_system(tmp_path, KBW_MATERIAL_DIR=str(tmp_path)) as system:
        system.model.rule = model_rule
        system.up()
        result = result_of(system, "local", node(1), node(2, anchor="远洋渔船甲板", gapObject="新来的水手长"))
        assert result["nodes"][0] == {"id": "n1", "status": "HIT", "reason": "", "kept": 1, "source": "local_md"}
        assert "机制来源：28325-3" in result["materialContent"]
        assert result["degraded"] == [{"stage": "find", "source": "weknora", "status": "NOT_MOUNTED"}]
        figures = system.kbw("metrics").stdout
        assert 'kbw_material_searches_total{status="NOT_MOUNTED",source="weknora"} 2' in figures
        assert 'kbw_material_searches_total{status="HIT",source="local_md"} ' in figures
        assert not traces(system)


def test_the_job_record_knows_the_other_pipeline(system: System) -> None:
    document = payload(number="shown")
    system.drop(document)
    system.results([document["taskId"]])
    wait_for(lambda: any(e["event"] == "finish" for e in system.events(document["taskId"])), PATIENCE_S, system.tail)
    shown = system.kbw("show", document["taskId"])
    assert shown.returncode == 0, shown.stderr
    unknown = {**system.payload("odd"), "skill": "poetry", "taskId": "poem-codd-modd"}
    unknown["resultFile"] = "results/poem-codd-modd.json"
    system.drop(unknown)
    result = system.results(["poem-codd-modd"])["poem-codd-modd"]
    assert (result["success"], result["errorCode"]) == (False, "UNKNOWN_SKILL")
