"""CPU of a job's machinery beside a bare Celery chain of seven no-op tasks, in one run on one server.

``python -m tests.bench.overhead [--jobs 200]``. Both sides: one prefork worker with two children on the same embedded
Valkey (append-only file on). Ours: seven stages that do nothing, but with all that a stage costs: claim with lease and
epoch, artefact with fsync and rename, journal, log line, checkpoint, wake-up. Bare: ``chain`` of seven tasks, late
acknowledgement, no results. CPU is user + system time of the worker's processes, server aside.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from celery import Celery, chain

from tasks.base import Fleet, register_shells
from tasks.contract import strict_json
from tasks.contract.outcome import Receipt
from tasks.pipeline import Pipeline
from tasks.ports import NewJob, Ports
from tasks.stages.job import PAYLOAD, SHAPES, Job
from worker.adapters.job_files import FolderStore
from worker.adapters.job_store import JobRecords, StorePolicy, open_job_records
from worker.adapters.job_store.valkey import EmbeddedValkey
from worker.app import build_app, waker
from worker.bootstrap import worker_name
from worker.clock import SystemClock
from worker.log import set_up_logging
from worker.masking import SecretMask

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("one", "two", "three", "four", "five", "six", "seven")
QUEUE = "bench"
PATIENCE_S = 300.0


def bench_pipeline() -> Pipeline:
    """Seven stages; all but the last write an artefact. Queues differ, so that each one costs a message."""
    pipeline = Pipeline("bench", skill="bench")

    def stage(name: str, number: int) -> None:
        def run(job: Job) -> Receipt | None:
            return None if name == STAGES[-1] else Receipt(task_id=job.task_id)

        run.__name__ = name
        writes = None if name == STAGES[-1] else f"{name}.json"
        if writes:
            SHAPES[writes] = Receipt
        pipeline.stage(f"{QUEUE}.{number % 2}", writes=writes)(run)

    for number, name in enumerate(STAGES):
        stage(name, number)
    return pipeline


def bare_app(url: str) -> Celery:
    """The baseline: seven no-op tasks as anyone would write them."""
    app = Celery("bare", broker=url, set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_transport_options={"global_keyprefix": "bare:"},
        task_default_queue="bare",
    )

    def no_op(task_id: str) -> str:
        return task_id

    def last(task_id: str) -> None:
        app.backend_client.incr("bare-done")  # type: ignore[attr-defined]  # set below, this process only

    for name in STAGES[:-1]:
        app.task(name=f"bare.{name}", shared=False)(no_op)
    app.task(name=f"bare.{STAGES[-1]}", shared=False)(last)
    return app


def our_fleet(url: str, home: Path, app: Celery) -> Fleet:
    """The real record, folders and clock; no other port is touched by stages that do nothing."""
    clock = SystemClock()
    records = records_at(url)
    folders = FolderStore(home, SecretMask(["a-secret-of-the-bench"]))
    nothing: object = type("Nothing", (), {"endpoint": "", "name": "none"})()
    ports = Ports(nothing, nothing, nothing, nothing, nothing, folders, clock, lambda _payload: None)  # type: ignore[arg-type]
    pipeline = bench_pipeline()
    return Fleet(
        ports=ports,
        jobs=records.store,
        views=records.views,
        sweep=records.sweep,
        health=records.store,
        wake=waker(app),
        pipeline_of=lambda _skill: pipeline,
        worker=worker_name(clock.token(3)),
    )


def records_at(url: str) -> JobRecords:
    """The job record with this bench's last stage as the one that publishes."""
    policy = StorePolicy(publish_stage=STAGES[-1], commit_stage="")
    return open_job_records(url, policy, lambda: SystemClock().token(16))


def serve(side: str, url: str, home: Path) -> None:
    """Be the worker of one side (started as a process of its own)."""
    set_up_logging(SecretMask(["a-secret-of-the-bench"]), "json", "INFO")
    if side == "bare":
        app, queues = bare_app(url), ["bare"]
        app.backend_client = records_at(url).client  # type: ignore[attr-defined]
    else:
        app, queues = build_app(url, "kbw:"), [f"{QUEUE}.0", f"{QUEUE}.1"]
        fleets: dict[int, Fleet] = {}

        def fleet() -> Fleet:
            if os.getpid() not in fleets:
                fleets[os.getpid()] = our_fleet(url, home, app)
            return fleets[os.getpid()]

        register_shells(app, bench_pipeline(), fleet)
    app.Worker(
        pool="prefork", concurrency=2, queues=queues, quiet=True, without_mingle=True, without_gossip=True
    ).start()


def measure(side: str, url: str, home: Path, jobs: int) -> tuple[float, float]:
    """``(CPU ms a job, jobs a second)`` of one side."""
    with (home / f"{side}.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, __file__, "--serve", side, "--url", url, "--home", str(home)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    submit, done = bare_side(url) if side == "bare" else our_side(url, home)
    submit("warm-up")
    wait(lambda: done() >= 1)
    before, started = cpu_s(worker.pid), time.monotonic()
    for number in range(jobs):
        submit(f"job-{number}")
    wait(lambda: done() >= jobs + 1)
    seconds, used = time.monotonic() - started, cpu_s(worker.pid) - before
    worker.terminate()
    worker.wait(30)
    return used * 1000 / jobs, jobs / seconds


def bare_side(url: str) -> tuple[Callable[[str], None], Callable[[], int]]:
    """How a job is sent to the bare chain, and how many are through."""
    app, client = bare_app(url), records_at(url).client

    def submit(task_id: str) -> None:
        first, *rest = [app.signature(f"bare.{name}", queue="bare") for name in STAGES]
        chain(first.clone(args=(task_id,)), *(s.clone() for s in rest)).apply_async()

    return submit, lambda: int(client.get("bare-done") or 0)


def our_side(url: str, home: Path) -> tuple[Callable[[str], None], Callable[[], int]]:
    """How a job is recorded and woken, and how many are through."""
    records, pipeline = records_at(url), bench_pipeline()
    wake, folders = waker(build_app(url, "kbw:")), FolderStore(home, SecretMask([]))

    def submit(task_id: str) -> None:
        folders.open(task_id).write_once(PAYLOAD, strict_json.dumps({"taskId": task_id}))
        records.store.accept(NewJob(task_id, "0", "bench", STAGES[0], task_id, 900.0, "bench"))
        wake(pipeline, STAGES[0], task_id)

    return submit, lambda: records.views.counts()["done"]


def cpu_s(pid: int) -> float:
    """User and system seconds of a process and its children so far."""
    tick = os.sysconf("SC_CLK_TCK")
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    total = 0
    for one in pids:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / tick


def wait(condition: Callable[[], bool]) -> None:
    """Poll until it holds."""
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > limit:
            sys.exit("the bench did not finish in time; see the logs in its folder")
        time.sleep(0.05)


def main() -> None:
    """Measure both sides twice, alternating (the machine is noisy), and print the better of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--serve", choices=["bare", "ours"])
    parser.add_argument("--url")
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.url, options.home)
        return
    best: dict[str, tuple[float, float]] = {}
    for _ in range(2):
        for side in ("bare", "ours"):
            with tempfile.TemporaryDirectory(prefix="kbw-bench-") as folder:
                home = Path(folder)
                valkey = EmbeddedValkey(home / "state", token=SystemClock().token)
                try:
                    found = measure(side, valkey.start().broker_url, home, options.jobs)
                finally:
                    valkey.stop()
                best[side] = min(best.get(side, found), found)
    for side, (ms, rate) in best.items():
        print(f"{side:<5} {ms:6.1f} CPU ms a job, {rate:5.1f} jobs/s")
    print(f"ratio ours / bare: {best['ours'][0] / best['bare'][0]:.2f} (aim: at most 2)")


if __name__ == "__main__":
    main()
