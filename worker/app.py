"""The Celery app: queues, settings, the stage tasks; must not decide anything about a job.

Start it through ``kbw`` only: bare ``celery -A`` would import a foreign ``tasks/`` of the current folder.
Reasons for the settings: facts/celery-redis (measured) and DESIGN §3.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from kombu.exceptions import OperationalError

from tasks.base import Fleet, register_shells
from tasks.pipeline import Pipeline
from tasks.queues import COMMIT, IO, LLM
from tasks.registry import PIPELINES
from worker.transport import TRANSPORT

WorkerClass = Literal["io", "llm", "commit"]
QUIT_S = 2.0
"""Celery's own cold shutdown takes less: it ends the children, and the messages go back to their queue."""


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
        # a server that refuses writes for a while (memory full, disk full, failover) is no reason to end the worker
        broker_channel_error_retry=True,
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
    shutdown_s: float,
) -> int:
    """Run a worker until it is told to stop; its exit code.

    SIGTERM: finish what runs, for ``shutdown_s`` seconds at most. SIGQUIT: leave at once. What still runs then is given
    back, and another worker takes it up.
    """
    for pipeline in PIPELINES.values():
        register_shells(app, pipeline, fleet)
    # it warns root, eleven lines a worker, that pickled messages could run code: ours are JSON, others are refused
    warnings.filterwarnings("ignore", category=SecurityWarning)
    signals.setup_logging.connect(lambda **_: None, weak=False)  # ours is set up already; celery must not add its own
    # celery writes "Warm shutdown" there, past every logger: our own lines say what happens
    sys.__stdout__ = None  # type: ignore[misc]  # final in typeshed; None is a value that Python documents
    leaver = Leaver(fleet, shutdown_s)

    def ready(**_: object) -> None:
        if KINDS[kind].pool == "threads":  # celery's own cold shutdown ends in an error there: it cannot kill a thread
            signal.signal(signal.SIGQUIT, lambda *_: leaver.leave_in(0.0))
        on_ready()

    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(leaver.on_shutdown, weak=False)
    signals.worker_process_shutdown.connect(lambda **_: fleet().ports.spans.close(), weak=False)  # a pool's child
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
    logging.getLogger("kbw.system").info("worker.stopped", extra={"kbw": {"worker": name}})
    return int(worker.exitcode or 0)


@dataclass(frozen=True)
class Leaver:
    """Ends a worker's process in time: Celery waits for its threads as long as they take, and nothing can end a thread.

    A model call may take minutes; whoever stops a worker (an operator, a container's runtime) kills it long before.
    """

    fleet: Callable[[], Fleet]
    shutdown_s: float

    def on_shutdown(self, how: str, **_: object) -> None:
        """Celery's signal: it finishes what runs (``Warm``) or ends it (``Cold``), and leaves by itself if it can."""
        self.leave_in(self.shutdown_s if how == "Warm" else QUIT_S)

    def leave_in(self, seconds: float) -> None:
        """From a thread of its own: a signal may have interrupted whoever holds a lock that leaving needs."""
        timer = threading.Timer(seconds, self._leave)
        timer.daemon = True
        timer.start()

    def _leave(self) -> None:
        fleet = self.fleet()
        logging.getLogger("kbw.system").warning("left.with.work", extra={"kbw": {"worker": fleet.worker}})
        fleet.leases.give_back_all()
        fleet.ports.spans.close()
        os._exit(0)
