"""``./kbw test``: lint, types, direction of imports and all tests; must not hide what was skipped.

``--chaos``, ``--soak`` and ``--openclaw`` run the marked tests alone; other options go to pytest. A storm is told by
the environment: ``KBW_CHAOS_SEED`` repeats one, ``KBW_CHAOS_KILLS`` and ``KBW_SOAK_KILLS`` say how long it lasts.
Tests come in one order, so that a red run can be repeated; ``--randomly-seed=N`` tries another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / ".venv" / "bin"
MARKED = {"--chaos": "chaos", "--soak": "soak", "--openclaw": "openclaw"}
OPERATORS = ("KBW_", "GITEA_", "OPENCLAW_", "TEAM_KB_")
"""Settings of a real system must not reach the tests."""
ORDER = "--randomly-seed=2968087535"
STORM = ("KBW_CHAOS_SEED", "KBW_CHAOS_KILLS", "KBW_SOAK_KILLS")
CHECKS = (
    ("format", [str(BIN / "ruff"), "format", "--check", "--quiet", "."]),
    ("lint", [str(BIN / "ruff"), "check", "--quiet", "."]),
    ("types", [str(BIN / "mypy"), "--no-error-summary"]),
    ("directions", [str(BIN / "lint-imports"), "--no-cache"]),
)


def main(arguments: list[str]) -> int:
    """The exit code: 0 when every check and test passed."""
    environment = {k: v for k, v in os.environ.items() if k in STORM or not k.startswith(OPERATORS)}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    marks = [MARKED[option] for option in arguments if option in MARKED]
    others = [option for option in arguments if option not in MARKED]
    failed = [] if marks or others else [name for name, command in CHECKS if not run(name, command, environment)]
    expression = " or ".join(marks) if marks else "not chaos and not soak and not openclaw"
    selection = [] if "-m" in others else ["-m", expression]
    # most tests wait for processes: three at a time halve the run; a file stays together, it shares what it started
    spread = [] if marks or others else ["-n", "3", "--dist", "loadfile"]
    if failed:  # told before the tests, so that pytest's own summary is the last line
        print(f"kbw test: not clean: {', '.join(failed)}; the run will count as failed", file=sys.stderr)
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", ORDER, *selection, *spread, *others], cwd=ROOT, env=environment, check=False
    )
    return tests.returncode or (1 if failed else 0)


def run(name: str, command: list[str], environment: dict[str, str]) -> bool:
    """Whether one check passed; its own output says why not."""
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"--- {name}\n{done.stdout}{done.stderr}", file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
