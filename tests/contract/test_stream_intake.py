"""The stream as a way in and out keeps its promises on a real server (CONTRACT §3.2, §4.7)."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tasks.contract.payload import read_payload
from tasks.contract.trace import is_fresh
from tasks.errors import TransientError
from tests.acceptance.system import kill_server
from tests.ways_in_world import SECRET, WaysIn, payload
from worker.adapters.job_store import EmbeddedValkey

NOW = 0.01
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def world(server_url: str, tmp_path: Path) -> WaysIn:
    return WaysIn(server_url, tmp_path)


def take_all(world: WaysIn, name: str = "c1", **changes: Any) -> int:
    """Rounds until the stream is empty; how many entries were taken."""
    consumer, taken = world.consumer(name, **changes), 0
    while number := consumer.round(Event(), block_s=NOW):
        taken += number
    return taken


def kept(world: WaysIn, task_id: str) -> dict[str, Any] | None:
    data = world.folders.open(task_id).read("payload.json")
    return json.loads(data) if data else None


# ---------------------------------------------------------------- a good entry


def test_an_entry_becomes_a_job_whose_payload_is_on_disk_and_is_acknowledged(world: WaysIn) -> None:
    world.consumer().round(Event(), block_s=NOW)  # makes the group
    entry_id = world.add(payload(1))
    assert take_all(world) == 1
    record = world.records.views.get("query-c1-m1")
    assert record is not None
    assert (record.state, record.source) == ("queued", f"stream:{entry_id}")
    assert kept(world, "query-c1-m1") == payload(1)
    assert world.woken == [("query-c1-m1", "prepare")]
    assert world.pending() == 0
    assert (world.dead(), world.results()) == ([], [])


def test_what_was_sent_before_any_intake_ran_counts(world: WaysIn) -> None:
    world.add(payload(1))
    assert take_all(world) == 1
    assert world.records.views.get("query-c1-m1")


def test_other_fields_of_an_entry_do_no_harm_and_a_trace_is_kept(world: WaysIn) -> None:
    world.add(payload(1), traceparent=TRACE, sender="java")
    world.add(payload(2, traceparent=TRACE))
    world.add(payload(3), traceparent="not a trace; DROP")
    take_all(world)
    traces = [world.records.views.get(f"query-c{n}-m{n}").traceparent for n in (1, 2, 3)]  # type: ignore[union-attr]
    assert traces[:2] == [TRACE, TRACE]
    assert is_fresh(traces[2])


def test_a_payload_that_says_one_thing_twice_is_refused_by_name(world: WaysIn) -> None:
    twice = json.dumps(payload(1))[:-1] + ', "question": "另一个？"}'
    world.add(twice.encode())
    take_all(world)
    (told,) = world.results()
    assert (told["kind"], told["errorCode"]) == ("rejected", "BAD_PAYLOAD")
    assert "question 出现两次" in told["errors"]
    assert world.records.views.get("query-c1-m1") is None


def test_a_refusal_is_told_with_the_trace_of_its_sender(world: WaysIn) -> None:
    world.add(payload(1), traceparent=TRACE)
    world.add(payload(1, question="另一个？"), traceparent=TRACE)
    world.add(payload(2, question=" ", traceparent=TRACE))
    take_all(world)
    told = world.results()
    assert [entry["errorCode"] for entry in told] == ["CONFLICT", "BAD_PAYLOAD"]
    assert {entry["traceparent"] for entry in told} == {TRACE} == {json.loads(e["result"])["traceparent"] for e in told}


def test_a_repeat_of_an_open_job_is_the_same_job(world: WaysIn) -> None:
    for _ in range(3):
        world.add(payload(1))
    take_all(world)
    assert world.records.views.counts()["queued"] == 1
    assert world.pending() == 0


def test_a_repeat_of_a_finished_job_gets_the_same_bytes_once_more(world: WaysIn) -> None:
    world.add(payload(1))
    take_all(world)
    document = world.finish("query-c1-m1")
    world.add(payload(1))
    take_all(world)
    (told,) = world.results()
    assert told == {
        "taskId": "query-c1-m1",
        "kind": "result",
        "success": "true",
        "errorCode": "",
        "result": document.decode(),
    }
    assert world.pending() == 0


# ---------------------------------------------------------------- conflict


def test_a_conflict_is_told_and_leaves_the_first_job_untouched(world: WaysIn) -> None:
    world.add(payload(1))
    take_all(world)
    before = world.records.views.get("query-c1-m1")
    second = world.add(payload(1, question="另一个问题？", resultFile="evil.json"))
    take_all(world)
    (told,) = world.results()
    assert (told["taskId"], told["kind"], told["success"], told["errorCode"]) == (
        "query-c1-m1", "rejected", "false", "CONFLICT",
    )  # fmt: skip
    assert told["entryId"] == second
    result = json.loads(told["result"])
    assert (result["success"], result["errorCode"], result["errors"]) == (False, "CONFLICT", json.loads(told["errors"]))
    assert "已存在且内容不同" in result["errors"][0]
    assert world.records.views.get("query-c1-m1") == before
    assert kept(world, "query-c1-m1") == payload(1)
    assert not (world.shared / "evil.json").exists()
    assert world.dead() == []
    assert world.pending() == 0
    assert len(list((world.shared / ".kbw" / "rejected").glob("query-c1-m1-*.json"))) == 1


# ---------------------------------------------------------------- bad entries

BAD = {
    "no JSON": b"hello",
    "half a JSON": b'{"taskId": "query-c1-m1"',
    "not UTF-8": b'{"taskId": "\xff\xfe"}',
    "an array": b"[]",
    "a text": b'"query-c1-m1"',
    "null": b"null",
    "empty": b"",
    "NaN": b'{"taskId": "query-c1-m1", "deadlineSeconds": NaN}',
    "without end": b"[" * 100_000,
    "a number of 5,000 digits": b'{"a": ' + b"9" * 5_000 + b"}",
    "no task": b"{}",
    "an id with a path": json.dumps(payload(1, taskId="../../etc/passwd")).encode(),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD.keys())
def test_a_bad_entry_is_a_dead_letter_at_once_and_never_comes_back(world: WaysIn, content: bytes) -> None:
    entry_id = world.add(content)
    world.add(payload(2))
    take_all(world, idle_s=0.0)
    (letter,) = world.dead()
    assert (letter["entryId"], letter["errorCode"], letter["taskId"]) == (entry_id, "BAD_PAYLOAD", "")
    assert letter["reason"]
    assert letter["bytes"] == str(len(content))
    assert world.results() == [], "no taskId can be told: nobody would know whom it concerns"
    assert world.pending() == 0
    assert world.records.views.get("query-c2-m2"), "the good entry behind it is taken"


def test_an_entry_without_payload_field_is_a_dead_letter_that_shows_what_was_sent(world: WaysIn) -> None:
    world.redis.xadd(world.streams.jobs, {b"body": b"{}", b"x": b"\xff"})
    take_all(world)
    (letter,) = world.dead()
    assert "payload" in letter["reason"]
    assert letter["content"] == "body={}\nx=\ufffd"


def test_a_payload_that_names_its_task_is_answered_too(world: WaysIn) -> None:
    bad = payload(1)
    del bad["question"]
    entry_id = world.add(bad)
    take_all(world)
    (letter,), (told,) = world.dead(), world.results()
    assert letter["taskId"] == "query-c1-m1"
    assert (told["taskId"], told["kind"], told["errorCode"], told["entryId"]) == (
        "query-c1-m1", "rejected", "BAD_PAYLOAD", entry_id,
    )  # fmt: skip
    assert "question" in json.loads(told["errors"])[0]
    assert world.records.views.get("query-c1-m1") is None


def test_too_large_a_payload_is_a_dead_letter_of_bounded_size(world: WaysIn) -> None:
    limit = 16 * 1024 * 1024
    small = json.dumps(payload(1)).encode()
    world.add(small[:-1] + b" " * (limit - len(small)) + b"}")
    world.add(json.dumps(payload(2)).encode() + b" " * limit)
    take_all(world)
    assert world.records.views.get("query-c1-m1"), "exactly 16 MiB are taken"
    (letter,) = world.dead()
    assert "16 MiB" in letter["reason"]
    assert len(letter["content"]) <= 4_000
    assert world.records.views.get("query-c2-m2") is None


def test_no_secret_reaches_dead_letters_or_results(world: WaysIn) -> None:
    world.add(b"x" * 3_990 + SECRET.encode() + b" is no JSON")
    world.add(payload(1, question=f"{SECRET}?", deadlineSeconds=f"{SECRET}"))
    take_all(world)
    assert len(world.dead()) == 2
    told = json.dumps(world.dead() + world.results(), ensure_ascii=False)
    assert not [n for n in range(5, len(SECRET) + 1) if SECRET[:n] in told]


# ---------------------------------------------------------------- dying consumers, poison, patience


def test_entries_of_a_dead_consumer_are_taken_over_once_they_stood_idle(world: WaysIn) -> None:
    for number in range(5):
        world.add(payload(number))
    world.streams.read("dead", count=8, block_s=NOW)  # makes the group
    assert len(world.streams.read("dead", count=8, block_s=1.0)) == 5
    assert take_all(world, "alive", idle_s=30.0) == 0, "the other one may still be at work"
    assert take_all(world, "alive", idle_s=0.0) == 5
    assert world.pending() == 0
    assert world.records.views.counts()["queued"] == 5


def test_a_dead_consumers_entry_is_found_behind_many_living_ones(world: WaysIn) -> None:
    world.streams.read("busy", count=1, block_s=NOW)
    for number in range(40):
        world.add(payload(number))
    world.streams.read("busy", count=39, block_s=1.0)
    (dead,) = world.streams.read("dead", count=8, block_s=1.0)
    world.redis.xclaim(world.streams.jobs, "kbw", "dead", 0, [dead.entry_id], idle=600_000, justid=True)
    found = world.streams.reclaim("alive", idle_s=300.0)
    assert found is not None
    assert found.entry_id == dead.entry_id


def test_an_entry_that_kills_whoever_takes_it_is_given_up_and_takes_no_other_with_it(world: WaysIn) -> None:
    world.streams.read("victim", count=1, block_s=NOW)
    poison, innocent = world.add(payload(1)), world.add(payload(2))
    assert len(world.streams.read("victim-0", count=8, block_s=1.0)) == 2
    for number in range(1, 4):  # each takes it and dies before it can say a word
        taken = world.streams.reclaim(f"victim-{number}", idle_s=0.0)
        assert taken is not None
        assert (taken.entry_id, taken.deliveries) == (poison, number + 1)
    take_all(world, "alive", idle_s=0.0, max_deliveries=4)
    (letter,) = world.dead()
    assert (letter["entryId"], letter["errorCode"]) == (poison, "INTERNAL")
    assert [told["taskId"] for told in world.results()] == ["query-c1-m1"]
    record = world.records.views.get("query-c2-m2")
    assert record is not None
    assert record.source == f"stream:{innocent}"
    assert world.pending() == 0


def test_while_the_share_is_away_entries_wait_and_none_is_given_up(world: WaysIn, tmp_path: Path) -> None:
    away = tmp_path.with_name(tmp_path.name + "-away")
    tmp_path.rename(away)
    world.streams.read("first", count=1, block_s=NOW)  # makes the group
    for number in range(3):
        world.add(payload(number))
    stop = Event()
    consumer = world.consumer(idle_s=0.3, max_deliveries=2)
    thread = Thread(target=consumer.run, args=(stop,))
    thread.start()
    try:
        limit = time.monotonic() + 60
        while not world.pending():
            assert time.monotonic() < limit
        began = time.monotonic()
        while time.monotonic() - began < 1.0 or idle_s(world) > (time.monotonic() - began) / 2:
            assert time.monotonic() < limit, "the entries are not held"
            time.sleep(0.05)
        assert world.dead() == []
        away.rename(tmp_path)
        limit = time.monotonic() + 60
        while world.records.views.counts()["queued"] < 3:
            assert time.monotonic() < limit
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join(60)
    assert world.dead() == []
    assert world.pending() == 0


def idle_s(world: WaysIn) -> float:
    """How long ago somebody had any of the entries in hand, at most."""
    rows = world.redis.xpending_range(world.streams.jobs, "kbw", "-", "+", 100)
    return max((float(row["time_since_delivered"]) for row in rows), default=0.0) / 1000


def test_an_entry_that_cannot_be_decided_now_holds_up_no_other(world: WaysIn) -> None:
    jobs = world.shared / ".kbw" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "query-c1-m1").write_text("in the way of the job's folder")
    for number in range(1, 4):
        world.add(payload(number))
    consumer = world.consumer(idle_s=1.0)
    consumer.round(Event(), block_s=NOW)  # makes the group
    consumer.round(Event(), block_s=NOW)
    assert [bool(world.records.views.get(f"query-c{n}-m{n}")) for n in (1, 2, 3)] == [False, True, True]
    assert world.pending() == 1
    (jobs / "query-c1-m1").unlink()
    limit = time.monotonic() + 60
    while world.records.views.get("query-c1-m1") is None:
        consumer.round(Event(), block_s=0.1)
        assert time.monotonic() < limit
    assert world.pending() == 0
    assert world.dead() == []


@pytest.mark.parametrize("result_file", ["gone/r.json", "../outside.json", "r.txt"])
def test_a_repeat_whose_result_file_cannot_be_written_is_answered_on_the_stream(
    world: WaysIn, result_file: str
) -> None:
    world.add(payload(1))
    take_all(world)
    document = world.finish("query-c1-m1")
    world.add(payload(1, resultFile=result_file))
    take_all(world)
    told = world.results()
    assert {(entry["kind"], entry["result"]) for entry in told} == {("result", document.decode())}
    assert world.dead() == []
    assert world.pending() == 0


def test_an_emptied_server_gets_its_group_again(world: WaysIn) -> None:
    world.add(payload(1))
    take_all(world)
    world.redis.delete(*world.redis.keys(f"{world.prefix}*"))
    world.add(payload(2))
    assert take_all(world) == 1
    assert world.records.views.get("query-c2-m2")


def test_a_consumer_survives_the_restart_of_its_server(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path / "state", token=secrets.token_hex)
    shared = tmp_path / "shared"
    shared.mkdir()
    world = WaysIn(server.start().url, shared)
    stop = Event()
    thread = Thread(target=world.consumer().run, args=(stop,))
    thread.start()
    try:
        world.add(payload(1))
        _wait_for_job(world, "query-c1-m1")
        kill_server(server)
        server.restart()
        world.add(payload(2))
        _wait_for_job(world, "query-c2-m2")
    finally:
        stop.set()
        thread.join(60)
        server.stop()
    assert not thread.is_alive()


def _wait_for_job(world: WaysIn, task_id: str) -> None:
    limit = time.monotonic() + 60
    while world.records.views.get(task_id) is None:
        assert time.monotonic() < limit, task_id
        time.sleep(0.05)


# ---------------------------------------------------------------- the stream does not grow


def test_acknowledged_entries_go_and_others_stay(world: WaysIn) -> None:
    world.streams.read("c1", count=1, block_s=NOW)
    for number in range(10):
        world.add(payload(number))
    held = world.streams.read("slow", count=1, block_s=1.0)
    take_all(world)
    assert world.streams.tidy() == 0, "the first entry is still in somebody's hands"
    world.streams.acknowledge(held[0].entry_id)
    assert world.streams.tidy() == 9
    assert world.redis.xlen(world.streams.jobs) == 1


def test_another_groups_entries_are_not_trimmed_under_it(world: WaysIn) -> None:
    world.redis.xgroup_create(world.streams.jobs, "audit", id="0", mkstream=True)
    for number in range(5):
        world.add(payload(number))
    take_all(world)
    assert world.streams.tidy() == 0
    assert len(world.redis.xreadgroup("audit", "a", {world.streams.jobs: ">"})[0][1]) == 5


# ---------------------------------------------------------------- results out


def test_a_result_that_has_no_file_is_on_the_stream(world: WaysIn) -> None:
    world.add(payload(1))
    take_all(world)
    world.intake.sink.deliver(read_payload(payload(1)), "query-c1-m1", b'{"success": false, "errorCode": "NO_MODEL"}')
    (told,) = world.results()
    assert (told["success"], told["errorCode"], told["kind"]) == ("false", "NO_MODEL", "result")


def test_a_share_that_is_gone_keeps_no_result_from_the_stream_and_does_not_fill_it(world: WaysIn) -> None:
    document = b'{"success": true, "errorCode": ""}'
    asked = read_payload(payload(1, resultFile="gone/r.json"))
    for _ in range(5):
        with pytest.raises(TransientError):
            world.intake.sink.deliver(asked, "query-c1-m1", document)
    assert len(world.results()) == 1
    (world.shared / "gone").mkdir()
    world.intake.sink.deliver(asked, "query-c1-m1", document)
    assert (world.shared / "gone" / "r.json").read_bytes() == document
    assert {told["result"] for told in world.results()} == {document.decode()}


# ---------------------------------------------------------------- the Celery message


def test_the_celery_message_ends_in_the_same_accept(world: WaysIn) -> None:
    message = world.message_intake()
    message.take(payload(1))
    message.take(payload(1))
    message.take(payload(1, question="另一个？"))
    message.take({"taskId": "query-c9-m9"})
    message.take("nonsense")
    record = world.records.views.get("query-c1-m1")
    assert record is not None
    assert record.source == "celery"
    assert [(told["taskId"], told["errorCode"]) for told in world.results()] == [
        ("query-c1-m1", "CONFLICT"),
        ("query-c9-m9", "BAD_PAYLOAD"),
    ]
    assert [letter["taskId"] for letter in world.dead()] == ["query-c9-m9", ""]


def test_a_celery_message_nested_without_end_is_a_dead_letter(world: WaysIn) -> None:
    inside: dict[str, object] = {}
    for _ in range(900):
        inside = {"a": inside}
    world.message_intake().take(payload(1, team=inside))
    assert [(letter["errorCode"], letter["reason"]) for letter in world.dead()] == [
        ("BAD_PAYLOAD", "payload is nested deeper than 100 levels")
    ]


def test_a_celery_message_that_meets_an_absent_share_waits_in_the_stream(world: WaysIn, tmp_path: Path) -> None:
    away = tmp_path.with_name(tmp_path.name + "-away")
    tmp_path.rename(away)
    world.message_intake().take(payload(1))
    away.rename(tmp_path)
    shutil.rmtree(tmp_path / ".kbw", ignore_errors=True)
    assert take_all(world) == 1
    assert world.records.views.get("query-c1-m1")
