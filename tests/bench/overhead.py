"""CPU of a job's machinery beside a bare Celery chain of seven no-op tasks, in one run on one server.

``python -m tests.bench.overhead [--jobs 40] [--rounds 11]``. Both sides: one prefork worker with two children on the
same embedded Valkey (append-only file on), both up all the time, working by turns in short blocks. Ours: seven stages
that do nothing, but with all that a stage costs: claim with lease and epoch, artefact with fsync and rename, journal,
log line, checkpoint, wake-up. Bare: ``chain`` of seven tasks, late acknowledgement, no results. CPU is user + system
time of the worker's processes, server aside.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

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
CHILDREN = 2


@dataclass(frozen=True)
class Cost:
    """What a job took: CPU of the worker's processes in ms; ``rate``: jobs a second."""

    cpu_ms: float
    rate: float


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
        pool="prefork", concurrency=CHILDREN, queues=queues, quiet=True, without_mingle=True, without_gossip=True
    ).start()


@dataclass
class Side:
    """One side with its worker running; numbers its jobs on from block to block."""

    worker: subprocess.Popen[bytes]
    submit: Callable[[str], None]
    done: Callable[[], int]
    sent: int = 0

    def block(self, jobs: int) -> Cost:
        """Hand in so many jobs, wait until they are through, and say what they cost."""
        before, started = cpu_s(self.worker.pid), time.monotonic()
        for _ in range(jobs):
            self.sent += 1
            self.submit(f"job-{self.sent}")
        wait(lambda: self.done() >= self.sent)
        seconds, used = time.monotonic() - started, cpu_s(self.worker.pid) - before
        return Cost(used * 1000 / jobs, jobs / seconds)


@contextmanager
def running(side: str, url: str, home: Path) -> Iterator[Side]:
    """The worker of one side, warm."""
    with (home / f"{side}.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, __file__, "--serve", side, "--url", url, "--home", str(home)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
    try:
        found = Side(worker, *(bare_side(url) if side == "bare" else our_side(url, home)))
        found.block(2 * CHILDREN)
        yield found
    finally:
        worker.terminate()
        worker.wait(30)


def alternate(sides: dict[str, Callable[[], Cost]], rounds: int) -> list[dict[str, Cost]]:
    """A block of each side in every round, the order turned round each time.

    What else the machine does changes within seconds and costs both sides alike: so the two blocks of one round are
    compared with each other, and the median over the rounds is the figure.
    """
    found = []
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        costs = {name: sides[name]() for name in order}
        found.append({name: costs[name] for name in sides})
    return found


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """Median and middle half."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


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
    """User and system seconds so far of a process and its children, also of those that are gone (a pool renews its)."""
    tick = os.sysconf("SC_CLK_TCK")
    total = sum(_ticks(pid)[:4])
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):
            total += sum(_ticks(int(child))[:2])
    return total / tick


def _ticks(pid: int) -> list[int]:
    """``utime``, ``stime``, and both of the children that were waited for (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


def wait(condition: Callable[[], bool]) -> None:
    """Poll until it holds."""
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > limit:
            sys.exit("the bench did not finish in time; see the logs in its folder")
        time.sleep(0.05)


def main() -> None:
    """Alternate between the two sides, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40, help="in one block")
    parser.add_argument("--rounds", type=int, default=11, help="blocks of each side")
    parser.add_argument("--serve", choices=["bare", "ours"])
    parser.add_argument("--url")
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.url, options.home)
        return
    with tempfile.TemporaryDirectory(prefix="kbw-bench-") as folder:
        home = Path(folder)
        valkey = EmbeddedValkey(home / "state", token=SystemClock().token)
        url = valkey.start().broker_url
        try:
            with running("bare", url, home) as bare, running("ours", url, home) as ours:
                sides = {"bare": lambda: bare.block(options.jobs), "ours": lambda: ours.block(options.jobs)}
                rounds = alternate(sides, options.rounds)
        finally:
            valkey.stop()
    print(f"{options.rounds} rounds of {options.jobs} jobs a side, load {os.getloadavg()[0]:.1f}; median (middle half)")
    for side in ("bare", "ours"):
        cpu, rate = ([getattr(one[side], what) for one in rounds] for what in ("cpu_ms", "rate"))
        print(f"{side:<5} {spread(cpu)} CPU ms a job, {spread(rate)} jobs/s")
    ratios = [one["ours"].cpu_ms / one["bare"].cpu_ms for one in rounds]
    print(f"ratio ours / bare: {spread(ratios, '.2f')} (aim: at most 2)")


if __name__ == "__main__":
    main()
