"""Counting, remembering and the dead letters' stream, in memory and on a real server."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
import redis

from tasks.ports import Claim
from tests.job_store_worlds import MODEL, World, fake_world, server_world
from worker.adapters.job_store.dead_stream import DeadStream


@pytest.fixture(params=["memory", "server"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return fake_world()
    return server_world(request.getfixturevalue("server_url"))


def claim(world: World, task_id: str, stage: str, endpoint: str = "") -> Claim:
    found = world.records.store.claim(task_id, stage, "w1", endpoint=endpoint)
    assert isinstance(found, Claim)
    return found


def finish(world: World, task_id: str) -> None:
    assert world.records.store.checkpoint(claim(world, task_id, "prepare"), "publish")
    assert world.records.store.finish(claim(world, task_id, "publish"), success=True, code="", commit_id="")


def test_every_open_job_is_counted_with_what_holds_it(world: World) -> None:
    for n in range(3):
        world.accept(f"q-{n}", stage="select")
    world.accept("p-1")
    world.accept("over")
    finish(world, "over")
    claim(world, "q-0", "select", MODEL)
    world.records.store.park(claim(world, "p-1", "prepare"), 30.0, "KB_UNREACHABLE", "away")
    world.records.control.pause("queue:kbw.llm")
    world.records.store.claim("q-1", "select", "w1", endpoint=MODEL)

    now = world.now()
    jobs = sorted((job.stage, job.state, job.blocked) for job in world.records.census.open_jobs())
    assert jobs == [
        ("prepare", "parked", ""), ("select", "queued", ""), ("select", "queued", "paused"), ("select", "running", ""),
    ]  # fmt: skip
    by_state = {job.state: job for job in world.records.census.open_jobs()}
    assert by_state["running"].lease_until > now
    assert by_state["parked"].ready_at == pytest.approx(now + 30.0, abs=5.0)
    assert by_state["queued"].ready_at == pytest.approx(now, abs=5.0)


def test_a_job_called_to_a_free_slot_that_nobody_answers_for_is_not_held_any_more(world: World) -> None:
    """All workers of its class have left: the backlog must bring them back, and `live` must say so."""
    holders = []
    for n in range(5):
        world.accept(f"q-{n}", stage="answer")
        holders.append(world.records.store.claim(f"q-{n}", "answer", "w1", endpoint=MODEL))

    def waiting() -> list[str]:
        return [
            job.blocked for job in world.records.census.open_jobs() if job.stage == "answer" and job.state == "queued"
        ]

    held = [holder for holder in holders if isinstance(holder, Claim)]
    assert waiting() == ["cap", "cap", "cap"]
    world.advance(1.0)
    for holder in held:
        assert world.records.store.checkpoint(holder, "publish")
    assert [task for task, stage in world.records.sweep.freed(10) if stage == "answer"] == ["q-2", "q-3"]

    assert sorted(waiting()) == ["", "", "cap"]
    assert isinstance(world.records.store.claim("q-2", "answer", "w2", endpoint=MODEL), Claim)


def test_more_jobs_than_one_reading_takes_are_all_counted(world: World) -> None:
    for n in range(1_200):
        world.accept(f"q-{n}")
    assert len(world.records.census.open_jobs()) == 1_200


def test_the_last_claim_of_each_queue_is_known(world: World) -> None:
    assert world.records.census.last_claims() == {}
    world.accept("q-1")
    claim(world, "q-1", "prepare")
    assert world.records.census.last_claims() == {"kbw.io": pytest.approx(world.now(), abs=5.0)}


def test_what_is_tallied_shows_among_the_figures(world: World) -> None:
    world.records.census.tally({"pages": 3, f"tokens/prompt/{MODEL}": 11})
    world.records.census.tally({"pages": 2})
    figures = world.records.views.figures()
    assert (figures["pages"], figures[f"tokens/prompt/{MODEL}"]) == (5, 11)


def test_a_job_is_remembered_whole_as_a_tombstone_or_not_at_all(world: World) -> None:
    world.accept("old")
    finish(world, "old")
    world.advance(100.0)
    world.records.archive.prune(50.0)
    world.accept("open")
    assert world.records.archive.remembers(["open", "old", "never"]) == {
        "open": "record", "old": "tombstone", "never": "nothing",
    }  # fmt: skip
    assert world.records.archive.remembers([]) == {}


def test_a_thousand_and_one_are_remembered_in_one_go(world: World) -> None:
    world.accept("q-1000")
    known = world.records.archive.remembers([f"q-{n}" for n in range(1_001)])
    assert len(known) == 1_001
    assert [task_id for task_id, memory in known.items() if memory == "record"] == ["q-1000"]


# ---------------------------------------------------------------- the dead letters' stream


@pytest.fixture
def stream(server_url: str) -> tuple[DeadStream, Any, str]:
    prefix = f"dead{secrets.token_hex(6)}:"
    return DeadStream(server_url, prefix), redis.Redis.from_url(server_url, decode_responses=True), prefix


def bury(client: Any, prefix: str, content: str, **more: str) -> str:
    fields = {
        "reason": "no JSON", "errorCode": "BAD_PAYLOAD", "entryId": "", "taskId": "", "content": content,
        "bytes": str(len(content.encode())),
    }  # fmt: skip
    return str(client.xadd(f"{prefix}dead", fields | more))


def test_entries_are_read_with_their_age_and_origin(stream: tuple[DeadStream, Any, str]) -> None:
    dead, client, prefix = stream
    first = bury(client, prefix, "{", taskId="query-1-2", entryId="5-1")
    (entry,) = dead.entries(10)
    assert (entry.entry_id, entry.task_id, entry.code, entry.origin) == (first, "query-1-2", "BAD_PAYLOAD", "5-1")
    assert entry.at == int(first.partition("-")[0]) / 1000
    assert dead.get(first) == entry
    assert dead.get("1-1") is None
    assert dead.count() == 1


def test_a_foreign_entry_without_our_fields_is_read_too(stream: tuple[DeadStream, Any, str]) -> None:
    dead, client, prefix = stream
    client.xadd(f"{prefix}dead", {"hello": "world"})
    (entry,) = dead.entries(10)
    assert (entry.code, entry.content, dead.original(entry)) == ("", "", None)


def test_the_original_is_preferred_then_a_whole_report_a_cut_one_is_none(stream: tuple[DeadStream, Any, str]) -> None:
    dead, client, prefix = stream
    origin = str(client.xadd(f"{prefix}jobs", {"payload": '{"whole": "原文"}'}))
    from_jobs = dead.get(bury(client, prefix, '{"whol', entryId=origin, bytes="19"))
    trimmed_but_whole = dead.get(bury(client, prefix, "原文", entryId="1-1"))
    cut = dead.get(bury(client, prefix, '{"whol', entryId="1-1", bytes="19"))
    assert from_jobs
    assert trimmed_but_whole
    assert cut
    assert dead.original(from_jobs) == '{"whole": "原文"}'.encode()
    assert dead.original(trimmed_but_whole) == "原文".encode()
    assert dead.original(cut) is None


def test_what_is_submitted_again_is_no_dead_letter_any_more(stream: tuple[DeadStream, Any, str]) -> None:
    dead, client, prefix = stream
    entry = dead.get(bury(client, prefix, "{}"))
    assert entry
    added = dead.submit_again(entry, b"{}")
    assert client.xrange(f"{prefix}jobs") == [(added, {"payload": "{}"})]
    assert dead.count() == 0
    assert not dead.drop(entry.entry_id)


def test_old_dead_letters_and_results_are_cut_by_the_servers_clock(stream: tuple[DeadStream, Any, str]) -> None:
    dead, client, prefix = stream
    now_ms = client.time()[0] * 1000
    for name in ("dead", "results"):
        for age_s in (7_200, 60):
            client.xadd(f"{prefix}{name}", {"x": "1"}, id=f"{now_ms - age_s * 1000}-0")
    client.xadd(f"{prefix}jobs", {"payload": "{}"}, id="1-1")
    assert dead.trim(3_600.0) == 2
    assert [client.xlen(f"{prefix}{name}") for name in ("dead", "results", "jobs")] == [1, 1, 1]
