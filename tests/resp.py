"""A Redis client of forty lines over a plain socket: proof that a sender needs no library of ours or anybody's."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any


class Resp:
    """One connection that speaks the Redis protocol by hand (RESP2); answers are bytes, numbers and lists."""

    def __init__(self, state_dir: Path) -> None:
        """To the embedded server of a state directory."""
        told = json.loads((state_dir / "valkey" / "server.json").read_text("utf-8"))
        if told["path"]:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(120.0)
            self._socket.connect(told["path"])
        else:
            self._socket = socket.create_connection(("127.0.0.1", told["port"]), timeout=20.0)
        self._file = self._socket.makefile("rb")
        self.call("AUTH", told["password"])

    def call(self, *parts: str | bytes) -> Any:
        """Send one command; its answer. Raises ``RuntimeError`` with the server's error."""
        encoded = [part.encode() if isinstance(part, str) else part for part in parts]
        lines = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%s\r\n" % (len(part), part) for part in encoded)]
        self._socket.sendall(b"".join(lines))
        return self._answer()

    def entries(self, stream: str) -> list[dict[str, str]]:
        """All entries of a stream, with their id as ``_id``."""
        found = []
        for key, flat in self.call("XRANGE", stream, "-", "+"):
            texts = [part.decode() for part in flat]
            found.append({"_id": key.decode(), **dict(zip(texts[::2], texts[1::2], strict=True))})
        return found

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()

    def _answer(self) -> Any:
        kind, rest = self._file.read(1), self._file.readline()[:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"+":
            return rest
        size = int(rest)
        if size < 0:
            return None
        if kind == b"$":
            return self._file.read(size + 2)[:-2]
        return [self._answer() for _ in range(size)]
