"""Settings become adapters become ports: the only place that constructs; must not decide anything about a job."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import urlsplit

from tasks.accept import Intake
from tasks.base import Fleet
from tasks.contract.context import Limits
from tasks.pipeline import Pipeline
from tasks.ports import MaterialDesk, MaterialSource, Ports, ResultSink, Spans
from tasks.registry import pipeline_of
from worker import __version__
from worker.adapters.attachments.cache import PreviewCache
from worker.adapters.attachments.reader import ChildProcessReader
from worker.adapters.job_files import FolderStore
from worker.adapters.job_store.streams import JobStreams
from worker.adapters.kb_git.committer import Committer
from worker.adapters.kb_git.dense import Multilingual, is_installed
from worker.adapters.kb_git.mirror import Mirrors
from worker.adapters.kb_git.snapshot import GitKbReader
from worker.adapters.kb_git.terms import Synonyms, count_terms
from worker.adapters.model.factory import ModelConfig, ProbedDriver, build_driver
from worker.adapters.otlp_spans import Collector, open_spans
from worker.adapters.publish.result_file import ResultFileSink
from worker.adapters.publish.result_stream import FileAndStreamSink
from worker.adapters.weknora.absence import RememberedAbsence
from worker.adapters.weknora.http import WeknoraWire
from worker.adapters.weknora.local_md import LocalCards
from worker.adapters.weknora.mcp import WeknoraMcp
from worker.adapters.weknora.mcp_session import McpServer, McpSession
from worker.adapters.weknora.rest import WeknoraRest
from worker.bootstrap_knowledge import KnowledgeShop
from worker.bootstrap_record import RecordShop, shared_dir_of
from worker.counting import CountedModel, CountedWriter, count_landed, counted_material, counted_mounts
from worker.intake.message import MessageIntake
from worker.intake.refusal import Refusals
from worker.intake.shared_dir import SharedDirScanner
from worker.intake.stream import DeadLetters, StreamIntake
from worker.masking import SecretMask, mask_of
from worker.material_rules import load_material_rules
from worker.outbound import AllowedHosts, Outbound
from worker.paths import OWN_FOLDER, AllowedRoots
from worker.reconciler import Chore
from worker.repositories import RepositoryRules
from worker.settings import Settings, SettingsError, config_dir
from worker.upkeep import FolderWatch, Upkeep, prune, told_of

DAY_S = 86_400
RECOVER_EVERY_S = 15.0
PRUNE_FIRST_S, PRUNE_EVERY_S = 60.0, 3_600.0


@dataclass(frozen=True)
class Workshop(RecordShop):
    """Everything built from one set of settings for one shared directory; each part when it is first asked for."""

    @cached_property
    def mask(self) -> SecretMask:
        """All configured secrets."""
        return mask_of(self.settings)

    @cached_property
    def file_mode(self) -> int | None:
        """Mode of files we write; ``None``: 0666 & ~umask."""
        return int(self.settings.shared.file_mode, 8) if self.settings.shared.file_mode else None

    @cached_property
    def roots(self) -> AllowedRoots:
        """Where files named by payloads may lie."""
        named = self.settings.shared.allowed_roots
        return AllowedRoots(self.shared_dir, [Path(root).expanduser() for root in named.split(":") if root])

    @cached_property
    def folders(self) -> FolderStore:
        """The job folders."""
        return FolderStore(self.shared_dir, self.mask, self.file_mode)

    @cached_property
    def sink(self) -> ResultFileSink:
        """Where results go without Redis."""
        return ResultFileSink(self.roots, self.file_mode)

    @cached_property
    def refusals(self) -> Refusals:
        """Where that goes which never became a job."""
        return Refusals(self.roots, self.mask, self.file_mode)

    @cached_property
    def cache_dir(self) -> Path:
        """Mirror, index, attachment cache; deletable."""
        return Path(self.settings.worker.cache_dir).expanduser()

    @cached_property
    def mirrors(self) -> Mirrors:
        """This machine's copies of the repositories."""
        gitea = self.settings.gitea
        token = gitea.token.get_secret_value()
        return Mirrors(self.cache_dir / "mirrors", gitea.url, gitea.username, token, self.clock)

    @cached_property
    def kb(self) -> GitKbReader:
        """Reads repositories."""
        encoder = Multilingual() if is_installed() else None
        return GitKbReader(self.mirrors, search_words(self.settings), encoder)

    @cached_property
    def writer(self) -> Committer:
        """Writes QA pages."""
        return self.committer()

    def committer(self, landed: Callable[[int], None] = lambda _pages: None) -> Committer:
        """The same; ``landed`` is told of each commit, with the number of its pages."""
        return Committer(self.mirrors, self.clock, author=self.settings.gitea.username, landed=landed)

    @cached_property
    def attachments(self) -> ChildProcessReader:
        """Reads attached files."""
        return ChildProcessReader(self.roots, PreviewCache(self.cache_dir / "attachments"))

    @cached_property
    def model(self) -> ProbedDriver:
        """The model endpoint."""
        model = self.settings.model
        return build_driver(
            ModelConfig(
                driver=model.driver,
                gateway_url=model.gateway_url,
                gateway_token=model.gateway_token.get_secret_value(),
                agent=model.agent,
                base_url=model.base_url,
                api_key=model.api_key.get_secret_value(),
                model=model.name,
                recorded_file=model.recorded_file,
            ),
            self.clock,
        )

    @cached_property
    def knowledge(self) -> KnowledgeShop:
        """Sources of knowledge beside the team's own."""
        return KnowledgeShop(self.settings, self.clock)

    @cached_property
    def repositories(self) -> RepositoryRules:
        """Which repository a payload means."""
        gitea = self.settings.gitea
        return RepositoryRules(
            gitea_url=gitea.url,
            default_owner=gitea.org or gitea.username,
            default_repo=gitea.repo,
            allowed_repos=_listed(gitea.allowed_repos),
            allowed_urls=_listed(gitea.allowed_urls),
        )

    def ports(self, *, fresh_kb: bool, sink: ResultSink | None = None) -> Ports:
        """What stages use. ``fresh_kb``: look the remote's head up for every job (the file commands)."""
        return Ports(
            kb=self.kb,
            writer=self.writer,
            attachments=self.attachments,
            model=self.model,
            sink=sink or self.sink,
            folders=self.folders,
            clock=self.clock,
            resolve_repo=self.repositories.resolve,
            limits=Limits(**self.settings.limits.model_dump()),
            fresh_kb=fresh_kb,
            session_mode=self.settings.model.session_mode,
            model_timeout_s=self.settings.model.timeout_s,
            material=self.material,
            knowledge=self.knowledge.mounts,
            spans=self.spans,
        )

    @cached_property
    def material(self) -> MaterialDesk:
        """Material retrieval: WeKnora, if one is configured, and the local files, if their folder is."""
        settings = self.settings.material
        local = Path(settings.local_dir).expanduser() if settings.local_dir else None
        source = self.weknora()
        return MaterialDesk(
            rules=load_material_rules(config_dir(self.settings), settings),
            weknora=RememberedAbsence(source, self.clock) if source else None,
            local=LocalCards(local, count_terms, match_count=settings.match_count) if local else None,
        )

    @cached_property
    def collector(self) -> Collector:
        """Where spans go, if anywhere."""
        trace, name = self.settings.trace, worker_name(self.clock.token(3))
        return Collector(trace.endpoint, trace.headers.get_secret_value(), trace.service, __version__, name)

    @cached_property
    def spans(self) -> Spans:
        """Tells what stages took."""
        return open_spans(self.collector)

    def weknora(self, *, match_count: int = 0) -> MaterialSource | None:
        """Searching WeKnora as it is configured; ``match_count``: another number of cards than configured."""
        material = self.settings.material
        if match_count:  # past the settings' own limit: an evaluation looks further than a task may
            material = material.model_copy(update={"match_count": match_count})
        over_mcp = bool(material.mcp_url or material.mcp_command) and material.via != "rest"
        if over_mcp:
            key = material.api_key.get_secret_value()
            server = McpServer(
                url=material.mcp_url,
                token=material.mcp_token.get_secret_value(),
                command=material.mcp_command,
                environment={"WEKNORA_BASE_URL": material.url, "WEKNORA_API_KEY": key} if material.url else {},
            )
            return WeknoraMcp(
                McpSession(server),
                self.clock,
                match_count=material.match_count,
                vector_threshold=material.vector_threshold,
                answers=material.answers,
            )
        return self.weknora_rest(match_count=match_count) if material.url and material.via != "mcp" else None

    def weknora_rest(self, *, ingest: bool = False, match_count: int = 0) -> WeknoraRest:
        """WeKnora over REST; ``ingest``: with the key of the production side. Raises :class:`SettingsError`."""
        material = self.settings.material
        if not material.url:
            raise SettingsError("KBW_WEKNORA_URL is not set: WeKnora's REST base URL, ends in /api/v1")
        key = (material.ingest_key.get_secret_value() if ingest else "") or material.api_key.get_secret_value()
        # an address that an operator set is allowed by being set
        outbound = Outbound(AllowedHosts((urlsplit(material.url).netloc.rpartition("@")[2],)), self.clock.monotonic)
        return WeknoraRest(
            WeknoraWire(material.url, key, outbound),
            self.clock,
            match_count=match_count or material.match_count,
            vector_threshold=material.vector_threshold,
            answers=material.answers,
        )

    def intake(self, wake: Callable[[Pipeline, str, str], None]) -> Intake:
        """What accepting needs."""
        records, clock = self.records, self.clock
        parts = (records.store, records.archive, self.folders, self.delivery, wake, self.mask.value)
        return Intake(*parts, token=clock.token, now=clock.now)

    @cached_property
    def streams(self) -> JobStreams:
        """Payloads in, results and dead letters out, for any language."""
        return JobStreams(self.redis_url, self.settings.redis.prefix)

    def upkeep(self, actor: str) -> Upkeep:
        """Recovery and pruning, in the name of ``actor``."""
        return Upkeep(
            archive=self.records.archive,
            ports=self.ports(fresh_kb=False),
            pipeline_of=pipeline_of,
            rejected=self.shared_dir / OWN_FOLDER / "rejected",
            trim=self.dead_stream.trim,
            actor=actor,
        )

    @cached_property
    def recovery_watch(self) -> FolderWatch:
        """Finds jobs that Redis lost."""
        return FolderWatch(self.upkeep("reconciler"))

    def chores(self) -> list[Chore]:
        """What the elected reconciler does beside waking."""
        upkeep, kept_s = self.upkeep("reconciler"), self.settings.job.retention_days * DAY_S
        return [
            Chore("recover", RECOVER_EVERY_S, self.recovery_watch.look),
            Chore("prune", PRUNE_EVERY_S, lambda: told_of(prune(upkeep, kept_s)), first_s=PRUNE_FIRST_S),
        ]

    @cached_property
    def delivery(self) -> FileAndStreamSink:
        """Where results go with Redis: the result file and the stream of results."""
        streams = self.streams
        return FileAndStreamSink(self.sink, publish=streams.publish, publish_once=streams.publish_once)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Where that goes which came by stream or message and never became a job."""
        return DeadLetters(self.streams, self.mask)

    def message_intake(self, wake: Callable[[Pipeline, str, str], None]) -> MessageIntake:
        """The Celery message as a way in."""
        return MessageIntake(self.intake(wake), self.refusals, self.dead_letters, self.streams.submit)

    def stream_intake(self, wake: Callable[[Pipeline, str, str], None]) -> StreamIntake:
        """One consumer of the stream of jobs."""
        return StreamIntake(
            streams=self.streams,
            intake=self.intake(wake),
            views=self.records.views,
            refusals=self.refusals,
            dead=self.dead_letters,
            name=worker_name(self.clock.token(3)),
            monotonic=self.clock.monotonic,
        )

    def scanner(self) -> SharedDirScanner:
        """Looks for payload files."""
        shared = self.settings.shared
        return SharedDirScanner(
            roots=self.roots,
            refusals=self.refusals,
            exclude=_listed(shared.exclude),
            settle_s=shared.settle_s,
            give_up_s=shared.give_up_s,
            monotonic=self.clock.monotonic,
        )

    def fleet(self, wake: Callable[[Pipeline, str, str], None]) -> Fleet:
        """What the shells of this process need; build it after the fork."""
        census, ports = self.records.census, self.ports(fresh_kb=False, sink=self.delivery)
        counted = replace(
            ports,
            model=CountedModel(ports.model, census),
            writer=CountedWriter(self.committer(partial(count_landed, census)), census),
            knowledge=counted_mounts(ports.knowledge, census),
            material=ports.material and counted_material(ports.material, census),
        )
        return Fleet(
            ports=counted,
            jobs=self.records.store,
            views=self.records.views,
            sweep=self.records.sweep,
            health=self.records.store,
            wake=wake,
            pipeline_of=pipeline_of,
            worker=worker_name(self.clock.token(3)),
            lease_s=self.settings.job.lease_s,
        )


def workshop(settings: Settings, shared_dir: Path | None = None) -> Workshop:
    """The workshop for the configured (or given) shared directory. Raises :class:`SettingsError` without one."""
    return Workshop(settings, shared_dir.absolute() if shared_dir else shared_dir_of(settings))


def search_words(settings: Settings) -> Synonyms:
    """Words of equal meaning for the search; none when the file is not there."""
    file = config_dir(settings) / "synonyms.txt"
    return Synonyms.read(file.read_text(encoding="utf-8")) if file.is_file() else Synonyms()


def worker_name(chance: str) -> str:
    """Unique among all processes of a fleet; tells an operator where to look."""
    return f"{socket.gethostname()}:{os.getpid()}:{chance}"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
