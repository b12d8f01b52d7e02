"""The README's first command on a fresh machine: a clone, an empty HOME, nothing but python3 and git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.system import ROOT

pytestmark = pytest.mark.acceptance
KEPT = ("PATH", "LANG", "PIP_CERT", "PIP_INDEX_URL", "PIP_FIND_LINKS", "SSL_CERT_FILE", "HTTPS_PROXY")


@pytest.mark.timeout(1200)
def test_the_demo_runs_from_the_run_time_lock_alone(tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    environment |= {"HOME": str(tmp_path / "home"), "KBW_PYTHON": sys._base_executable, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    checkout = tmp_path / "kbw"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):  # the working tree, without what git does not know
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "probe"), "six"]
    try:
        reached = subprocess.run(probe, env=environment, capture_output=True, check=False, timeout=120).returncode == 0
    except subprocess.TimeoutExpired:  # pip's own patience with a network that swallows everything is about as long
        reached = False
    if not reached:
        pytest.skip("no package registry can be reached from here: a fresh machine cannot be set up")
    done = subprocess.run([str(checkout / "kbw"), "demo"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "replies written by hand" in done.stdout
    assert "Task-Id: query-demo-1" in done.stdout
    assert done.stdout.count("Result  shared/results/") == 3
