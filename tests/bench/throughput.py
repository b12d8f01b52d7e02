"""Jobs a second and CPU a job of the whole system with an instant model; each way in; a bare Celery chain beside.

``python -m tests.bench.throughput [--jobs 12] [--rounds 7] [--accepts 300]``. Real processes on this machine: Valkey
with its append-only file, git server, model server and workers. Every job reads pages, asks the model twice and
writes a QA page; workers of each class get 1, 2, then 4 slots. The bare chain is that of ``overhead.py``: seven tasks
that do nothing; the two work by turns, so that both see the same machine. CPU is user + system time of the workers
and intake; server, git server and model aside.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tasks.accept import accept
from tests.acceptance.staff import Staff, staffed
from tests.acceptance.system import API_KEY, ROOT
from tests.bench.overhead import Cost, alternate, cpu_s, running, spread
from tests.ports import free_port
from worker.app import build_app, waker
from worker.bootstrap import Workshop, workshop
from worker.settings import Settings

HTTP_TOKEN = "bench-token-1"
PATIENCE_S = 600.0
SENDERS = 4


# ---------------------------------------------------------------- jobs


def throughput(slots: int, jobs: int, rounds: int) -> list[dict[str, Cost]]:
    """Blocks of jobs by turns: the system with so many slots in each class of workers, and a bare chain beside it."""
    with staff_of(KBW_MODEL_CONCURRENCY=str(slots)) as staff:
        staff.hire("intake")
        for kind in ("io", "llm", "commit"):
            staff.hire(kind, slots if kind != "commit" else 1)
        shop = shop_of(staff)
        with running("bare", shop.redis_url, staff.system.home) as bare:
            block(staff, shop, ["warm"])
            numbers = iter(range(jobs * rounds))
            sides = {
                "system": lambda: block(staff, shop, [next(numbers) for _ in range(jobs)]),
                "bare": lambda: bare.block(jobs),
            }
            found = alternate(sides, rounds)
        failed = shop.records.views.counts()["failed"]
        if failed:
            sys.exit(f"{failed} jobs failed: these figures mean nothing")
        return found


def block(staff: Staff, shop: Workshop, numbers: Sequence[int | str]) -> Cost:
    """Hand in these jobs and wait until they are over."""
    known, before, began = over(shop), cpu_of(staff), time.monotonic()
    send_by_stream(staff, [staff.system.payload(number) for number in numbers])
    until(lambda: over(shop) >= known + len(numbers))
    seconds, used = time.monotonic() - began, cpu_of(staff) - before
    return Cost(used * 1000 / len(numbers), len(numbers) / seconds)


def cpu_of(staff: Staff) -> float:
    return sum(cpu_s(process.pid) for process in staff.workers.values())


def over(shop: Workshop) -> int:
    counts = shop.records.views.counts()
    return counts["done"] + counts["failed"]


# ---------------------------------------------------------------- ways in


def accept_rates(number: int) -> Iterator[tuple[str, float]]:
    """Jobs recorded a second by each way in, with nobody working on them."""
    settings = {
        "KBW_HTTP_TOKEN": HTTP_TOKEN,
        "KBW_HTTP_ADDR": f"127.0.0.1:{free_port()}",
        "KBW_INTAKE_SETTLE_S": "0",
        "KBW_INTAKE_POLL_S": "0.05",
    }
    with staff_of(**settings) as staff:
        staff.hire("intake")
        shop = shop_of(staff)
        url = f"http://{settings['KBW_HTTP_ADDR']}"
        until(lambda: answers(url))
        ways: dict[str, Callable[[list[dict[str, Any]]], None]] = {
            "files": lambda payloads: [staff.system.drop(payload) for payload in payloads] and None,
            "stream": lambda payloads: send_by_stream(staff, payloads),
            f"HTTP, {SENDERS} senders": lambda payloads: send_by_http(url, payloads),
            "function (CLI), 1 process": lambda payloads: send_by_function(shop, payloads),
        }
        for way, send in ways.items():
            known = shop.records.views.counts()["queued"]
            payloads = [staff.system.payload(f"{way[:4].strip()}{n}") for n in range(number)]
            began = time.monotonic()
            send(payloads)
            until(lambda known=known: shop.records.views.counts()["queued"] >= known + number)  # type: ignore[misc]
            yield way, number / (time.monotonic() - began)


def send_by_stream(staff: Staff, payloads: list[dict[str, Any]]) -> None:
    with staff.redis() as client:
        for payload in payloads:
            client.xadd("kbw:jobs", {"payload": json.dumps(payload)})


def send_by_http(url: str, payloads: list[dict[str, Any]]) -> None:
    headers = {"Authorization": f"Bearer {HTTP_TOKEN}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:

        def post(payload: dict[str, Any]) -> None:
            answer = client.post("/jobs", json=payload)
            if answer.status_code != 202:
                sys.exit(f"HTTP {answer.status_code}: {answer.text}")

        with ThreadPoolExecutor(SENDERS) as pool:
            list(pool.map(post, payloads))


def send_by_function(shop: Workshop, payloads: list[dict[str, Any]]) -> None:
    intake = shop.intake(waker(build_app(shop.redis_url, shop.settings.redis.prefix)))
    for payload in payloads:
        accept(payload, source="cli:bench", intake=intake)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/live", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


# ---------------------------------------------------------------- the system, the bare chain


@contextmanager
def staff_of(**settings: str) -> Iterator[Staff]:
    """A system whose model answers at once, from a process of its own."""
    model = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.scripted_model", "--token", API_KEY],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert model.stdout is not None
    long = {"KBW_LLM_BASE_URL": f"{model.stdout.readline().strip()}/v1", "KBW_LEASE_S": "60", "KBW_STALL_S": "5"}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kbw-bench-") as home,
            staffed(Path(home), **(long | settings)) as staff,
        ):
            yield staff
    finally:
        model.kill()
        model.wait(10)


def shop_of(staff: Staff) -> Workshop:
    """The system's parts in this process, for looking and for accepting."""
    return workshop(Settings.load(staff.system.environment))


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > limit:
            sys.exit("the bench did not finish in time")
        time.sleep(0.02)


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=12, help="in one block")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each side")
    parser.add_argument("--accepts", type=int, default=300)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; median (middle half) of {options.rounds} blocks")
    for slots in (1, 2, 4):
        rounds = throughput(slots, options.jobs, options.rounds)
        for side, name in (("system", f"kb_query, io={slots} llm={slots}"), ("bare", "bare chain, 2 children")):
            cpu, rate = ([getattr(one[side], what) for one in rounds] for what in ("cpu_ms", "rate"))
            print(f"{name:<24} {spread(rate)} jobs/s, {spread(cpu)} CPU ms a job", flush=True)
    for way, rate in accept_rates(options.accepts):
        print(f"accept by {way:<26} {rate:6.1f} jobs/s", flush=True)


if __name__ == "__main__":
    main()
