"""Running processes: the whole tree, one class of workers, the intake; must not look into jobs."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeVar

from tasks.base import Fleet
from tasks.errors import JobError, StoreUnavailableError
from tasks.queues import IO
from worker.adapters.job_store.faults import ServerFaultError
from worker.adapters.job_store.guard import check_server
from worker.adapters.job_store.valkey import EmbeddedValkey
from worker.app import KINDS, WorkerClass, build_app, serve, waker
from worker.bootstrap import Workshop, worker_name, workshop
from worker.intake.loop import IntakeLoop
from worker.intake.message import register_submit
from worker.intake.serving import serve_side_by_side
from worker.owner import AlreadyOwnedError, Owner
from worker.reconciler import Chore, start_reconciler
from worker.semaphores import require_semaphores
from worker.settings import Settings, SettingsError, environment_for_children
from worker.supervisor import Part, Supervisor

log = logging.getLogger("kbw.system")
T = TypeVar("T")


def up(settings: Settings) -> int:
    """Intake and all workers until SIGTERM or Ctrl-C; with an embedded Valkey that is started first, stopped last."""
    shop = workshop(settings)
    if not shop.shared_dir.is_dir():
        raise SettingsError(f"OPENCLAW_SHARED_DIR={shop.shared_dir} is no folder; create or mount it")
    require_semaphores()  # said once here: the workers would die of it again and again
    if settings.redis.url:
        check_records(shop)
        _supervise(settings, settings.redis.url, lambda: None)
        return 0
    owner = Owner(shop.shared_dir, shop.clock.token(8), shop.clock.now)
    valkey = EmbeddedValkey(shop.state_dir, token=shop.clock.token)
    try:
        owner.take()
    except AlreadyOwnedError as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(f"{shop.shared_dir} cannot be written: {error.strerror}; see `kbw doctor`") from error
    try:
        address = valkey.start()
    except ServerFaultError as error:
        owner.release()
        raise SettingsError(str(error)) from error

    def each_round() -> None:
        try:
            owner.renew()
        except OSError as error:  # the share is away or full: jobs wait for it, and so do we
            log.warning("owner.unrenewed", extra={"kbw": {"reason": error.strerror}})
        if not valkey.alive():
            log.warning("valkey.restarted")
            valkey.restart()

    try:
        _supervise(settings, address.broker_url, each_round)
    except AlreadyOwnedError as error:
        raise SettingsError(str(error)) from error
    finally:
        owner.release()
        valkey.stop()
    return 0


def serve_worker(settings: Settings, kind: WorkerClass, concurrency: int | None) -> int:
    """One class of workers until told to stop; every worker also carries the reconciler."""
    shop = workshop(settings)
    if KINDS[kind].pool == "prefork":
        require_semaphores()
    check_records(shop)
    app = build_app(shop.redis_url, settings.redis.prefix, settings.redis.visibility_s)
    wake = waker(app)
    fleet = of_this_process(lambda: workshop(settings).fleet(wake))
    register_submit(app, IO, of_this_process(lambda: workshop(settings).message_intake(wake)))

    stop = Event()
    count = (
        concurrency or {"io": settings.worker.io, "llm": settings.worker.llm, "commit": settings.worker.commit}[kind]
    )
    name = f"{kind}@{worker_name(shop.clock.token(3))}"
    return serve(
        app,
        kind,
        count,
        name,
        fleet,
        on_ready=lambda: _on_ready(fleet(), workshop(settings).chores(), stop),
        shutdown_s=settings.worker.shutdown_s,
    )


def of_this_process(build: Callable[[], T]) -> Callable[[], T]:
    """Build once a process: connections and git readers must not cross a fork."""
    built: dict[int, T] = {}

    def own() -> T:
        pid = os.getpid()
        if pid not in built:
            built.clear()
            built[pid] = build()
        return built[pid]

    return own


def _on_ready(fleet: Fleet, chores: Sequence[Chore], stop: Event) -> None:
    log.info("worker.ready", extra={"kbw": {"worker": fleet.worker}})
    start_reconciler(fleet, stop, chores)


def serve_intake(settings: Settings) -> int:
    """All ways in (files, stream and, with a token, HTTP) until told to stop."""
    shop = workshop(settings)
    check_records(shop)
    wake = waker(build_app(shop.redis_url, settings.redis.prefix))
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    loop = IntakeLoop(
        scanner=shop.scanner(),
        intake=shop.intake(wake),
        views=shop.records.views,
        sweep=shop.records.sweep,
        archive=shop.records.archive,
        refusals=shop.refusals,
        name=worker_name(shop.clock.token(3)),
    )
    put_back_lost_jobs(shop)
    ways: list[tuple[str, Callable[[Event], None]]] = [
        ("files", lambda stop: loop.run(stop, settings.shared.poll_s)),
        ("stream", shop.stream_intake(wake).run),
    ]
    if settings.http.token.get_secret_value() or settings.knowledge.retrieval_token.get_secret_value():
        from worker.ops.http import http_server  # a web server is loaded only where one is wanted

        ways.append(("http", http_server(shop, shop.intake(wake)).run))
    serve_side_by_side(ways, stop)
    return 0


def put_back_lost_jobs(shop: Workshop) -> None:
    """Before payload files are looked at again: a job that Redis lost goes on where it stood, in its old order.

    A share that is not there yet is no reason not to start; the reconciler asks again.
    """
    try:
        shop.recovery_watch.look()
    except (JobError, StoreUnavailableError) as error:
        log.warning("recover.failed", extra={"kbw": {"reason": str(error)}})


def check_records(shop: Workshop) -> None:
    """Refuse, clearly, a server that may drop records. Raises :class:`SettingsError`."""
    try:
        for warning in check_server(shop.records.client, require_persistence=True):
            log.warning("redis.warning", extra={"kbw": {"reason": warning}})
    except ServerFaultError as error:
        raise SettingsError(str(error)) from error


def _supervise(settings: Settings, redis_url: str, each_round: Callable[[], None]) -> None:
    # in the environment, not in argv: the URL may hold a password
    environment = environment_for_children({"KBW_REDIS_URL": redis_url})
    command = [sys.executable, "-P", "-m", "worker.cli"]
    parts = [Part("intake", [*command, "intake"])]
    parts += [Part(kind, [*command, "worker", "--class", kind]) for kind in ("io", "llm", "commit")]
    supervisor = Supervisor(parts, environment, settings.worker.shutdown_s, each_round)
    log.info("up", extra={"kbw": {"shared_dir": settings.shared.directory}})
    supervisor.run()
