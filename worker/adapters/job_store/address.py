"""Where the embedded server of a state directory listens, and whether it is there; must not start or stop it."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry


@dataclass(frozen=True)
class Address:
    """Where a server listens: a loopback port, or a socket path."""

    password: str
    port: int = 0
    path: str = ""

    @property
    def url(self) -> str:
        """For our own client."""
        return f"unix://:{self.password}@{self.path}" if self.path else f"redis://{self._tcp}"

    @property
    def broker_url(self) -> str:
        """For Celery, which has its own word for sockets."""
        return f"redis+socket://:{self.password}@{self.path}" if self.path else f"redis://{self._tcp}"

    @property
    def _tcp(self) -> str:
        return f":{self.password}@127.0.0.1:{self.port}/0"


def running_server(state_dir: Path) -> Address | None:
    """The embedded server that another process runs on this state directory, if it answers (for commands beside it)."""
    directory = state_dir / "valkey"
    address = read_address(directory)
    return address if address is not None and answering_pid(address, directory) else None


def read_address(directory: Path) -> Address | None:
    """What ``server.json`` says; ``None`` without one that can be read."""
    try:
        return Address(**json.loads((directory / "server.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_address(directory: Path, address: Address, suffix: str) -> None:
    """Keep the address for the next start and for commands beside this process; readable by this user only."""
    temporary = directory / f".server.json.{suffix}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(address), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / "server.json")


def _client(address: Address) -> redis.Redis:
    return redis.Redis.from_url(
        address.url, socket_timeout=2.0, socket_connect_timeout=2.0, decode_responses=True, retry=Retry(NoBackoff(), 0)
    )


def answers(address: Address) -> bool:
    """Whether a server takes commands there (one that still loads its file does not)."""
    with contextlib.suppress(redis.RedisError), contextlib.closing(_client(address)) as client:
        return bool(client.ping())
    return False


def answering_pid(address: Address, directory: Path) -> int:
    """The process id of the server at this address, if it is the one of this directory; else 0."""
    with contextlib.suppress(redis.RedisError, OSError), contextlib.closing(_client(address)) as client:
        server: Any = client.config_get("dir")
        if Path(server["dir"]).samefile(directory):
            info: Any = client.info("server")
            return int(info["process_id"])
    return 0
