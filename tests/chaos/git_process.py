"""The git server as a process of its own, so that it can be killed; told to misbehave by lines on standard input.

``python -m tests.chaos.git_process ROOT PORT`` with the token on the first line of standard input; every further line
is ``<fault> <number>`` (the fields of ``worker.demo.git_server.Faults``). It lives as long as its standard input.
"""

from __future__ import annotations

import sys
from pathlib import Path

from worker.demo.git_server import GitServer


def main(root: str, port: str) -> None:
    """Serve until standard input ends."""
    token = sys.stdin.readline().strip()
    with GitServer(Path(root), "kbw-bot", token, port=int(port)) as server:
        print(server.url, flush=True)
        for line in sys.stdin:
            name, _, number = line.partition(" ")
            setattr(server.faults, name, type(getattr(server.faults, name))(float(number)))


if __name__ == "__main__":
    main(*sys.argv[1:])
