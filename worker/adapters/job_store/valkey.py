"""Starts, finds and stops the embedded server of a one-machine system; must not touch what it did not create.

Everything lies in ``<state dir>/valkey`` (0700): append-only file, log, pid file, ``server.json`` (0600: port and
password). The configuration goes in over standard input, so that the password is in no argument list.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from worker.adapters.job_store.address import Address, answering_pid, answers, read_address, write_address
from worker.adapters.job_store.binary import find_binary
from worker.adapters.job_store.faults import ServerFaultError

LONGEST_SOCKET_PATH = 100
"""Bytes; the kernel's limit is 108 with the end mark (unix(7))."""
POLL_S = 0.02
PORT_TRIES = 5


class EmbeddedValkey:
    """One server on one state directory, owned by the process that called :meth:`start`.

    A server that outlived its owner is adopted; one whose owner lives is refused. ``port=0`` keeps the last port, so
    that clients find the server again after a crash. ``token(n)`` gives ``2n`` random hex digits.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        token: Callable[[int], str],
        binary: Path | None = None,
        port: int = 0,
        use_socket: bool = False,
        fsync: str = "everysec",
        ready_s: float = 30.0,
    ) -> None:
        self.directory = state_dir / "valkey"
        self._token = token
        self._binary = binary
        self._wanted_port = port
        self._use_socket = use_socket
        self._fsync = fsync
        self._ready_s = ready_s
        self._lock: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.address = Address("")

    @property
    def pid(self) -> int:
        """Process id of the server, 0 before :meth:`start`."""
        return self._pid

    def start(self) -> Address:
        """The address of a server that answers. Raises ``ServerFaultError``."""
        self._make_directory()
        self._take_ownership()
        try:
            last = read_address(self.directory)
            if last is not None and (pid := answering_pid(last, self.directory)):
                self.address, self._pid = last, pid
                return last
            self._launch(last.password if last else self._token(24), last.port if last else 0)
        except BaseException:
            self._give_up_ownership()
            raise
        return self.address

    def alive(self) -> bool:
        """Whether the process is there (it may still be loading)."""
        if self._child is not None:
            return self._child.poll() is None
        return self._pid > 0 and _process_exists(self._pid)

    def restart(self) -> Address:
        """The dead server again, at the same address, with its data."""
        if self.alive():
            return self.address
        self._spawn(self.address)
        return self.address

    def stop(self, timeout_s: float = 15.0) -> None:
        """End it (it writes its file first); killed only when it does not listen. To be called last."""
        try:
            if self.alive():
                os.kill(self._pid, signal.SIGTERM)
                if not self._gone_within(timeout_s):
                    os.kill(self._pid, signal.SIGKILL)
                    self._gone_within(5.0)
        finally:
            self._pid = 0
            self._child = None
            self._give_up_ownership()

    # ---------------------------------------------------------------- ownership

    def _make_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            raise self._no_directory(fault) from fault

    def _no_directory(self, fault: OSError) -> ServerFaultError:
        return ServerFaultError(
            f"The state directory {self.directory} cannot be written ({fault.strerror}).",
            cure="Set KBW_STATE_DIR to a folder this user may write, or KBW_REDIS_URL to a server.",
        )

    def _take_ownership(self) -> None:
        try:
            lock = os.open(self.directory / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise self._no_directory(fault) from fault
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise ServerFaultError(
                f"Another kbw (process {owner}) already runs the embedded server in {self.directory}.",
                cure="Stop it, or set KBW_STATE_DIR to another folder, or KBW_REDIS_URL to a common server.",
            ) from fault
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode("ascii"), 0)
        self._lock = lock

    def _give_up_ownership(self) -> None:
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # also for copies that forked children hold
            os.close(self._lock)
            self._lock = None

    # ---------------------------------------------------------------- the process

    def _launch(self, password: str, last_port: int) -> None:
        if self._use_socket:
            self._spawn(Address(password, path=str(self._socket_path())))
        elif self._wanted_port:
            self._spawn(Address(password, port=self._wanted_port))
        else:
            self._spawn_on_free_port(password, last_port)
        write_address(self.directory, self.address, self._token(4))

    def _spawn_on_free_port(self, password: str, last_port: int) -> None:
        # Between looking for a port and listening on it another process may take it.
        port = last_port if last_port and _is_free(last_port) else _free_port()
        for tries_left in reversed(range(PORT_TRIES)):
            try:
                self._spawn(Address(password, port=port))
            except _PortTakenError:
                if not tries_left:
                    raise
                port = _free_port()
            else:
                return

    def _socket_path(self) -> Path:
        path = self.directory.resolve() / "valkey.sock"
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            raise ServerFaultError(
                f"The socket path {path} is longer than the system allows.",
                cure="Set KBW_STATE_DIR to a shorter path.",
            )
        return path

    def _spawn(self, address: Address) -> None:
        binary = self._binary or find_binary()
        log = self.directory / "valkey.log"
        seen = log.stat().st_size if log.exists() else 0
        # A session of its own: Ctrl-C in the terminal must not end the server before those who still write to it.
        child = subprocess.Popen(  # noqa: S603 - a path found by find_binary, no shell
            [str(binary), "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died already; the log says why
            child.stdin.write(self._configuration(address).encode())
            child.stdin.close()
        self._wait_ready(child, address, log, seen)
        self._child, self._pid, self.address = child, child.pid, address

    def _configuration(self, address: Address) -> str:
        def quoted(value: object) -> str:
            return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'

        directory = self.directory.resolve()
        lines = [
            f"port {address.port}",
            "bind 127.0.0.1",
            "protected-mode yes",
            f"requirepass {address.password}",
            "daemonize no",
            "supervised no",
            f"dir {quoted(directory)}",
            f"logfile {quoted(directory / 'valkey.log')}",
            f"pidfile {quoted(directory / 'valkey.pid')}",
            "appendonly yes",
            f"appendfsync {self._fsync}",
            "aof-load-truncated yes",
            'save ""',
            "maxmemory-policy noeviction",
            "tcp-keepalive 60",
            "timeout 0",
        ]
        if address.path:
            lines += [f"unixsocket {quoted(address.path)}", "unixsocketperm 700"]
        return "\n".join(lines) + "\n"

    def _wait_ready(self, child: subprocess.Popen[bytes], address: Address, log: Path, seen: int) -> None:
        limit = time.monotonic() + self._ready_s
        while time.monotonic() < limit:
            if child.poll() is not None:
                raise _explain(log, seen, self.directory, address)
            if answers(address):
                return
            time.sleep(POLL_S)
        child.kill()
        child.wait(5.0)
        raise ServerFaultError(
            f"The embedded server did not answer within {self._ready_s:.0f} s.", cure=f"Its log is {log}."
        )

    def _gone_within(self, seconds: float) -> bool:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if not self.alive():
                return True
            time.sleep(POLL_S)
        return not self.alive()


# ---------------------------------------------------------------- processes, ports, reasons


def _process_exists(pid: int) -> bool:
    """Whether it runs. Where the first process of a container takes no note of dead orphans, they stay as zombies."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return False
    except OSError:  # no /proc here: then what kill() says counts
        return True
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _PortTakenError(ServerFaultError):
    """Somebody else listens on the port."""


def _explain(log: Path, seen: int, directory: Path, address: Address) -> ServerFaultError:
    """Why the server ended at once, from what it wrote to its log since ``seen``."""
    try:
        with log.open("rb") as file:
            file.seek(seen)
            words = file.read(20_000).decode("utf-8", "replace")
    except OSError:
        words = ""
    if "already in use" in words:
        return _PortTakenError(
            f"Port {address.port} on 127.0.0.1 is taken.", cure="Choose another port, or 0 for a free one."
        )
    if "Bad file format" in words or ("AOF" in words and "rror" in words):
        return ServerFaultError(
            f"The append-only file in {directory} is damaged in the middle (not only cut off at its end).",
            cure=f"Move {directory} away, start again, and run: kbw recover",
        )
    if "ermission denied" in words or not words:
        return ServerFaultError(
            f"The embedded server cannot write to {directory}.",
            cure="Set KBW_STATE_DIR to a folder this user may write.",
        )
    last = words.strip().splitlines()[-1]
    return ServerFaultError(f"The embedded server ended at once: {last}", cure=f"Its log is {log}.")
