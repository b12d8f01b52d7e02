"""What an operator does to a running system, with real processes and the real commands."""

from __future__ import annotations

import itertools
import json
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.acceptance.staff import HANG_S
from tests.acceptance.system import PATIENCE_S, System, kill_server, running_system, wait_for
from tests.model_shapes import Reply, Request, completion
from tests.scripted_model import answer_from_pages
from worker.adapters.job_store import EmbeddedValkey

pytestmark = pytest.mark.acceptance
STAGES = ("prepare", "select", "fetch", "answer", "apply", "commit")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running_system(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One tree of processes for the tests that leave it as they found it."""
    with running_system(tmp_path_factory.mktemp("running")) as found:
        found.up()
        yield found


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path / "redis", token=secrets.token_hex)
    server.start()
    yield server
    server.stop()


class Gate:
    """A model that answers the calls of one stage only while the gate is open; ``after`` of them, and for ``calls``."""

    def __init__(self, stage: str = "", *, after: int = 0, calls: int = 1_000) -> None:
        self.open, self.asked = threading.Event(), threading.Event()
        self._stage, self._held = stage, range(after, after + calls)
        self._number, self._willing = itertools.count(), answer_from_pages()

    def __call__(self, request: Request) -> Reply:
        if self._stage in ("", stage_of(request)) and next(self._number) in self._held:
            self.asked.set()
            self.open.wait(HANG_S)
        return self._willing(request)


def stage_of(request: Request) -> str:
    return "select" if "selection" in request.schema_name else "answer"


def facts(system: System, *arguments: str, code: int = 0) -> Any:
    """What a command prints with ``--json``; fails on another exit code."""
    done = system.kbw(*arguments, "--json")
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def stands(system: System, task_id: str, stage: str) -> bool:
    """Whether the job waits at ``stage``, nobody working on it."""
    return record_of(system).hmget(f"kbw:job:{task_id}", "stage", "state") == [stage, "queued"]


def started(system: System, task_id: str, stage: str) -> bool:
    return any(e.get("event") == "start" and e.get("stage") == stage for e in system.events(task_id))


def over(system: System, task_id: str) -> Callable[[], bool]:
    """Asks the record, which says so last: the journal's line and the result come before."""
    server = record_of(system)
    return lambda: server.hget(f"kbw:job:{task_id}", "state") in ("done", "failed", "cancelled")


def finishes(system: System, task_id: str) -> int:
    return sum(event.get("event") == "finish" for event in system.events(task_id))


def by_operator(system: System, task_id: str, event: str) -> list[dict[str, Any]]:
    found = [line for line in system.events(task_id) if line.get("event") == event]
    assert all(line["actor"].startswith("operator:") and "@" in line["actor"] for line in found)
    return found


# ---------------------------------------------------------------- find out why, and replay


def test_an_operator_finds_out_why_a_job_failed_and_replays_it_to_success(running: System) -> None:
    running.model.rule = lambda _request: completion("I would rather not answer in JSON.")
    jobs = [running.payload(f"why{n}") for n in range(2)]
    ids = [job["taskId"] for job in jobs]
    for job in jobs:
        running.drop(job)
    assert {result["success"] for result in running.results(ids).values()} == {False}
    wait_for(lambda: all(over(running, task_id)() for task_id in ids), PATIENCE_S, running.tail)

    assert "only the first 1 jobs; --limit shows more" in running.kbw("list", "--limit", "1").stderr
    listed = facts(running, "list", "--state", "failed", "--stage", "select")
    assert {job["task_id"] for job in listed} == set(ids)
    code = listed[0]["code"]
    assert {letter["name"] for letter in facts(running, "dlq", "list", "--code", code)} == set(ids)
    story = running.kbw("show", ids[0]).stdout
    assert f"error     {code}:" in story
    assert "to do     look at replies/" in story

    running.model.rule = answer_from_pages()
    planned = facts(running, "replay", "--state", "failed", "--code", code, "--dry-run")
    assert {told["outcome"] for told in planned} == {"would_replay"}
    assert {told["outcome"] for told in facts(running, "replay", ids[0])} == {"replayed"}
    assert {told["outcome"] for told in facts(running, "replay", "--state", "failed", "--code", code)} == {"replayed"}
    wait_for(lambda: all((running.result(task_id) or {})["success"] for task_id in ids), PATIENCE_S, running.tail)
    for task_id in ids:
        assert (
            json.loads((folder(running, task_id) / "attempts" / "0" / "result.json").read_bytes())["errorCode"] == code
        )
        assert [line["stage"] for line in by_operator(running, task_id, "replay")] == ["select"]
        assert len(running.commits_of(task_id)) == 1
    assert facts(running, "dlq", "list", "--code", code) == []


def test_every_line_of_the_log_is_json_to_the_last(system: System) -> None:
    log = system.home / "up.log"
    tree = system.up(KBW_LOG_FORMAT="json")
    wait_for(lambda: log.read_bytes().count(b'"worker.ready"') == 3, PATIENCE_S, system.tail)

    assert system.stop(tree) == 0

    events = [json.loads(line)["event"] for line in log.read_text("utf-8").splitlines()]
    assert events.count("worker.stopped") == 3


def test_a_replay_keeps_a_published_success_unless_it_is_wished_and_never_commits_twice(running: System) -> None:
    running.model.rule = answer_from_pages()
    job = running.payload("again")
    task_id = job["taskId"]
    running.drop(job)
    running.results([task_id])
    wait_for(over(running, task_id), PATIENCE_S, running.tail)
    published = (running.shared / job["resultFile"]).read_bytes()

    facts(running, "replay", task_id)
    wait_for(lambda: finishes(running, task_id) == 2 and over(running, task_id)(), PATIENCE_S, running.tail)
    assert (running.shared / job["resultFile"]).read_bytes() == published
    assert (folder(running, task_id) / "attempts" / "0" / "answer.json").exists()

    facts(running, "replay", task_id, "--publish-again", "--from-stage", "answer")
    wait_for(lambda: finishes(running, task_id) == 3, PATIENCE_S, running.tail)
    replaced = json.loads((running.shared / job["resultFile"]).read_bytes())
    assert replaced["success"]
    assert (folder(running, task_id) / "attempts" / "1" / "result.json").read_bytes() == published
    assert running.commits_of(task_id) == [replaced["commitId"]]
    assert facts(running, "replay", task_id, "--from-stage", "nowhere", code=1)[0]["outcome"] == "refused"


def test_a_refused_stream_entry_is_a_dead_letter_that_can_be_replayed_and_dropped(running: System) -> None:
    server = record_of(running)
    server.xadd("kbw:jobs", {"payload": "{no json"})
    wait_for(lambda: server.xlen("kbw:dead") == 1, PATIENCE_S, running.tail)
    (letter,) = [found for found in facts(running, "dlq", "list") if found["kind"] == "entry"]
    assert letter["code"] == "BAD_PAYLOAD"
    assert facts(running, "dlq", "show", letter["name"])["content"] == "{no json"
    assert facts(running, "dlq", "replay", letter["name"])[0]["outcome"] == "replayed"
    wait_for(
        lambda: [key for key, _ in server.xrange("kbw:dead")] not in ([], [letter["name"]]), PATIENCE_S, running.tail
    )
    (again,) = [found for found in facts(running, "dlq", "list") if found["kind"] == "entry"]
    assert again["name"] != letter["name"]
    assert facts(running, "dlq", "drop", again["name"]) == {again["name"]: True}
    assert facts(running, "dlq", "drop", again["name"], code=1) == {again["name"]: False}
    assert server.xlen("kbw:dead") == 0


# ---------------------------------------------------------------- cancel, pause


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_that_waits_is_cancelled_in_any_stage_and_commits_nothing(running: System, stage: str) -> None:
    queue = {"select": "kbw.llm", "answer": "kbw.llm", "commit": "kbw.commit"}.get(stage, "kbw.io")
    before = {"fetch": "select", "answer": "select", "apply": "answer"}.get(stage, "")
    gate = running.model.rule = Gate(before)
    job = running.payload(f"wait-{stage}")
    task_id = job["taskId"]
    if before:  # the model holds the job one stage before, while the queue behind it is closed
        running.drop(job)
        wait_for(lambda: started(running, task_id, before) and gate.asked.is_set(), PATIENCE_S, running.tail)
    facts(running, "pause", "--queue", queue)
    try:
        if not before:
            running.drop(job)
        gate.open.set()
        wait_for(lambda: stands(running, task_id, stage), PATIENCE_S, running.tail)
        assert facts(running, "cancel", task_id)[0]["outcome"] == "requested"
    finally:
        gate.open.set()
        facts(running, "resume", "--queue", queue)
    result = running.results([task_id])[task_id]
    assert (result["success"], result["errorCode"]) == (False, "CANCELLED")
    assert running.commits_of(task_id) == []
    assert len(by_operator(running, task_id, "cancel")) == 1


@pytest.mark.parametrize("stage", ["select", "answer"])
def test_a_running_model_call_is_cancelled_without_waiting_for_it(running: System, stage: str) -> None:
    gate = running.model.rule = Gate(stage)
    job = running.payload(f"run-{stage}")
    task_id = job["taskId"]
    running.drop(job)
    wait_for(lambda: started(running, task_id, stage) and gate.asked.is_set(), PATIENCE_S, running.tail)
    facts(running, "cancel", task_id)
    result = running.results([task_id])[task_id]
    gate.open.set()
    assert result["errorCode"] == "CANCELLED"


def test_a_commit_that_has_begun_is_finished(running: System) -> None:
    running.model.rule = answer_from_pages()
    job = running.payload("late")
    task_id = job["taskId"]
    running.drop(job)
    wait_for(lambda: started(running, task_id, "answer"), PATIENCE_S, running.tail)
    running.git.faults.delay_s = 1.5
    try:
        wait_for(lambda: started(running, task_id, "commit"), PATIENCE_S, running.tail)
        assert facts(running, "cancel", task_id, code=1)[0]["outcome"] in ("too_late", "over")
    finally:
        running.git.faults.delay_s = 0.0
    result = running.results([task_id])[task_id]
    assert result["success"]
    assert running.commits_of(task_id) == [result["commitId"]]


def test_a_paused_queue_claims_nothing_until_it_is_resumed(running: System) -> None:
    running.model.rule = answer_from_pages()
    facts(running, "pause", "--queue", "kbw.llm")
    jobs = [running.payload(f"pause{n}") for n in range(5)]
    ids = [job["taskId"] for job in jobs]
    try:
        for job in jobs:
            running.drop(job)
        wait_for(lambda: all(stands(running, task_id, "select") for task_id in ids), PATIENCE_S, running.tail)
        backlog = facts(running, "metrics")["kbw_blocked_jobs"]
        assert {"labels": {"reason": "paused"}, "value": 5} in backlog
        assert not any(started(running, task_id, "select") for task_id in ids)
        assert "is paused by an operator" in running.kbw("show", ids[0]).stdout
    finally:
        assert facts(running, "resume", "--queue", "kbw.llm")["paused"] == []
    assert all(result["success"] for result in running.results(ids).values())


def test_a_wrong_gate_is_wrong_usage(running: System) -> None:
    assert running.kbw("pause", "--queue", "kbw.nothing").returncode == 2
    assert running.kbw("pause").returncode == 2
    assert running.kbw("pause", "--endpoint", "http://127.0.0.1:1/v1").returncode == 1


# ---------------------------------------------------------------- losing Redis, restarting, forgetting


def test_redis_killed_and_emptied_amid_fifty_jobs_is_recovered_from_the_folders(
    tmp_path: Path, valkey: EmbeddedValkey
) -> None:
    with running_system(tmp_path / "home", KBW_REDIS_URL=valkey.address.url) as system:
        gate = system.model.rule = Gate("answer", after=20)  # the others are under way until the server is back
        system.up()
        jobs = [system.payload(n) for n in range(50)]
        ids = [job["taskId"] for job in jobs]
        for job in jobs:
            system.drop(job)

        def under_way() -> bool:
            return all(system.events(task_id) for task_id in ids) and sum(finishes(system, i) for i in ids) >= 10

        wait_for(under_way, PATIENCE_S, system.tail)
        record_of(system).set("probe", "of what is forgotten")

        kill_server(valkey)
        early = {i: (system.shared / "results" / f"{i}.json").read_bytes() for i in ids if system.result(i)}
        shutil.rmtree(tmp_path / "redis" / "valkey" / "appendonlydir")
        valkey.restart()
        gate.open.set()
        assert record_of(system).get("probe") is None
        recovered = facts(system, "recover")
        assert recovered["unreadable"] == []

        results = system.results(ids, 2 * PATIENCE_S)
        assert all(result["success"] for result in results.values()), [r["errors"] for r in results.values()]
        assert 10 <= len(early) < 50
        assert {i: (system.shared / "results" / f"{i}.json").read_bytes() for i in early} == early
        assert [len(system.commits_of(task_id)) for task_id in ids] == [1] * 50
        pages = [result["createdQaPath"] for result in results.values()]
        assert sorted(entry["path"] for entry in system.catalog() if entry["path"].startswith("qa/")) == sorted(pages)
        wait_for(lambda: counts(system) == {"done": 50}, PATIENCE_S, lambda: f"{counts(system)}\n{system.tail()}")
        figures = facts(system, "metrics")
        assert figures["kbw_restored_total"][0]["value"] == 50


def test_a_running_fleet_brings_back_by_itself_what_redis_forgot(tmp_path: Path, valkey: EmbeddedValkey) -> None:
    with running_system(tmp_path / "home", KBW_REDIS_URL=valkey.address.url) as system:
        gate = system.model.rule = Gate("answer")
        system.up()
        jobs = [system.payload(n) for n in range(6)]
        ids = [job["taskId"] for job in jobs]
        for job in jobs:
            system.drop(job)
        wait_for(
            lambda: all(started(system, i, "prepare") for i in ids) and gate.asked.is_set(), PATIENCE_S, system.tail
        )
        record_of(system).flushall()
        gate.open.set()
        results = system.results(ids)
        assert all(result["success"] for result in results.values()), results
        assert [len(system.commits_of(task_id)) for task_id in ids] == [1] * 6
        recovered = [event["actor"] for i in ids for event in system.events(i) if event.get("event") == "recover"]
        assert recovered
        assert set(recovered) == {"reconciler"}


def test_a_rolling_restart_of_all_workers_fails_no_job(tmp_path: Path, valkey: EmbeddedValkey) -> None:
    with running_system(tmp_path / "home", KBW_REDIS_URL=valkey.address.url, KBW_SHUTDOWN_S="10") as system:
        classes = ("io", "io", "llm", "llm", "commit")
        system.start("intake", log="intake.log")
        fleet = [start_worker(system, kind, n) for n, kind in enumerate(classes)]
        jobs = [system.payload(n) for n in range(60)]
        ids = [job["taskId"] for job in jobs]
        for n, kind in enumerate(classes):
            fresh = start_worker(system, kind, 10 + n)
            portion = jobs[12 * n : 12 * n + 12]
            gate = system.model.rule = Gate("answer", calls=1)  # more would take all slots from the next jobs
            for job in portion:
                system.drop(job)
            wait_for(lambda: any(started(system, job["taskId"], "select") for job in portion), PATIENCE_S, system.tail)  # noqa: B023  # called at once
            assert not all(system.result(task_id) for task_id in ids[: 12 * n + 12]), "nothing was in flight"
            gate.open.set()
            assert system.stop(fleet[n]) == 0, system.tail()
            assert fresh.poll() is None
        results = system.results(ids, 2 * PATIENCE_S)
        failed = {task_id: result["errors"] for task_id, result in results.items() if not result["success"]}
        assert not failed
        assert [len(system.commits_of(task_id)) for task_id in ids] == [1] * 60
        assert facts(system, "list", "--state", "failed") == []


def test_a_pruned_job_is_forgotten_and_its_late_repeat_still_known(running: System) -> None:
    running.model.rule = answer_from_pages()
    job = running.payload("old")
    task_id = job["taskId"]
    running.drop(job)
    result = running.results([task_id])[task_id]
    wait_for(over(running, task_id), PATIENCE_S, running.tail)
    assert task_id in facts(running, "prune", "--older-than", "0s", "--dry-run")["jobs"]
    assert folder(running, task_id).exists()
    assert task_id in facts(running, "prune", "--older-than", "0s")["jobs"]
    assert not folder(running, task_id).exists()
    assert task_id not in {job["task_id"] for job in facts(running, "list", "--state", "done")}

    repeat = running.home / f"{task_id}.json"
    repeat.write_text(json.dumps(job, ensure_ascii=False), "utf-8")
    assert facts(running, "submit", str(repeat)) == {"taskId": task_id, "state": "done", "known": True}
    repeat.write_text(json.dumps({**job, "question": "租约是什么？"}, ensure_ascii=False), "utf-8")
    refused = running.kbw("submit", str(repeat))
    assert (refused.returncode, "CONFLICT" in refused.stderr) == (1, True)
    assert facts(running, "replay", task_id, code=1)[0]["outcome"] == "refused"
    story = running.kbw("show", task_id)
    assert (story.returncode, "pruned" in story.stdout, result["commitId"] in story.stdout) == (0, True, True)
    assert running.commits_of(task_id) == [result["commitId"]]
    facts(running, "prune", "--older-than", "0s")
    assert not folder(running, task_id).exists()


# ---------------------------------------------------------------- health


def test_a_fleet_that_consumes_nothing_is_not_live(tmp_path: Path, valkey: EmbeddedValkey) -> None:
    with running_system(tmp_path / "home", KBW_REDIS_URL=valkey.address.url, KBW_LIVE_S="2") as system:
        system.start("intake", log="intake.log")
        job = system.payload(1)
        system.drop(job)
        wait_for(lambda: facts(system, "list") != [], PATIENCE_S, system.tail)
        wait_for(lambda: system.kbw("health", "live").returncode == 1, PATIENCE_S)
        assert facts(system, "health", "live", code=1)["reason"] == "nobody takes jobs of class io"
        assert facts(system, "health", "ready")["ready"]
        backlog = facts(system, "metrics")["kbw_backlog"]
        assert {"labels": {"class": "io"}, "value": 1} in backlog
        for n, kind in enumerate(("io", "llm", "commit")):
            start_worker(system, kind, n)
        assert system.results([job["taskId"]])[job["taskId"]]["success"]
        assert facts(system, "health", "live")["live"]
        wait_for(over(system, job["taskId"]), PATIENCE_S, system.tail)
        shutil.rmtree(system.shared / ".kbw")
        assert "shared" in facts(system, "health", "ready", code=1)["reason"]


# ---------------------------------------------------------------- helpers


def folder(system: System, task_id: str) -> Path:
    return system.shared / ".kbw" / "jobs" / task_id


def counts(system: System) -> dict[str, int]:
    found = facts(system, "metrics")["kbw_jobs"]
    return {sample["labels"]["state"]: sample["value"] for sample in found if sample["value"]}


def start_worker(system: System, kind: str, number: int) -> subprocess.Popen[bytes]:
    process = system.start("worker", "--class", kind, "--concurrency", "2", log=f"{kind}{number}.log")
    log = system.home / f"{kind}{number}.log"
    wait_for(lambda: "worker.ready" in log.read_text("utf-8"), PATIENCE_S, system.tail)
    return process


def record_of(system: System) -> redis.Redis:
    """The server itself: polling by command would take a process each time."""
    return record_of_url(system.environment.get("KBW_REDIS_URL") or system.server.url)


def record_of_url(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)
