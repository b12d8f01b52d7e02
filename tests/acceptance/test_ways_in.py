"""Stream, HTTP and Celery message with real processes: in by any way, one result out, whatever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from celery import Celery

from tests.acceptance.system import PATIENCE_S, System, running_system, wait_for
from tests.ports import free_port
from tests.resp import Resp

pytestmark = pytest.mark.acceptance
HTTP_TOKEN = "http-tok-90cd12"
JOBS, RESULTS, DEAD = "kbw:jobs", "kbw:results", "kbw:dead"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One tree of processes for all tests here, with HTTP on."""
    settings = {"KBW_HTTP_TOKEN": HTTP_TOKEN, "KBW_HTTP_ADDR": f"127.0.0.1:{free_port()}"}
    with running_system(tmp_path_factory.mktemp("ways"), **settings) as system:
        system.up()
        yield system


@pytest.fixture
def redis(running: System) -> Iterator[Resp]:
    client = Resp(running.home / "state")
    yield client
    client.close()


@pytest.fixture
def http(running: System) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {HTTP_TOKEN}"}
    with httpx.Client(base_url=f"http://{running.environment['KBW_HTTP_ADDR']}", headers=headers, trust_env=False) as c:
        c.timeout = PATIENCE_S
        wait_for(lambda: _answers(c), PATIENCE_S, running.tail)
        yield c


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/live").status_code == 200
    except httpx.TransportError:
        return False


def without_file(system: System, number: int | str, **changes: Any) -> dict[str, Any]:
    """A payload that is answered on the way it came."""
    return {k: v for k, v in system.payload(number, **changes).items() if k != "resultFile"}


def told_of(redis: Resp, task_id: str, kind: str = "result") -> list[dict[str, str]]:
    return [entry for entry in redis.entries(RESULTS) if (entry["taskId"], entry["kind"]) == (task_id, kind)]


# ---------------------------------------------------------------- the stream


def test_one_xadd_over_a_plain_socket_and_the_result_on_the_stream(running: System, redis: Resp) -> None:
    payload = without_file(running, "stream1")
    redis.call("XADD", JOBS, "*", "payload", json.dumps(payload, ensure_ascii=False))
    wait_for(lambda: told_of(redis, payload["taskId"]), PATIENCE_S, running.tail)
    (told,) = told_of(redis, payload["taskId"])
    result = json.loads(told["result"])
    assert (told["success"], told["errorCode"]) == ("true", "")
    assert result["success"], result
    assert running.commits_of(payload["taskId"]) == [result["commitId"]]
    kept = (running.shared / ".kbw" / "jobs" / payload["taskId"] / "result.json").read_text("utf-8")
    assert told["result"] == kept, "the same bytes"


def test_a_job_that_came_by_file_is_told_on_the_stream_too(running: System, redis: Resp) -> None:
    payload = running.payload("both")
    running.drop(payload)
    running.results([payload["taskId"]])
    wait_for(lambda: told_of(redis, payload["taskId"]), PATIENCE_S, running.tail)
    in_file = (running.shared / "results" / f"{payload['taskId']}.json").read_text("utf-8")
    assert told_of(redis, payload["taskId"])[0]["result"] == in_file


def test_bad_entries_of_every_kind_are_dead_letters_and_good_ones_go_on(running: System, redis: Resp) -> None:
    bad = [b"", b"no json", b"\xff\xfe\x00", b"[1]", b"[" * 200_000, b"x" * (17 * 1024 * 1024)]
    ids = [redis.call("XADD", JOBS, "*", "payload", content).decode() for content in bad]
    ids.append(redis.call("XADD", JOBS, "*", "nothing", "here").decode())
    incomplete = {"taskId": "query-bad-1", "conversationId": "bad", "messageId": 1, "skill": "kb_query"}
    ids.append(redis.call("XADD", JOBS, "*", "payload", json.dumps(incomplete)).decode())
    good = without_file(running, "behind")
    redis.call("XADD", JOBS, "*", "payload", json.dumps(good))
    wait_for(lambda: told_of(redis, good["taskId"]), PATIENCE_S, running.tail)
    assert [letter["entryId"] for letter in redis.entries(DEAD)] == ids
    assert {letter["errorCode"] for letter in redis.entries(DEAD)} == {"BAD_PAYLOAD"}
    (rejected,) = told_of(redis, "query-bad-1", "rejected")
    assert "question" in json.loads(rejected["errors"])[0]
    assert redis.call("XPENDING", JOBS, "kbw")[0] == 0


def test_an_unknown_skill_and_a_conflict_are_answered(running: System, redis: Resp) -> None:
    unknown = without_file(running, "skill", skill="dance")
    redis.call("XADD", JOBS, "*", "payload", json.dumps(unknown))
    first = without_file(running, "twice")
    redis.call("XADD", JOBS, "*", "payload", json.dumps(first))
    redis.call("XADD", JOBS, "*", "payload", json.dumps({**first, "question": "别的问题？"}))
    wait_for(lambda: told_of(redis, unknown["taskId"]) and told_of(redis, first["taskId"]), PATIENCE_S, running.tail)
    wait_for(lambda: told_of(redis, first["taskId"], "rejected"), PATIENCE_S, running.tail)
    assert told_of(redis, unknown["taskId"])[0]["errorCode"] == "UNKNOWN_SKILL"
    assert told_of(redis, first["taskId"], "rejected")[0]["errorCode"] == "CONFLICT"
    assert told_of(redis, first["taskId"])[0]["success"] == "true"


def test_two_hundred_entries_with_repeats_and_a_killed_intake_give_each_result_once(
    running: System, redis: Resp
) -> None:
    payloads = [
        without_file(running, f"many{n}", answerPolicy={"writeHighValueAnswerToQa": n % 4 == 0}) for n in range(50)
    ]
    entries = [json.dumps(payload) for payload in payloads] * 4
    random.Random(7).shuffle(entries)
    before = redis.call("XLEN", DEAD)
    kills = 0
    for number, entry in enumerate(entries):
        redis.call("XADD", JOBS, "*", "payload", entry)
        if number % 50 == 25:
            kills += _kill_intake(running, redis)
    ids = {payload["taskId"] for payload in payloads}
    wait_for(
        lambda: (
            ids <= {told["taskId"] for told in redis.entries(RESULTS)} and redis.call("XPENDING", JOBS, "kbw")[0] == 0
        ),
        PATIENCE_S,
        lambda: f"open: {ids - {told['taskId'] for told in redis.entries(RESULTS)}}\n{running.tail()}",
    )
    assert kills == 4
    for task_id in ids:
        told = told_of(redis, task_id)
        assert {entry["success"] for entry in told} == {"true"}, told[0]
        assert len({entry["result"] for entry in told}) == 1, "repeats are the same bytes"
        assert told_of(redis, task_id, "rejected") == []
        commits = running.commits_of(task_id)
        assert commits == ([json.loads(told[0]["result"])["commitId"]] if commits else [])
    assert sum(bool(running.commits_of(task_id)) for task_id in ids) == 13
    assert redis.call("XLEN", DEAD) == before


def _kill_intake(system: System, redis: Resp) -> int:
    """SIGKILL the intake while it works: once it has entries in hand, or at once when it is too fast for that."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [pid for pid in _children(system.processes[0].pid) if "intake" in _command(pid)]
        return bool(found)

    wait_for(there, PATIENCE_S, system.tail)
    wait_for(lambda: listens(redis), PATIENCE_S, system.tail)
    limit = time.monotonic() + 2.0
    while redis.call("XPENDING", JOBS, "kbw")[0] == 0 and time.monotonic() < limit:
        time.sleep(0.001)
    os.kill(found[0], signal.SIGKILL)
    return 1


def listens(redis: Resp) -> bool:
    """Whether an intake has made its consumer group."""
    try:
        return bool(redis.call("XINFO", "GROUPS", JOBS))
    except RuntimeError:  # no such key
        return False


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


# ---------------------------------------------------------------- HTTP


def test_http_takes_a_job_and_gives_its_result(running: System, http: httpx.Client) -> None:
    payload = without_file(running, "http1")
    assert http.post("/jobs", json=payload).status_code == 202
    assert http.post("/jobs", json=payload).status_code == 200
    assert http.post("/jobs", json={**payload, "question": "别的？"}).status_code == 409
    path = f"/jobs/{payload['taskId']}"
    wait_for(lambda: http.get(path).json()["result"], PATIENCE_S, running.tail)
    wait_for(lambda: http.get(path).json()["state"] == "done", PATIENCE_S, running.tail)
    result = http.get(path).json()["result"]
    assert result["success"], result
    assert running.commits_of(payload["taskId"]) == [result["commitId"]]
    assert payload["taskId"] in [job["taskId"] for job in http.get("/jobs?state=done&limit=500").json()["jobs"]]


def test_http_needs_its_token_and_probes_do_not(running: System, http: httpx.Client) -> None:
    with httpx.Client(base_url=http.base_url, trust_env=False, timeout=PATIENCE_S) as stranger:
        assert stranger.post("/jobs", json=without_file(running, "no")).status_code == 401
        assert stranger.get("/jobs").status_code == 401
        for path in ("/live", "/ready", "/metrics"):
            assert stranger.get(path).status_code == 200, path
            assert HTTP_TOKEN not in stranger.get(path).text


def test_without_a_token_http_is_off(tmp_path: Path) -> None:
    port = free_port()
    with running_system(tmp_path, KBW_HTTP_ADDR=f"127.0.0.1:{port}") as system:
        up = system.up()
        payload = system.payload(1)
        system.drop(payload)
        system.results([payload["taskId"]])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=2.0)
        assert system.stop(up) == 0


def test_a_tree_with_http_stops_cleanly_under_a_client_that_stays(tmp_path: Path) -> None:
    port = free_port()
    with running_system(tmp_path, KBW_HTTP_TOKEN=HTTP_TOKEN, KBW_HTTP_ADDR=f"127.0.0.1:{port}") as system:
        up = system.up()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_for(lambda: _answers(client), PATIENCE_S, system.tail)
            with socket.create_connection(("127.0.0.1", port)) as staying:
                staying.sendall(b"POST /jobs HTTP/1.1\r\nHost: x\r\n")
                assert system.stop(up) == 0


# ---------------------------------------------------------------- Celery, and a server that forgets everything


def test_the_celery_message_is_a_way_in(running: System, redis: Resp) -> None:
    sender = Celery("sender", broker=running.server.broker_url, set_as_current=False)
    sender.conf.broker_transport_options = {"global_keyprefix": "kbw:mq:"}
    payload = without_file(running, "celery")
    sender.send_task("kbw.submit", args=[payload], queue="kbw.io")
    wait_for(lambda: told_of(redis, payload["taskId"]), PATIENCE_S, running.tail)
    assert told_of(redis, payload["taskId"])[0]["success"] == "true"


def test_after_redis_was_emptied_new_jobs_run_and_old_ones_are_not_run_again(running: System, redis: Resp) -> None:
    old, new = without_file(running, "before"), without_file(running, "after")
    redis.call("XADD", JOBS, "*", "payload", json.dumps(old))
    wait_for(lambda: told_of(redis, old["taskId"]), PATIENCE_S, running.tail)
    first = told_of(redis, old["taskId"])[0]["result"]
    wait_for(lambda: any(e.get("event") == "finish" for e in running.events(old["taskId"])), PATIENCE_S, running.tail)
    redis.call("FLUSHALL")
    redis.call("XADD", JOBS, "*", "payload", json.dumps(old))
    redis.call("XADD", JOBS, "*", "payload", json.dumps(new))
    wait_for(lambda: told_of(redis, old["taskId"]) and told_of(redis, new["taskId"]), PATIENCE_S, running.tail)
    assert {told["result"] for told in told_of(redis, old["taskId"])} == {first}
    assert len(running.commits_of(old["taskId"])) == 1
    assert len(running.commits_of(new["taskId"])) == 1
