"""The HTTP way in of a running intake, and what it tells monitoring; must not decide about a job."""

from __future__ import annotations

from tasks.accept import Intake
from tasks.ports import RepoRef
from worker.bootstrap import Workshop
from worker.intake.http.app import Probe, Probes
from worker.intake.http.jobs_api import JobsApi
from worker.intake.http.retrieval import RetrievalApi
from worker.intake.http.server import HttpServer, read_address
from worker.settings import SettingsError, listed


def http_server(shop: Workshop, intake: Intake) -> HttpServer:
    """The server at ``KBW_HTTP_ADDR``. Raises :class:`SettingsError` for an address that is none."""
    http = shop.settings.http
    try:
        address = read_address(http.addr)
    except ValueError as error:
        raise SettingsError(f"KBW_HTTP_ADDR={error}") from error
    jobs = JobsApi(intake, shop.records.views, shop.refusals, shop.mask)
    token = http.token.get_secret_value()
    return HttpServer(address, jobs, probes_of(shop), token, retrieval=retrieval_of(shop))


def retrieval_of(shop: Workshop) -> RetrievalApi | None:
    """The team's pages in Dify's form; ``None`` without ``KBW_RETRIEVAL_TOKEN``.

    Only ``KBW_ALLOWED_REPOS``, else ``TEAM_KB_REPO``: the bot may read more than this token's holder should.
    """
    token = shop.settings.knowledge.retrieval_token.get_secret_value()
    if not token:
        return None
    gitea = shop.settings.gitea
    owner = gitea.org or gitea.username
    served: dict[str, RepoRef] = {}
    for named in listed(gitea.allowed_repos) or listed(gitea.repo):
        its_owner, _, name = named.rpartition("/")
        repo = RepoRef(its_owner or owner, name)
        served[str(repo).casefold()] = repo
    return RetrievalApi(shop.kb, lambda wanted: served.get(wanted.casefold()), token, shop.mask.value)


def probes_of(shop: Workshop) -> Probes:
    """What monitoring is told: the same as by ``kbw health`` and ``kbw metrics``."""
    gauges = shop.gauges
    return Probes(
        live=lambda: Probe(*gauges.live()),
        ready=lambda: Probe(*gauges.ready()),
        metrics=gauges.text,
    )
