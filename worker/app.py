"""The Celery app: queues, settings, the stage tasks; must not decide anything about a job.

Start it through ``kbw`` only: bare ``celery -A`` would import a foreign ``tasks/`` of the current folder.
Reasons for the settings: facts/celery-redis (measured) and DESIGN §3.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from kombu.exceptions import OperationalError

from tasks.base import Fleet, register_shells
from tasks.pipeline import Pipeline
from tasks.query import COMMIT, IO, LLM
from tasks.registry import PIPELINES
from worker.transport import TRANSPORT

WorkerClass = Literal["io", "llm", "commit"]


@dataclass(frozen=True)
class WorkerKind:
    """One class of workers: its queue and its pool. Threads for the model: waiting for it needs no process."""

    queue: str
    pool: Literal["prefork", "threads"]


KINDS: dict[WorkerClass, WorkerKind] = {
    "io": WorkerKind(IO, "prefork"),
    "llm": WorkerKind(LLM, "threads"),
    "commit": WorkerKind(COMMIT, "prefork"),
}


def build_app(redis_url: str, prefix: str, visibility_s: int = 3_600) -> Celery:
    """An app that can send wake-up calls; :func:`serve` makes a worker of it.

    A message that its worker did not acknowledge in ``visibility_s`` seconds comes once more. Longer than the longest
    stage: the reconciler is the fast repair, not the broker.
    """
    app = Celery("kbw", broker=redis_url, set_as_current=False)
    app.conf.update(
        broker_transport=TRANSPORT,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_max_tasks_per_child=1_000,
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": visibility_s,
            "unacked_mutex_expire": 20,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "health_check_interval": 10,
            "socket_keepalive": True,
            "socket_connect_timeout": 5,
            "global_keyprefix": f"{prefix}mq:",
            "client_name": "kbw",
        },
    )
    return app


def waker(app: Celery) -> Callable[[Pipeline, str, str], None]:
    """Sends wake-up calls: only the ``taskId`` travels. A call that cannot be sent is left to the sweep."""

    def wake(pipeline: Pipeline, stage: str, task_id: str) -> None:
        try:
            app.send_task(pipeline.task_name(stage), args=[task_id], queue=pipeline.step(stage).queue, retry=False)
        except OperationalError as error:
            logging.getLogger("kbw.job").warning(
                "wake.unsent", extra={"kbw": {"task_id": task_id, "stage": stage, "reason": type(error).__name__}}
            )

    return wake


def serve(
    app: Celery,
    kind: WorkerClass,
    concurrency: int,
    name: str,
    fleet: Callable[[], Fleet],
    on_ready: Callable[[], None],
) -> int:
    """Run a worker until it is told to stop (SIGTERM: finish what runs, then leave); its exit code."""
    for pipeline in PIPELINES.values():
        register_shells(app, pipeline, fleet)
    # it warns root, eleven lines a worker, that pickled messages could run code: ours are JSON, others are refused
    warnings.filterwarnings("ignore", category=SecurityWarning)
    signals.setup_logging.connect(lambda **_: None, weak=False)  # ours is set up already; celery must not add its own
    signals.worker_ready.connect(lambda **_: on_ready(), weak=False)
    worker = app.Worker(
        pool=KINDS[kind].pool,
        concurrency=concurrency,
        queues=[KINDS[kind].queue],
        hostname=name,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
