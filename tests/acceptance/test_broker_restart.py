"""A worker whose broker dies, or takes no writes for a while, goes on consuming when the broker is well again."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from redis import Redis

from tests.acceptance.system import PATIENCE_S, kill_server
from worker.adapters.job_store import EmbeddedValkey
from worker.app import build_app

pytestmark = pytest.mark.acceptance

SLOTS = "2"
WORKER = """
import sys, time
from celery import Celery
from worker.transport import TRANSPORT
url, notes, pool, slots, remote = sys.argv[1:]
app = Celery("restart", broker=url, broker_transport=TRANSPORT)
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, worker_disable_prefetch=True,
    broker_connection_max_retries=None, broker_connection_retry_on_startup=True, task_ignore_result=True,
    worker_enable_remote_control=remote == "remote",
    broker_transport_options={"visibility_timeout": 600, "socket_connect_timeout": 5, "global_keyprefix": "kbw:"})

@app.task(name="note", queue="q")
def note(word):
    with open(notes, "a") as file:
        file.write(word + "\\n")
    time.sleep(0.5)

app.worker_main(["worker", "-P", pool, "-c", slots, "-Q", "q", "-l", "WARNING", "--without-gossip", "--without-mingle"])
"""

OURS = """
import sys
from worker.app import build_app
url, notes = sys.argv[1:]
app = build_app(url, "kbw:")

@app.task(name="note", queue="q")
def note(word):
    with open(notes, "a") as file:
        file.write(word + "\\n")

app.worker_main(["worker", "-P", "threads", "-c", "2", "-Q", "q", "-l", "WARNING", "--without-gossip"])
"""
REFUSALS = {"full": "maxmemory", "replica": "read only replica"}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path, token=secrets.token_hex)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("remote", ["remote", "quiet"], ids=["notices the loss", "has nothing to notice it by"])
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_failed_acknowledgements_do_not_eat_the_workers_slots(
    valkey: EmbeddedValkey, pool: str, remote: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    sender = Celery("sender", broker=valkey.address.broker_url, set_as_current=False)
    sender.conf.broker_transport_options = {"global_keyprefix": "kbw:"}

    def send(*words: str) -> None:
        for word in words:
            sender.send_task("note", args=[word], queue="q")

    def wait_for(*words: str) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not set(words) <= set(notes.read_text().split()):
            assert time.monotonic() < limit, f"not consumed: {words}; seen: {notes.read_text().split()}"
            time.sleep(0.05)

    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, valkey.address.broker_url, str(notes), pool, SLOTS, remote],
            stdout=log, stderr=log, cwd=Path(__file__).parents[2], start_new_session=True,
        )  # fmt: skip
    try:
        for turn in range(2):
            busy = [f"busy{turn}{slot}" for slot in range(int(SLOTS))]
            send(*busy)
            wait_for(*busy)  # all slots are taken; their acknowledgements come half a second later, to nobody
            kill_server(valkey)
            time.sleep(1.0)
            valkey.restart()
            send(f"after{turn}0", f"after{turn}1", f"after{turn}2")
            wait_for(f"after{turn}0", f"after{turn}1", f"after{turn}2")
        assert worker.poll() is None
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)


@pytest.mark.parametrize("state", list(REFUSALS))
def test_a_broker_that_takes_no_writes_ends_no_worker(valkey: EmbeddedValkey, state: str, tmp_path: Path) -> None:
    notes, told = tmp_path / "notes", tmp_path / "worker.log"
    notes.touch()
    sender = build_app(valkey.address.broker_url, "kbw:")
    with told.open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-c", OURS, valkey.address.broker_url, str(notes)],
            stdout=log, stderr=log, cwd=Path(__file__).parents[2], start_new_session=True,
        )  # fmt: skip
    try:
        sender.send_task("note", args=["before"], queue="q")
        until(lambda: "before" in notes.read_text(), told)
        with Redis.from_url(valkey.address.url) as broker:
            os.kill(worker.pid, signal.SIGSTOP)
            sender.send_task("note", args=["meanwhile"], queue="q")  # taken, and its mark refused
            broker.config_set("maxmemory", "1") if state == "full" else broker.replicaof("127.0.0.1", "1")
            os.kill(worker.pid, signal.SIGCONT)
            until(lambda: REFUSALS[state] in told.read_text(), told)
            broker.config_set("maxmemory", "0") if state == "full" else broker.replicaof("NO", "ONE")
        sender.send_task("note", args=["after"], queue="q")
        until(lambda: "after" in notes.read_text() or worker.poll() is not None, told)
        assert worker.poll() is None, told.read_text()
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)


def until(condition: Callable[[], bool], told: Path) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, told.read_text()
        time.sleep(0.05)
