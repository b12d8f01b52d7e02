#!/usr/bin/env python3
"""Hands the old arguments of the kb_query skill to ``kbw``: ``prepare | fetch | apply …``; does no work itself."""

from __future__ import annotations

import os
import shutil
import sys

COMMANDS = ("prepare", "fetch", "apply")


def main(arguments: list[str]) -> None:
    """Become ``kbw``. Only the three file commands: an agent steered by page text has no business with the others."""
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"usage: run_task.py {'|'.join(COMMANDS)} OPTIONS   (see: kbw COMMAND --help)\n")
        sys.exit(2)
    kbw = shutil.which("kbw")
    if kbw is None:
        sys.exit("run_task.py: kbw is not on the PATH; install kb-query-worker for the user that runs the gateway")
    os.execv(kbw, [kbw, *arguments])  # noqa: S606 no shell on purpose: arguments arrive as they are


if __name__ == "__main__":
    main(sys.argv[1:])
