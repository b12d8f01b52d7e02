"""The record's edges that need no server: fields and defaults, the guard's verdicts, finding a server program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import redis
import redis.exceptions as faults

from tasks.errors import StoreUnavailableError
from tasks.ports import Failure
from worker.adapters.job_store import ServerFaultError, StorePolicy, check_server
from worker.adapters.job_store.address import Address, read_address, write_address
from worker.adapters.job_store.binary import find_binary, packaged_binary
from worker.adapters.job_store.connection import connect, script_text, translated_faults
from worker.adapters.job_store.policy import GIVE_UP_TEXTS
from worker.adapters.job_store.records import claim_from, failure_from, record_from

HASH = {
    "task_id": "query-1-2",
    "digest": "d",
    "skill": "kb_query",
    "state": "running",
    "stage": "select",
    "epoch": "3",
    "attempt": "2",
    "generation": "1",
    "created": "1796064928.036665",
    "deadline": "1796065828.036665",
    "lease_until": "1796064990",
    "worker": "w1",
    "cancelled": "1",
    "more_result_files": '["/a.json","/b.json"]',
    "field_of_a_newer_version": "x",
}


def test_a_hash_becomes_a_record_and_unknown_fields_do_no_harm() -> None:
    record = record_from(HASH)
    assert (record.state, record.epoch, record.attempt, record.generation) == ("running", 3, 2, 1)
    assert record.created == 1796064928.036665
    assert record.cancelled
    assert record.more_result_files == ("/a.json", "/b.json")


def test_a_hash_of_an_older_version_is_read_with_defaults() -> None:
    record = record_from({"task_id": "t", "digest": "d", "state": "queued", "stage": "prepare"})
    assert (record.epoch, record.deadline, record.lane, record.retryable, record.more_result_files) == (
        0,
        0.0,
        "",
        False,
        (),
    )


def test_a_claim_proves_itself_with_the_epoch_of_the_record() -> None:
    claim = claim_from(HASH, 6)
    assert (claim.epoch, claim.stage, claim.lease_until, claim.max_attempts) == (3, "select", 1796064990.0, 6)


def test_a_failure_is_read_back_or_absent() -> None:
    noted = '{"code":"KB_AUTH","en":"e","zh":"令牌","retryable":true}'
    assert failure_from({"failure": noted}) == Failure("KB_AUTH", "e", "令牌", retryable=True)
    assert failure_from({}) is None


@pytest.mark.parametrize("code", ["CANCELLED", "DEADLINE", "EXHAUSTED"])
def test_what_the_record_tells_when_it_gives_up_is_chinese_for_readers_and_names_the_cure(code: str) -> None:
    text = GIVE_UP_TEXTS[code]
    assert any("\u4e00" <= letter <= "\u9fff" for letter in text.zh)
    assert "请" in text.zh
    assert text.en.isascii()
    text.en.format(task="t", stage="s", attempts=1, last="")
    text.zh.format(task="t", stage="s", attempts=1, lastzh="")


def test_limits_are_looked_up_with_their_defaults() -> None:
    policy = StorePolicy(max_attempts=6, stage_attempts={"commit": 9}, default_cap=4, caps={"https://m/v1": 1})
    assert (policy.attempts("commit"), policy.attempts("prepare")) == (9, 6)
    assert (policy.cap("https://m/v1"), policy.cap("https://other/v1")) == (1, 4)


@pytest.mark.parametrize(
    "name",
    ["accept", "claim", "renew", "checkpoint", "park", "fail", "finish", "stalled", "freed", "waiting", "lock",
     "cancel", "replay", "pause", "report", "restore", "prune", "endpoints"],
)  # fmt: skip
def test_every_script_is_part_of_the_package_and_reads_no_foreign_clock(name: str) -> None:
    text = script_text(name)
    assert "redis.call('TIME')" in text
    assert "KEYS[" not in text
    assert "'SCAN'" not in text
    assert "'KEYS'" not in text


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    "fault",
    [
        redis.ConnectionError("refused"),
        redis.TimeoutError("slow"),
        redis.BusyLoadingError("loading"),
        faults.ReadOnlyError("READONLY You can't write against a read only replica."),
        faults.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        faults.ResponseError("OOM command not allowed when used memory > 'maxmemory'. script: on @user_script:9."),
    ],
)
def test_a_server_that_cannot_be_used_now_is_one_plain_error(fault: Exception) -> None:
    with pytest.raises(StoreUnavailableError), translated_faults():
        raise fault


@pytest.mark.parametrize("fault", [faults.AuthenticationError("WRONGPASS"), faults.ResponseError("ERR script: boom")])
def test_a_wrong_password_or_a_bug_stays_loud_as_itself(fault: Exception) -> None:
    with pytest.raises(type(fault)), translated_faults():
        raise fault


def test_celerys_word_for_a_socket_is_understood() -> None:
    arguments: dict[str, Any] = connect("redis+socket://:pw@/run/kbw/valkey.sock").connection_pool.connection_kwargs
    assert (arguments["path"], arguments["password"]) == ("/run/kbw/valkey.sock", "pw")


# ---------------------------------------------------------------- the guard

GOOD: dict[str, Any] = {
    "redis_version": "7.2.4",
    "role": "master",
    "cluster_enabled": 0,
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "connected_slaves": 0,
}


class Told:
    """A server that answers ``INFO`` with what the test says."""

    def __init__(self, **changes: Any) -> None:
        self._info = GOOD | changes

    def info(self, section: str) -> dict[str, Any]:
        assert section == "everything"
        return self._info


def verdict(*, require_persistence: bool = False, **changes: Any) -> list[str]:
    return check_server(cast(redis.Redis, Told(**changes)), require_persistence=require_persistence)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"redis_version": "6.0.16"}, r"version 6\.0\.16; 6\.2 or newer"),
        ({"redis_version": "5.0.7"}, "Upgrade it"),
        ({"cluster_enabled": 1}, "Redis Cluster, which is not supported"),
        ({"role": "slave"}, "read-only replica"),
        ({"maxmemory_policy": "allkeys-lfu"}, "CONFIG SET maxmemory-policy noeviction"),
        ({"maxmemory_policy": "volatile-lru"}, "may drop job records"),
    ],
)
def test_a_server_that_cannot_hold_records_is_refused_with_its_cure(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ServerFaultError, match=told):
        verdict(**changes)


@pytest.mark.parametrize(
    "changes", [{}, {"redis_version": "6.2.0"}, {"redis_version": "8.2.3"}, {"aof_enabled": 0, "connected_slaves": 1}]
)
def test_a_good_server_passes_without_a_word(changes: dict[str, Any]) -> None:
    assert verdict(require_persistence=True, **changes) == []


def test_without_persistence_it_warns_or_refuses_as_asked() -> None:
    assert "appendonly yes" in verdict(aof_enabled=0)[0]
    with pytest.raises(ServerFaultError, match="appendonly yes"):
        verdict(aof_enabled=0, require_persistence=True)


# ---------------------------------------------------------------- programs and addresses


def fake_program(folder: Path, name: str, version: str) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=00000000:0 malloc=jemalloc bits=64'\n")
    program.chmod(0o755)
    return program


def test_a_server_on_the_path_is_preferred_and_an_old_one_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fake_program(tmp_path, "redis-server", "5.0.7")
    assert find_binary() == packaged_binary()
    new = fake_program(tmp_path, "redis-server", "7.0.15")
    assert find_binary() == new
    assert find_binary() != fake_program(tmp_path, "valkey-server", "6.0.0")
    assert find_binary() == new


def test_the_address_is_kept_for_this_user_only(tmp_path: Path) -> None:
    address = Address("secret", port=4711)
    write_address(tmp_path, address, "ab")
    assert read_address(tmp_path) == address
    assert (tmp_path / "server.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["server.json"]
    assert address.url == address.broker_url == "redis://:secret@127.0.0.1:4711/0"
    by_socket = replace(address, port=0, path="/s/v.sock")
    assert (by_socket.url, by_socket.broker_url) == ("unix://:secret@/s/v.sock", "redis+socket://:secret@/s/v.sock")
