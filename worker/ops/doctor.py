"""``kbw doctor``: checks each thing a system needs and names the line that mends it; must not change anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click
import redis

from tasks.errors import Code, JobError, StoreUnavailableError
from tasks.knowledge.secrets import variables_in
from tasks.knowledge.validate import mounted_nodes
from tasks.ports import RepoRef
from worker.adapters.job_store.binary import find_binary
from worker.adapters.job_store.faults import ServerFaultError
from worker.adapters.job_store.guard import check_server
from worker.adapters.kb_git.process import MIN_GIT, git_version
from worker.adapters.otlp_spans import headers_can_be_read, is_installed, problem_of, shown_endpoint
from worker.bootstrap import Workshop, workshop
from worker.knowledge_config import checked_files
from worker.semaphores import CURE, semaphore_problem
from worker.settings import Settings, SettingsError, source_variable, unknown_variables

MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}
PROBE = "找一条 探测 探测 探测问题 的 钩子 型事件素材"
"""What the check of material retrieval asks for: nothing is found, or something is, both are an answer."""


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``cure``: the line that mends it."""

    area: str
    status: Literal["ok", "warn", "fail"]
    found: str
    cure: str = ""


def examine(settings: Settings, *, as_json: bool) -> int:
    """Run all checks; exit code 1 when one is bad."""
    checks: list[Check] = []
    for area, look in AREAS.items():
        try:
            found = list(look(settings))
        except (SettingsError, StoreUnavailableError) as error:
            found = [Check(area, "fail", str(error))]
        except Exception as error:  # noqa: BLE001 - a check that fails is a finding, the others still run
            found = [Check(area, "fail", f"{type(error).__name__}: {error}")]
        for check in found:
            checks.append(check)
            if not as_json:
                click.echo(f"{MARKS[check.status]}  {check.area:<10} {check.found}")
                if check.cure:
                    click.echo(f"      {'':<10} → {check.cure}")
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], ensure_ascii=False, indent=2))
    return 1 if any(check.status == "fail" for check in checks) else 0


def print_settings(settings: Settings, *, as_json: bool) -> int:
    """Every setting with value, origin and meaning; secrets only as set or not set."""
    rows = settings.rows()
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], ensure_ascii=False, indent=2))
        return 0
    for row in rows:
        click.echo(f"{row.name:<34} {row.value or '—':<28} {row.origin:<12} {row.meaning}")
    return 0


def _names(_settings: Settings) -> Iterator[Check]:
    """A misspelt variable is silently without effect: the one fault that nothing else would tell."""
    for name, near in unknown_variables().items():
        cure = f"did you mean {near}? " if near else ""
        yield Check("settings", "warn", f"{name} is no setting", f"{cure}`kbw doctor --settings` lists all")


def _git(_settings: Settings) -> Iterator[Check]:
    if shutil.which("git") is None:
        yield Check("git", "fail", "git is not on the PATH", "apt-get install -y git")
        return
    version, needed = git_version(), ".".join(map(str, MIN_GIT))
    fine = version >= MIN_GIT
    text = f"git version {'.'.join(map(str, version))}"
    yield Check("git", "ok" if fine else "fail", text, "" if fine else f"install git {needed} or newer")


def _knowledge_base(settings: Settings) -> Iterator[Check]:
    gitea = settings.gitea
    if not gitea.url:
        yield Check("kb", "fail", "GITEA_URL is not set", "set GITEA_URL to the base URL of your Gitea")
        return
    if not gitea.token.get_secret_value():
        yield Check("kb", "warn", "GITEA_BOT_TOKEN is not set", "set it to a token with write:repository")
    if not gitea.repo:
        yield Check("kb", "warn", "TEAM_KB_REPO is not set: every payload must name team.kbRepo")
        return
    owner, _, name = gitea.repo.rpartition("/")
    repo = RepoRef(owner or gitea.org or gitea.username, name)
    shop = _anywhere(settings)
    try:
        snapshot = shop.kb.latest(repo, fresh=True)
        yield Check("kb", "ok", f"{repo} at {gitea.url}: {snapshot.page_count} pages at {snapshot.commit[:12]}")
        problem = shop.mirrors.push_problem(repo)
        if problem:
            yield Check("kb", "fail", f"the token may not push to {repo}: {problem}", "give the bot write access")
        else:
            yield Check("kb", "ok", f"the token may push to {repo}")
    except JobError as error:
        cure = "check GITEA_URL and the network" if error.code == Code.KB_UNREACHABLE else ""
        yield Check("kb", "fail", f"{error.code}: {error.en}", cure)


def _shared(settings: Settings) -> Iterator[Check]:
    shop = workshop(settings)
    if not shop.shared_dir.is_dir():
        yield Check(
            "shared", "fail", f"{shop.shared_dir} is no folder", "create or mount it, or mend OPENCLAW_SHARED_DIR"
        )
        return
    own = shop.shared_dir / ".kbw"
    probe, renamed = own / f".doctor.{shop.clock.token(4)}", own / f".doctor.{shop.clock.token(4)}"
    try:
        own.mkdir(exist_ok=True)
        probe.write_bytes(b"kbw doctor")
        probe.rename(renamed)
        renamed.unlink()
    except OSError as error:
        yield Check("shared", "fail", f"{own}: {error.strerror}", "let this user write and rename below .kbw")
        return
    yield Check("shared", "ok", f"{shop.shared_dir} can be written; rename works")
    free = shutil.disk_usage(shop.shared_dir).free
    if free < 500 * 1024 * 1024:
        yield Check("shared", "warn", f"only {free // 2**20} MiB are free", "free disk space")
    for root in shop.roots.roots:
        if not root.is_dir():
            yield Check("shared", "warn", f"KBW_ALLOWED_ROOTS names {root}, which is no folder")


def _redis(settings: Settings) -> Iterator[Check]:
    shop = _anywhere(settings)
    if not settings.redis.url:
        try:
            yield Check("redis", "ok", f"embedded server binary: {find_binary()}")
        except ServerFaultError as error:
            yield Check("redis", "fail", error.en, error.cure)
            return
    try:
        for warning in check_server(shop.records.client, require_persistence=True):
            yield Check("redis", "warn", warning)
        yield Check("redis", "ok", "answers, keeps its data, evicts nothing")
    except SettingsError as error:
        yield Check("redis", "warn", str(error))
    except ServerFaultError as error:
        yield Check("redis", "fail", error.en, error.cure)
    except redis.RedisError as error:
        yield Check("redis", "fail", f"KBW_REDIS_URL: {type(error).__name__}", "check host, port and password")


def _workers(_settings: Settings) -> Iterator[Check]:
    problem = semaphore_problem()
    yield Check("workers", "fail", problem, CURE) if problem else Check("workers", "ok", "processes can be started")


def _model(settings: Settings) -> Iterator[Check]:
    driver = _anywhere(settings).model
    for finding in driver.probe():
        yield Check("model", finding.level, f"{finding.check}: {finding.message}", finding.cure)


def _knowledge_sources(settings: Settings) -> Iterator[Check]:
    """The files, and the variables that mounted sources name; no source is called (`kbw knowledge probe` does)."""
    checked = checked_files(settings)
    for finding in checked.findings:
        if finding.level != "note":
            status: Literal["warn", "fail"] = "fail" if finding.level == "error" else "warn"
            told = f"{finding.file}:{finding.line} {finding.code} {finding.where}: {finding.message}"
            yield Check("knowledge", status, told, finding.cure)
    if checked.errors:
        return
    mounted = {name for _, _, node in mounted_nodes(checked.pipelines) for name in node.knowledge_ref}
    for spec in checked.knowledge.knowledge:
        texts = (spec.config.endpoint, *spec.config.headers.values())
        for name in dict.fromkeys(name for text in texts for name in variables_in(text)):
            if not (source_variable(name) or "").strip():
                missing: Literal["warn", "fail"] = "fail" if spec.id in mounted else "warn"
                found = f"source {spec.id}: environment variable {name} is not set"
                yield Check("knowledge", missing, found, f"set {name} for the workers")
    count = len(checked.knowledge.knowledge)
    yield Check(
        "knowledge", "ok", f"{count} source(s), {len(mounted)} mounted" if count else "no sources: none is needed"
    )


def _material(settings: Settings) -> Iterator[Check]:
    """Only what is set up: without WeKnora and local files, material retrieval is off and nothing is wrong."""
    desk = _anywhere(settings).material
    kb_id, timeout = settings.material.kb_id, settings.material.timeout_s
    if desk.weknora is not None:
        found = desk.weknora.find(kb_id, PROBE, timeout=timeout)
        fine = found.status.answered
        cure = "" if fine else "check KBW_WEKNORA_* and the server; jobs go on with the local files or without material"
        yield Check(
            "material", "ok" if fine else "warn", f"WeKnora, {kb_id!r}: {found.status} {found.detail}".rstrip(), cure
        )
    if desk.local is not None:
        found = desk.local.find(kb_id, PROBE, timeout=timeout)
        fine = found.status.answered
        cure = "" if fine else "KBW_MATERIAL_DIR must hold references/素材库/*.md"
        yield Check("material", "ok" if fine else "warn", f"local files: {found.status} {found.detail}".rstrip(), cure)


def _traces(settings: Settings) -> Iterator[Check]:
    """Spans are an option: off is fine, on and lost is worth a word."""
    collector = _anywhere(settings).collector
    if not collector.endpoint:
        yield Check("traces", "ok", "no spans are sent (OTEL_EXPORTER_OTLP_ENDPOINT is not set)")
    elif not is_installed():
        cure = "in a checkout: .venv/bin/pip install '.[otel]'"
        yield Check("traces", "warn", "OTEL_EXPORTER_OTLP_ENDPOINT is set, but the extra otel is not installed", cure)
    elif problem := problem_of(collector):
        cure = "check OTEL_EXPORTER_OTLP_ENDPOINT and the collector; jobs go on without"
        yield Check("traces", "warn", f"spans are lost: {problem}", cure)
    else:
        yield Check("traces", "ok", f"spans go to {shown_endpoint(collector)}")
        if headers_can_be_read(collector):
            found = f"the headers for {shown_endpoint(collector)} can be read on the way"
            yield Check("traces", "warn", found, "use https, or a collector on this host")


def _anywhere(settings: Settings) -> Workshop:
    """For checks that need no shared directory."""
    return Workshop(settings, Path(settings.shared.directory or ".").expanduser().absolute())


AREAS: dict[str, Callable[[Settings], Iterator[Check]]] = {
    "settings": _names,
    "git": _git,
    "kb": _knowledge_base,
    "shared": _shared,
    "redis": _redis,
    "workers": _workers,
    "model": _model,
    "material": _material,
    "knowledge": _knowledge_sources,
    "traces": _traces,
}
