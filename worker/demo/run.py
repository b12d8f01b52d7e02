"""``kbw demo``: the whole system on one machine, on a demo knowledge base; must use only what a real set-up uses.

A git server with a token, embedded Valkey, real workers, payload files dropped into a shared directory, results read
from ``resultFile``. Only the model may be missing: then replies written by hand answer, and the screen says so.
"""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from worker.demo.git_server import GitServer
from worker.settings import Settings, SettingsError, config_dir, environment_for_children
from worker.supervisor import die_with_parent

OWNER, REPO, BOT = "team", "kb", "kbw-bot"
JOBS = ("query-demo-1", "query-demo-2", "query-demo-3")
RECORDED_S, MODEL_S, STOP_S = 90.0, 900.0, 40.0
TOLD_CHARS = 1_200


@dataclass(frozen=True)
class Stage:
    """Where the demo plays: its folder, and the data it is made from."""

    home: Path
    data: Path

    @property
    def shared_dir(self) -> Path:
        """The directory that backend and workers share."""
        return self.home / "shared"

    @property
    def environment(self) -> Path:
        """The settings of this demo, for the shell of whoever looks around."""
        return self.home / "environment.sh"

    @property
    def log(self) -> Path:
        """What ``kbw up`` says."""
        return self.home / "kbw-up.log"


def run_demo(*, keep: bool) -> int:
    """Exit code 0 when all three questions were answered and the QA page was committed."""
    started = time.monotonic()
    settings = Settings.load()
    data = config_dir(settings) / "demo"
    if not data.is_dir():
        raise SettingsError(f"the demo's data is not at {data}; run ./kbw demo from a checkout")
    stage = Stage(Path(tempfile.mkdtemp(prefix="kbw-demo-")), data)
    for name in ("payloads", "results"):
        (stage.shared_dir / name).mkdir(parents=True)
    shutil.copytree(data / "attachments", stage.shared_dir / "attachments")
    with GitServer(stage.home / "git", BOT, secrets.token_hex(20)) as server:
        server.create(OWNER, REPO, from_dir=data / "kb")
        click.echo(
            f"Knowledge base: {len(list((data / 'kb').rglob('*.md')))} Markdown files at {server.url}/{OWNER}/{REPO}"
        )
        recorded = settings.model.driver in ("", "recorded") and not (
            settings.model.gateway_url or settings.model.base_url
        )
        process = _start(stage, server, settings, recorded=recorded)
        try:
            return _play(stage, server, process, recorded=recorded, keep=keep, started=started)
        finally:
            _stop(process)


def _start(stage: Stage, server: GitServer, settings: Settings, *, recorded: bool) -> subprocess.Popen[bytes]:
    """``kbw up`` with the demo's settings; the token goes by environment, as an operator would give it."""
    model = settings.model
    changes = {
        "GITEA_URL": server.url,
        "GITEA_BOT_TOKEN": server.token,
        "GITEA_BOT_USERNAME": BOT,
        "GITEA_ORG": OWNER,
        "TEAM_KB_REPO": REPO,
        "OPENCLAW_SHARED_DIR": str(stage.shared_dir),
        "KBW_STATE_DIR": str(stage.home / "state"),
        "KBW_CACHE_DIR": str(stage.home / "cache"),
        "KBW_REDIS_URL": "",
        "KBW_ALLOWED_ROOTS": "",
        "KBW_ALLOWED_REPOS": "",
    }
    if recorded:
        changes |= {"KBW_MODEL_DRIVER": "recorded", "KBW_RECORDED_REPLIES": str(stage.data / "replies.json")}
        click.echo(
            "Model: none configured, so replies written by hand answer the three demo questions (driver: recorded)"
        )
    else:
        click.echo(f"Model: {model.gateway_url or model.base_url}")
    stage.environment.touch(0o600)
    stage.environment.write_text("".join(f"export {name}={shlex.quote(changes[name])}\n" for name in changes), "utf-8")
    click.echo(f"Starting embedded Valkey and workers (log: {stage.log})")
    with stage.log.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "worker.cli", "up"],
            env=environment_for_children(changes),
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


def _play(
    stage: Stage, server: GitServer, process: subprocess.Popen[bytes], *, recorded: bool, keep: bool, started: float
) -> int:
    head = server.head(OWNER, REPO)
    for task_id in JOBS:
        _drop(stage, server, task_id)
    results = _wait(stage, process, RECORDED_S if recorded else MODEL_S)
    if results is None:
        last = stage.log.read_text("utf-8", "replace").splitlines()[-12:]
        click.echo(
            "\n".join(["", "The demo did not finish. The end of its log:", *last, f"All of it: {stage.log}"]), err=True
        )
        return 1
    for task_id, result in results.items():
        _tell(stage, task_id, result)
    committed = server.head(OWNER, REPO)
    click.echo("\n── Commit ──")
    click.echo(
        server.git(OWNER, REPO, "-c", "core.quotePath=false", "show", "--stat", committed)
        if committed != head
        else "no commit was made"
    )
    _tell_places(stage, server)
    passed = all(result.get("success") for result in results.values())
    passed = passed and committed != head
    click.echo(f"\n{'Done' if passed else 'Failed'} in {time.monotonic() - started:.0f} s")
    if keep:
        click.echo("Everything keeps running; Ctrl-C stops it. In another terminal, to look around:\n")
        click.echo(f"  . {stage.environment}\n  ./kbw list    # show, doctor, submit, …")
        _until_interrupted(process)
    return 0 if passed else 1


def _drop(stage: Stage, server: GitServer, task_id: str) -> None:
    """What the Java backend does: write a temporary name, then rename."""
    template = string.Template((stage.data / "jobs" / f"{task_id}.json").read_text("utf-8"))
    text = template.substitute(sharedDir=stage.shared_dir, giteaUrl=server.url, giteaOwner=OWNER, kbRepo=REPO)
    target = stage.shared_dir / "payloads" / f"{task_id}.json"
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.write_text(text, "utf-8")
    temporary.rename(target)
    click.echo(f"Dropped {target.relative_to(stage.home)}: {json.loads(text)['question'][:60]}")


def _wait(stage: Stage, process: subprocess.Popen[bytes], patience: float) -> dict[str, dict[str, Any]] | None:
    """All results, or ``None`` when the system ended or took too long."""
    found: dict[str, dict[str, Any]] = {}
    limit = time.monotonic() + patience
    while len(found) < len(JOBS):
        if process.poll() is not None or time.monotonic() > limit:
            return None
        for task_id in JOBS:
            path = stage.shared_dir / "results" / f"{task_id}.json"
            if task_id not in found and path.exists():
                found[task_id] = json.loads(path.read_bytes())
                click.echo(f"Result  {path.relative_to(stage.home)} ({len(found)}/{len(JOBS)})")
        time.sleep(0.2)
    return {task_id: found[task_id] for task_id in JOBS}


def _tell(stage: Stage, task_id: str, result: dict[str, Any]) -> None:
    payload = json.loads((stage.shared_dir / "payloads" / f"{task_id}.json").read_bytes())
    click.echo(f"\n── {task_id}: {payload['question']}")
    answer = result.get("answer") or "\n".join(result.get("errors", []))
    click.echo(answer if len(answer) <= TOLD_CHARS else f"{answer[:TOLD_CHARS]}…")
    facts = {
        "knowledgeSufficient": result.get("knowledgeSufficient"),
        "createdQaPath": result.get("createdQaPath") or "—",
        "sources": len(result.get("sources", [])),
        "degraded": ", ".join(f"{d['stage']}={d['status']}" for d in result.get("degraded", [])) or "—",
    }
    click.echo("   " + " · ".join(f"{key}: {value}" for key, value in facts.items()))


def _tell_places(stage: Stage, server: GitServer) -> None:
    click.echo("\n── Where everything lies ──")
    for what, path in (
        ("results", stage.shared_dir / "results"),
        ("each job's artefacts", stage.shared_dir / ".kbw" / "jobs"),
        ("repository", server.repo_path(OWNER, REPO)),
        ("log of all workers", stage.log),
    ):
        click.echo(f"  {what:<22}{path}")
    click.echo(f"  one job's story       OPENCLAW_SHARED_DIR={stage.shared_dir} ./kbw show {JOBS[0]}")


def _until_interrupted(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait()
    except KeyboardInterrupt:
        click.echo("Stopping")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5.0)
