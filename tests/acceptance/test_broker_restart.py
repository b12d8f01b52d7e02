"""A worker whose broker dies while all its slots are busy goes on consuming when the broker is back."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from worker.adapters.job_store import EmbeddedValkey

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
        limit = time.monotonic() + 60
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
            os.kill(valkey.pid, signal.SIGKILL)
            time.sleep(1.0)
            valkey.restart()
            send(f"after{turn}0", f"after{turn}1", f"after{turn}2")
            wait_for(f"after{turn}0", f"after{turn}1", f"after{turn}2")
        assert worker.poll() is None
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)
