"""What the image is made of, without Docker: the wheel, installed elsewhere; the seeding scripts; the alerts' tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tasks.contract.payload import Payload
from tests.acceptance.system import PATIENCE_S
from worker.demo.git_server import GitServer

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "compose" / "dev"
BOT, TOKEN = "kbw-bot", "dev-bot-password"


def run(*command: str | Path, cwd: Path, code: int = 0, **environment: str) -> str:
    """Standard output; the environment is bare, as in a container."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(cwd), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as in the Dockerfile, out of exactly what it copies."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("config", "tasks", "worker"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    run(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", dist, ".", cwd=source)
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with our wheel; the libraries are those of the tests, by reference."""
    home = tmp_path_factory.mktemp("image") / "kbw"
    venv.create(home, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    into = ("--python", home / "bin" / "python")
    run(sys.executable, "-m", "pip", *into, "install", "--no-index", "--no-deps", wheel, cwd=home)
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def files_below(folder: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_two_packages_and_the_configuration_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = next(name for name in names if ".data/data/" in name).partition("/data/")[0] + "/data/share/kbw/"
    ours = {name for name in names if ".dist-info/" not in name}

    assert ours == {*files_below("worker"), *files_below("tasks"), *(data + name for name in files_below("config"))}
    assert {"tasks/prompts/answer.md", "worker/adapters/job_store/scripts/claim.lua", "worker/py.typed"} <= ours


def test_both_packages_belong_to_our_distribution(installed: Path) -> None:
    program = "import importlib.metadata as m, json; print(json.dumps(m.packages_distributions()))"
    owners = json.loads(run(installed / "bin" / "python", "-P", "-c", program, cwd=installed))

    assert owners["worker"] == owners["tasks"] == ["kb-query-worker"]


def test_the_installed_command_works_in_a_folder_with_packages_of_the_same_names(
    installed: Path, tmp_path: Path
) -> None:
    for name in ("tasks", "worker"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a foreign package was imported')")
    kbw = installed / "bin" / "kbw"

    assert "health" in run(kbw, "--help", cwd=tmp_path)
    assert json.loads(run(kbw, "schema", "result", cwd=tmp_path))["$id"] == "kbw/result"
    checks = json.loads(run(kbw, "doctor", "--json", cwd=tmp_path, code=1, OPENCLAW_SHARED_DIR=str(tmp_path)))
    assert {check["area"] for check in checks if check["status"] == "ok"} >= {"git", "shared", "redis"}


def test_the_installed_command_finds_the_configuration_it_was_shipped_with(installed: Path, tmp_path: Path) -> None:
    program = "from worker.settings import Settings, config_dir; print(config_dir(Settings.load()))"
    found = run(installed / "bin" / "python", "-P", "-c", program, cwd=tmp_path)

    assert Path(found.strip()) == installed / "share" / "kbw" / "config"
    assert (installed / "share" / "kbw" / "config" / "demo" / "replies.json").is_file()


# ---------------------------------------------------------------- the scripts of compose.dev.yaml


GITEA = """#!/bin/sh
echo "$@" >>"$GITEA_CALLS"
case "$*" in
"admin user list") printf 'ID Username Email\\n'; cat "$GITEA_USERS" ;;
"admin user create"*) printf '1 %s x\\n' "$5" >>"$GITEA_USERS" ;;
esac
"""


def test_seeding_makes_the_account_pushes_the_pages_once_and_can_be_repeated(tmp_path: Path) -> None:
    stub = tmp_path / "bin" / "gitea"
    stub.parent.mkdir()
    stub.write_text(GITEA)
    stub.chmod(0o755)
    (tmp_path / "users").write_text("")
    with GitServer(tmp_path / "git", BOT, TOKEN) as server:
        server.create(BOT, "kb")  # Gitea makes it at the first push
        environment = {
            "PATH": f"{stub.parent}:{os.environ['PATH']}",
            "GITEA_CALLS": str(tmp_path / "calls"),
            "GITEA_USERS": str(tmp_path / "users"),
            "GITEA_URL": server.url,
            "GITEA_BOT_USERNAME": BOT,
            "GITEA_BOT_TOKEN": TOKEN,
            "KB_DIR": str(ROOT / "config" / "demo" / "kb"),
        }
        first = run("sh", DEV / "seed.sh", cwd=tmp_path, **environment)
        head = server.head(BOT, "kb")
        second = run("sh", DEV / "seed.sh", cwd=tmp_path, **environment)

        pages = server.git(BOT, "kb", "ls-tree", "-r", "--name-only", head).split()
        assert "catalog.json" in pages
        assert len(pages) == len(files_below("config/demo/kb"))
        assert server.head(BOT, "kb") == head
    assert "pushed" in first
    assert "already" in second
    assert (tmp_path / "calls").read_text().count("admin user create") == 1


def test_asking_drops_payloads_that_the_worker_reads(tmp_path: Path) -> None:
    run(
        "sh",
        DEV / "ask.sh",
        cwd=tmp_path,
        OPENCLAW_SHARED_DIR=str(tmp_path),
        DEMO_DIR=str(ROOT / "config" / "demo"),
        GITEA_URL="http://gitea:3000",
        GITEA_BOT_USERNAME=BOT,
    )
    dropped = sorted((tmp_path / "payloads").iterdir())

    assert [path.stem for path in dropped] == ["query-demo-1", "query-demo-2", "query-demo-3"]
    for path in dropped:
        payload = Payload.model_validate_json(path.read_bytes())
        assert "${" not in path.read_text("utf-8")
        assert payload.task_id == path.stem
        assert Path(payload.result_file or "").parent.is_dir()
        assert all(Path(attached.storage_path or "").is_file() for attached in payload.attachments)


# ---------------------------------------------------------------- alerts


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not on the PATH")
def test_alerts_fire_when_they_should_and_the_configuration_is_valid() -> None:
    monitoring = ROOT / "compose" / "monitoring"

    assert "SUCCESS" in run("promtool", "check", "config", "prometheus.yml", cwd=monitoring)
    assert "SUCCESS" in run("promtool", "test", "rules", "alerts.test.yml", cwd=monitoring)
