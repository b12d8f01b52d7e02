"""The main job with real processes: payload file in, result file and commit out, whatever is killed in between."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.staff import HANG_S
from tests.acceptance.system import API_KEY, PATIENCE_S, TOKEN, System, contents, pid_of, running_system, wait_for
from tests.model_shapes import Reply, Request
from tests.scripted_model import answer_from_pages

pytestmark = pytest.mark.acceptance
STAGES = ("prepare", "select", "fetch", "answer", "apply", "commit", "publish")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running_system(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One tree of processes for all kill tests: it has to survive every one of them."""
    with running_system(tmp_path_factory.mktemp("running")) as found:
        found.up()
        yield found


def test_payload_file_in_result_file_and_commit_out(system: System) -> None:
    up = system.up()
    payload = system.payload(1)
    system.drop(payload)
    result = system.results([payload["taskId"]])[payload["taskId"]]
    assert result["success"], result
    assert result["commitId"] == system.git.head("team", "kb")
    assert system.commits_of(payload["taskId"]) == [result["commitId"]]
    assert result["createdQaPath"] in {entry["path"] for entry in system.catalog()}
    assert f"]({result['createdQaPath']})" in system.git.git("team", "kb", "show", "HEAD:index.md")
    assert list(result["timings"]) == ["prepare", "select", "fetch", "answer", "apply", "commit"]
    assert system.stop(up) == 0
    assert not (system.shared / ".kbw" / "owner.json").exists()


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_killed_in_any_stage_leaves_one_result_and_one_commit(running: System, stage: str) -> None:
    willing = answer_from_pages()

    def hesitating(request: Request) -> Reply:
        time.sleep(0.3)
        return willing(request)

    running.model.rule = hesitating
    running.git.faults.delay_s = 0.2
    payload = running.payload(stage)
    task_id = payload["taskId"]
    running.drop(payload)

    def killed() -> bool:
        for event in running.events(task_id):
            if event.get("event") == "start" and event.get("stage") == stage:
                os.kill(pid_of(event["worker"]), signal.SIGKILL)
                return True
        return False

    wait_for(killed, PATIENCE_S, running.tail)
    result = running.results([task_id])[task_id]
    assert result["success"], result
    wait_for(lambda: any(e.get("event") == "finish" for e in running.events(task_id)), PATIENCE_S, running.tail)
    assert running.commits_of(task_id) == [result["commitId"]]
    assert [entry["path"] for entry in running.catalog()].count(result["createdQaPath"]) == 1


def test_two_trees_on_one_repository_share_commits_and_lose_nothing(system: System, tmp_path: Path) -> None:
    other_home = tmp_path / "other"
    up = system.up()
    with running_system(other_home) as other:
        # a second tree with its own shared directory, caches and Valkey, on the repository of the first
        changes = {name: system.environment[name] for name in ("GITEA_URL",)}
        other.git = system.git
        other.up(**changes)
        for place in (system, other):
            assert place.kbw("pause", "--queue", "kbw.commit").returncode == 0
        payloads = [(system if n % 2 else other, (system if n % 2 else other).payload(n)) for n in range(40)]
        for place, payload in payloads:
            place.drop(payload)
        wait_for(lambda: all(did(place, payload, "checkpoint", "apply") for place, payload in payloads), PATIENCE_S)
        system.git.faults.push_delay_s = HANG_S
        for place in (system, other):
            assert place.kbw("resume", "--queue", "kbw.commit").returncode == 0
        for part in (payloads[::2], payloads[1::2]):  # both are about to push when a person is faster
            wait_for(lambda part=part: any(did(*job, "start", "commit") for job in part), PATIENCE_S)  # type: ignore[misc]
        time.sleep(1.0)
        system.git.commit("team", "kb", {"concepts/foreign.md": "# 外来页面\n".encode()}, message="A person's edit")
        system.git.faults.push_delay_s = 0.0
        results = [place.results([payload["taskId"]])[payload["taskId"]] for place, payload in payloads]
    assert all(result["success"] for result in results), [r["errors"] for r in results if not r["success"]]
    pages = {result["createdQaPath"] for result in results}
    assert len(pages) == 40
    assert pages == {entry["path"] for entry in system.catalog() if entry["path"].startswith("qa/")}
    tree = system.git.git(
        "team", "kb", "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", "HEAD"
    ).splitlines()
    assert pages | {"concepts/foreign.md"} <= set(tree)
    assert all(len(system.commits_of(payload["taskId"])) == 1 for _, payload in payloads)
    assert system.git.counts.pushes < 40
    assert system.stop(up) == 0


def did(system: System, payload: dict[str, Any], event: str, stage: str) -> bool:
    return any((e.get("event"), e.get("stage")) == (event, stage) for e in system.events(payload["taskId"]))


def test_the_tokens_are_nowhere_to_be_found(system: System) -> None:
    system.up()
    payload = system.payload(1, question=f"租约到期之后会怎样？我的令牌是 {TOKEN}")
    system.git.faults.delay_s = 0.1
    system.drop(payload)
    arguments: set[bytes] = set()

    def done() -> bool:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments.add(process.read_bytes())
            except OSError:
                continue
        return system.result(payload["taskId"]) is not None

    wait_for(done, PATIENCE_S, system.tail)
    assert arguments, "no process was seen"
    others = {system.home / "git", system.shared / "payloads"}  # what the backend itself wrote stays as it is
    files = [(path, held) for path, held in contents(system.home) if not others & set(path.parents)]
    assert {system.shared, system.home / "cache"} <= {folder for path, _ in files for folder in path.parents}
    for secret in (TOKEN, API_KEY):
        assert not [line for line in arguments if secret.encode() in line]
        assert not [path for path, held in files if secret.encode() in held]
