"""The HTTP way in of a running intake, and what it tells monitoring; must not decide about a job."""

from __future__ import annotations

from tasks.accept import Intake
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
    """What monitoring is told: the same as by ``kbw health`` and ``kbw metrics``."""
    gauges = shop.gauges
    return Probes(
        live=lambda: Probe(*gauges.live()),
        ready=lambda: Probe(*gauges.ready()),
        metrics=gauges.text,
    )
