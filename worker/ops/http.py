"""The HTTP way in of a running intake, and what it tells monitoring; must not decide about a job."""

from __future__ import annotations

from tasks.accept import Intake
from tasks.errors import StoreUnavailableError
from worker.bootstrap import Workshop
from worker.intake.http.app import Probe, Probes
from worker.intake.http.jobs_api import JobsApi
from worker.intake.http.server import HttpServer, read_address
from worker.settings import SettingsError


def http_server(shop: Workshop, intake: Intake) -> HttpServer:
    """The server at ``KBW_HTTP_ADDR``. Raises :class:`SettingsError` for an address that is none."""
    http = shop.settings.http
    try:
        address = read_address(http.addr)
    except ValueError as error:
        raise SettingsError(f"KBW_HTTP_ADDR={error}") from error
    jobs = JobsApi(intake, shop.records.views, shop.refusals, shop.mask)
    return HttpServer(address, jobs, probes_of(shop), http.token.get_secret_value())


def probes_of(shop: Workshop) -> Probes:
    """What monitoring is told."""
    return Probes(live=lambda: Probe(ok=True), ready=lambda: readiness_of(shop), metrics=lambda: figures_of(shop))


def readiness_of(shop: Workshop) -> Probe:
    """Whether a payload sent now could be accepted: Redis answers, the shared directory is mounted."""
    try:
        redis = sum(shop.records.views.counts().values()) >= 0
    except StoreUnavailableError:
        redis = False
    shared = shop.shared_dir.is_dir()
    return Probe(ok=redis and shared, facts={"redis": redis, "sharedDir": shared})


def figures_of(shop: Workshop) -> str:
    """Jobs by state in the Prometheus text format."""
    counts = shop.records.views.counts()
    lines = [f'kbw_jobs{{state="{state}"}} {number}' for state, number in sorted(counts.items())]
    return "\n".join(["# HELP kbw_jobs Known jobs by state.", "# TYPE kbw_jobs gauge", *lines, ""])
