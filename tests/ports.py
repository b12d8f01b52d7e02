"""Ports for servers that are told where to listen before they start."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_LOWEST = 10_000
_TRIES = 100


def free_port() -> int:
    """A port nobody has, below those that the kernel gives away: until it is used no other process is given it."""
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    chance = random.SystemRandom()
    for _ in range(_TRIES):
        port = chance.randrange(_LOWEST, max(ephemeral, _LOWEST + 1_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no free port found in {_TRIES} tries")
