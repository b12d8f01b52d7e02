"""The agent's way in: the script hands the old arguments on as they are, and nothing but the three file commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import frontmatter
import pytest

SKILL = Path(__file__).resolve().parents[2] / "config" / "openclaw" / "kb_query"


def run(arguments: list[str], path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SKILL / "scripts" / "run_task.py"), *arguments]
    environment = {"PATH": str(path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a ``kbw`` that shows what it was called with and fails."""
    kbw = tmp_path / "kbw"
    kbw.write_text('#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\nexit 1\n', "utf-8")
    kbw.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("command", ["prepare", "fetch", "apply"])
def test_arguments_and_exit_code_go_through_unchanged(installed: Path, command: str) -> None:
    done = run([command, "--input", "a b; $(id)", "--answer", "答.json"], installed)
    assert done.stdout.splitlines() == [f"[{command}]", "[--input]", "[a b; $(id)]", "[--answer]", "[答.json]"]
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", [[], ["submit", "x"], ["dlq", "drop"], ["--help"]])
def test_no_other_command_is_handed_on(installed: Path, arguments: list[str]) -> None:
    done = run(arguments, installed)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "prepare|fetch|apply" in done.stderr


def test_a_missing_kbw_is_told(tmp_path: Path) -> None:
    done = run(["prepare"], tmp_path)
    assert done.returncode == 1
    assert "kbw is not on the PATH" in done.stderr


def test_the_skill_names_itself_and_every_step() -> None:
    skill = frontmatter.load(str(SKILL / "SKILL.md"))
    assert skill["name"] == "kb_query"
    assert skill["metadata"]["openclaw"]["requires"]["bins"] == ["python3", "kbw"]
    steps = [skill.content.index(f"run_task.py {command}") for command in ("prepare", "fetch", "apply")]
    assert steps == sorted(steps)
    assert "安全代价" in skill.content
