"""What many workers do at once to one record: one winner, no slot too many, no lost wake-up, no doubled answer."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from queue import Empty, Queue
from typing import TypeVar

import pytest
import redis

from tasks.errors import StoreUnavailableError
from tasks.ports import Claim, Failure
from tests.job_store_worlds import MODEL, POLICY, new_job
from worker.adapters.job_store import JobRecords, StorePolicy, open_job_records

T = TypeVar("T")
THREADS = 20


@pytest.fixture
def policy() -> StorePolicy:
    return replace(POLICY, prefix=f"race{secrets.token_hex(6)}:")


def records_of(url: str, policy: StorePolicy) -> JobRecords:
    return open_job_records(url, policy, lambda: secrets.token_hex(8), timeout_s=30.0)


@pytest.fixture
def records(server_url: str, policy: StorePolicy) -> JobRecords:
    return records_of(server_url, policy)


def at_once(work: Callable[[int], T]) -> list[T]:
    """``work(n)`` in all threads, started together."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> T:
        barrier.wait(120)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def next_wake(wakes: Queue[str]) -> str:
    """The next task id, or ``""`` (claimed by nobody) when none comes for a moment."""
    try:
        return wakes.get(timeout=0.05)
    except Empty:
        return ""


def test_one_of_many_claims_wins(records: JobRecords) -> None:
    records.store.accept(new_job("a"))
    outcomes = at_once(lambda n: records.store.claim("a", "prepare", f"w{n}"))
    assert sum(isinstance(outcome, Claim) for outcome in outcomes) == 1
    assert records.views.get("a").attempt == 1  # type: ignore[union-attr]


def test_one_of_many_accepts_is_new(records: JobRecords) -> None:
    kinds = Counter(at_once(lambda n: records.store.accept(new_job("a")).kind))
    assert kinds == {"new": 1, "same": THREADS - 1}


def _claim_in_a_process(url: str, policy: StorePolicy, task_ids: list[str], worker: str) -> list[str]:
    records = records_of(url, policy)
    return [task_id for task_id in task_ids if isinstance(records.store.claim(task_id, "prepare", worker), Claim)]


def test_processes_share_out_jobs_without_overlap(server_url: str, records: JobRecords, policy: StorePolicy) -> None:
    task_ids = [f"j{number}" for number in range(60)]
    for task_id in task_ids:
        records.store.accept(new_job(task_id))
    plain = replace(policy, caps=dict(policy.caps), stage_attempts={}, queues={})
    with get_context("spawn").Pool(3) as pool:
        won = pool.starmap_async(_claim_in_a_process, [(server_url, plain, task_ids, f"p{n}") for n in range(3)]).get(
            200
        )
    assert sorted(task_id for part in won for task_id in part) == sorted(task_ids)


def test_the_cap_is_never_exceeded_and_everyone_gets_through(records: JobRecords) -> None:
    """Workers act on wake-ups alone; nobody polls. In-flight calls are counted outside the record."""
    jobs = 60
    for number in range(jobs):
        records.store.accept(new_job(f"j{number}", stage="select"))
    wakes: Queue[str] = Queue()
    for number in range(jobs):
        wakes.put(f"j{number}")
    lock, in_flight, most, done = threading.Lock(), 0, 0, 0
    deadline = time.monotonic() + 200

    def work(number: int) -> None:
        nonlocal in_flight, most, done
        while done < jobs and time.monotonic() < deadline:
            task_id = next_wake(wakes)
            claim = records.store.claim(task_id, "select", f"w{number}", endpoint=MODEL)
            if not isinstance(claim, Claim):
                continue
            with lock:
                in_flight += 1
                most = max(most, in_flight)
            time.sleep(0.002)
            with lock:
                in_flight -= 1
                done += 1
            assert records.store.checkpoint(claim, "fetch")
            for freed, _ in records.sweep.freed(5):
                wakes.put(freed)

    at_once(work)
    assert done == jobs
    assert most == POLICY.cap(MODEL)
    assert records.views.endpoints()[0].waiting == 0


def test_no_wake_up_in_a_conversation_is_lost(records: JobRecords) -> None:
    """Each of 4 conversations has 10 jobs; all workers get every first wake-up in any order, then only freed ones."""
    lanes, length = 4, 10
    wakes: Queue[str] = Queue()
    task_ids = [f"{lane}-{number}" for number in range(length) for lane in range(lanes)]
    for task_id in task_ids:
        records.store.accept(new_job(task_id, lane=task_id.split("-")[0]))
    for task_id in reversed(task_ids):
        wakes.put(task_id)
    finished: list[str] = []
    deadline = time.monotonic() + 200

    def work(number: int) -> None:
        while len(finished) < lanes * length and time.monotonic() < deadline:
            task_id = next_wake(wakes)
            claim = records.store.claim(task_id, "prepare", f"w{number}")
            if isinstance(claim, Claim):
                finished.append(task_id)
                assert records.store.finish(claim, success=True, code="", commit_id="")
                for freed, _ in records.sweep.freed(5):
                    wakes.put(freed)

    at_once(work)
    assert len(finished) == lanes * length
    in_order = sorted(finished, key=lambda task_id: int(task_id.split("-")[0]))  # stable: keeps each lane's own order
    assert in_order == [f"{lane}-{number}" for lane in range(lanes) for number in range(length)]


# ---------------------------------------------------------------- broken connections


class AnswerEater:
    """A relay to the server that drops the connection instead of passing on the next ``eat`` answers."""

    def __init__(self, port: int) -> None:
        self.eat = 0
        self.eaten = 0
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self.eat and (b"record" in data or b"claim" in data or b'"ok":true' in data):
                    self.eat -= 1
                    self.eaten += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)  # left waiting, it would take connections of whoever gets the descriptor's number next
        self._listener.close()


@pytest.fixture
def eater(server_url: str) -> Iterator[AnswerEater]:
    relay = AnswerEater(int(server_url.rsplit(":", 1)[1].split("/")[0]))
    yield relay
    relay.close()


def test_a_lost_answer_neither_doubles_nor_denies_what_was_done(
    server_url: str, policy: StorePolicy, eater: AnswerEater
) -> None:
    password_part = server_url.split("@")[0]
    records = records_of(f"{password_part}@127.0.0.1:{eater.port}/0", policy)
    records.client.ping()

    eater.eat = 1
    assert records.store.accept(new_job("a")).kind == "new"
    eater.eat = 1
    claim = records.store.claim("a", "prepare", "w1")
    assert isinstance(claim, Claim)
    assert (claim.epoch, claim.attempt) == (1, 1)
    eater.eat = 1
    assert records.store.checkpoint(claim, "select")
    claim = records.store.claim("a", "select", "w1")
    assert isinstance(claim, Claim)
    eater.eat = 1
    assert records.store.park(claim, 0, "X", "x")
    claim = records.store.claim("a", "select", "w1")
    assert isinstance(claim, Claim)
    assert claim.attempt == 2
    eater.eat = 1
    assert records.store.fail(claim, Failure("KB_AUTH", "en", "zh"))
    claim = records.store.claim("a", "publish", "w1")
    assert isinstance(claim, Claim)
    eater.eat = 1
    assert records.store.finish(claim, success=False, code="KB_AUTH", commit_id="")
    assert eater.eaten == 6
    figures = records.views.figures()
    assert (figures["accepted"], figures["claims"], figures["finished/failed"]) == (1, 4, 1)
    assert "duplicates" not in figures
    assert "fenced" not in figures


def test_a_server_that_is_gone_is_one_plain_error_within_a_bounded_time(policy: StorePolicy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    records = records_of(f"redis://127.0.0.1:{port}/0", policy)
    started = time.monotonic()
    for call in (
        lambda: records.store.accept(new_job("a")),
        lambda: records.views.get("a"),
        lambda: records.sweep.stalled(1),
        lambda: records.control.paused(),
    ):
        with pytest.raises(StoreUnavailableError, match="KBW_REDIS_URL"):
            call()
    assert time.monotonic() - started < 60


def test_a_full_or_read_only_server_is_the_same_plain_error(server_url: str, records: JobRecords) -> None:
    records.store.accept(new_job("a"))
    records.client.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreUnavailableError, match="takes no writes"):
            records.store.accept(new_job("b"))
    finally:
        records.client.config_set("maxmemory", "0")
    records.client.config_set("min-replicas-to-write", "1")
    try:
        with pytest.raises(StoreUnavailableError, match="takes no writes"):
            records.store.claim("a", "prepare", "w1")
    finally:
        records.client.config_set("min-replicas-to-write", "0")


def test_a_server_that_lost_its_primary_is_the_same_plain_error(server_url: str, records: JobRecords) -> None:
    records.store.accept(new_job("a"))
    records.client.config_set("replica-serve-stale-data", "no")
    records.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(StoreUnavailableError, match="takes no writes"):
            records.views.get("a")
        records.client.config_set("replica-serve-stale-data", "yes")
        with pytest.raises(StoreUnavailableError, match="takes no writes"):
            records.store.claim("a", "prepare", "w1")
    finally:
        records.client.execute_command("REPLICAOF", "NO", "ONE")
        records.client.config_set("replica-serve-stale-data", "yes")
    assert isinstance(records.store.claim("a", "prepare", "w1"), Claim)


@pytest.mark.parametrize("field", ["created", "task_id"])
def test_a_damaged_record_holds_up_no_other_job(policy: StorePolicy, records: JobRecords, field: str) -> None:
    for task_id in ("damaged", "sound"):
        records.store.accept(new_job(task_id))
    records.store.claim("damaged", "prepare", "w1")
    records.client.hset(f"{policy.prefix}job:damaged", "lease_until", "1")
    records.client.hdel(f"{policy.prefix}job:damaged", field)
    for task_id in ("damaged", "sound"):
        records.client.zadd(f"{policy.prefix}due", {task_id: 0})
    assert {task_id for task_id, _ in records.sweep.stalled(10)} == {"damaged", "sound"}
    claim = records.store.claim("damaged", "prepare", "w2")
    assert isinstance(claim, Claim)
    assert records.store.checkpoint(claim, "select")


def test_a_server_busy_with_anothers_script_is_the_same_plain_error(server_url: str, records: JobRecords) -> None:
    records.store.accept(new_job("a"))
    records.client.config_set("busy-reply-threshold", "10")

    def run_on() -> None:
        with pytest.raises(redis.ResponseError, match="killed"):
            redis.Redis.from_url(server_url, socket_timeout=120).eval("while true do end", 0)

    runner = threading.Thread(target=run_on)
    runner.start()
    try:
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            try:
                records.client.ping()
            except redis.ResponseError:
                break
        with pytest.raises(StoreUnavailableError, match="takes no writes"):
            records.store.claim("a", "prepare", "w1")
    finally:
        records.client.script_kill()
        runner.join(60)
        records.client.config_set("busy-reply-threshold", "5000")
    assert isinstance(records.store.claim("a", "prepare", "w1"), Claim)
