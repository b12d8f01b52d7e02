"""The embedded server as a real process: it keeps its data, its secrets and its hands off other people's files."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection

from tests.acceptance.system import PATIENCE_S, kill_server, wait_for
from worker.adapters.job_store import EmbeddedValkey, ServerFaultError, check_server, running_server
from worker.adapters.job_store.address import read_address
from worker.adapters.job_store.connection import connect

pytestmark = pytest.mark.acceptance

Make = Callable[..., EmbeddedValkey]
LISTEN = "0A"
"""As /proc/net/tcp writes it: a client of somebody else may have the same number elsewhere."""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Servers on ``tmp_path``, stopped at the end of the test."""
    made: list[EmbeddedValkey] = []

    def build(**options: Any) -> EmbeddedValkey:
        server = EmbeddedValkey(options.pop("state_dir", tmp_path), token=secrets.token_hex, **options)
        made.append(server)
        return server

    yield build
    for server in made:
        server.stop()


def client_of(server: EmbeddedValkey) -> Any:
    return connect(server.address.url)


def on_disk(client: Any) -> None:
    """Wait for the append-only file: a busy disk puts the write off, for a second or two."""
    wait_for(lambda: client.execute_command("WAITAOF", 1, 0, 5_000)[0], PATIENCE_S)


# ---------------------------------------------------------------- life and data


def test_data_and_address_survive_a_kill(make: Make) -> None:
    server = make()
    address = server.start()
    client = client_of(server)
    client.set("job", "here")
    on_disk(client)
    kill_server(server)
    assert not server.alive()
    assert server.restart() == address
    assert client.get("job") == "here", "the same client goes on"


def test_a_server_that_lives_is_not_started_twice(make: Make) -> None:
    server = make()
    server.start()
    pid = server.pid
    server.restart()
    assert server.pid == pid


def test_stopping_keeps_data_and_port_for_the_next_start(make: Make) -> None:
    first = make()
    address = first.start()
    client_of(first).set("job", "here")
    first.stop()
    assert not first.alive()
    second = make()
    assert second.start() == address
    assert client_of(second).get("job") == "here"


def test_an_append_only_file_cut_off_by_a_crash_is_loaded_up_to_the_cut(make: Make) -> None:
    server = make()
    server.start()
    client = client_of(server)
    client.set("first", "1")
    client.set("second", "x" * 500)
    on_disk(client)
    kill_server(server)
    file = max((server.directory / "appendonlydir").glob("*.incr.aof"))
    os.truncate(file, file.stat().st_size - 100)
    server.restart()
    assert client.get("first") == "1"
    assert client.get("second") is None


def test_an_append_only_file_damaged_in_the_middle_is_explained(make: Make) -> None:
    server = make()
    server.start()
    client = client_of(server)
    for number in range(50):
        client.set(f"k{number}", "v" * 50)
    server.stop()
    file = max((server.directory / "appendonlydir").glob("*.incr.aof"))
    data = bytearray(file.read_bytes())
    data[500:700] = b"?" * 200
    file.write_bytes(data)
    with pytest.raises(ServerFaultError, match=r"damaged in the middle.*kbw recover"):
        make().start()


# ---------------------------------------------------------------- owners


def test_a_second_owner_is_refused_and_told_who_the_first_is(make: Make) -> None:
    make().start()
    with pytest.raises(ServerFaultError, match=rf"process {os.getpid()}.*KBW_STATE_DIR.*KBW_REDIS_URL"):
        make().start()


def test_a_server_whose_owner_died_is_adopted(make: Make, tmp_path: Path) -> None:
    owner = (
        "import os, secrets, sys; from pathlib import Path; from worker.adapters.job_store import EmbeddedValkey;"
        "s = EmbeddedValkey(Path(sys.argv[1]), token=secrets.token_hex);"
        "s.start(); print(s.pid, flush=True); os._exit(9)"
    )
    died = subprocess.run(
        [sys.executable, "-c", owner, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    orphan = int(died.stdout)
    heir = make()
    heir.start()
    assert heir.pid == orphan
    client_of(heir).set("job", "here")
    heir.stop()
    assert running_server(tmp_path) is None


def test_an_adopted_server_that_died_as_a_zombie_is_no_server(make: Make, tmp_path: Path) -> None:
    first = make()
    first.start()
    first._give_up_ownership()  # its owner goes and is still the parent that takes no note of it
    heir = make()
    heir.start()
    assert heir.pid == first.pid
    kill_server(heir)
    heir.restart()
    assert client_of(heir).ping()


def test_commands_beside_it_find_the_running_server(make: Make, tmp_path: Path) -> None:
    assert running_server(tmp_path) is None
    server = make()
    address = server.start()
    assert running_server(tmp_path) == address
    server.stop()
    assert running_server(tmp_path) is None


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(make: Make) -> None:
    server = make()
    server.start()
    assert os.getsid(server.pid) != os.getsid(0)


# ---------------------------------------------------------------- secrets and manners


def test_the_password_is_needed_and_shown_to_nobody_else(make: Make) -> None:
    server = make()
    address = server.start()
    arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes()
    assert address.password.encode() not in arguments
    assert (server.directory / "server.json").stat().st_mode & 0o777 == 0o600
    assert server.directory.stat().st_mode & 0o777 == 0o700
    assert address.password not in (server.directory / "valkey.log").read_text()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=address.port).ping()


def test_it_listens_on_loopback_only(make: Make) -> None:
    address = make().start()
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    ours = [line.split() for line in listening.splitlines() if f":{address.port:04X}" in line.split()[1]]
    hosts = {local for _, local, _, state, *_ in ours if state == LISTEN}
    assert hosts == {f"0100007F:{address.port:04X}"}


def test_files_of_the_user_in_the_state_directory_stay(make: Make, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "notes.txt").write_text("mine")
    server = make()
    server.start()
    server.stop()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_path_with_blanks_quotes_and_chinese_works(make: Make, tmp_path: Path) -> None:
    server = make(state_dir=tmp_path / 'my "state" 目录')
    server.start()
    client = client_of(server)
    client.set("job", "here")
    on_disk(client)
    kill_server(server)
    server.restart()
    assert client.get("job") == "here"


# ---------------------------------------------------------------- what can be in the way


def test_a_taken_port_is_named_when_it_was_asked_for(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerFaultError, match=rf"Port {port} .* is taken"):
            make(port=port).start()


def test_another_port_is_taken_when_the_last_one_is_gone(make: Make) -> None:
    first = make()
    last = first.start()
    first.stop()
    with socket.create_server(("127.0.0.1", last.port)):
        address = make().start()
        assert address.port != last.port
        assert address.password == last.password


def test_a_folder_that_cannot_be_made_is_named_with_its_cure(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerFaultError, match=r"file/valkey cannot be written.*Set KBW_STATE_DIR"):
        make(state_dir=tmp_path / "file").start()


def test_a_program_that_is_no_server_is_reported_and_frees_the_directory(make: Make) -> None:
    with pytest.raises(ServerFaultError):
        make(binary=Path("/bin/false")).start()
    assert make().start().port


def test_a_server_that_never_answers_is_given_up_and_killed(make: Make, tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    with pytest.raises(ServerFaultError, match="did not answer within 1 s"):
        make(binary=silent, ready_s=1.0).start()


# ---------------------------------------------------------------- sockets, Celery's transport


@pytest.mark.parametrize("use_socket", [False, True], ids=["loopback", "socket"])
def test_our_client_and_celerys_transport_reach_it(make: Make, use_socket: bool) -> None:
    address = make(use_socket=use_socket).start()
    assert connect(address.url).ping()
    assert connect(address.broker_url).ping()
    options = {
        "visibility_timeout": 600,
        "unacked_mutex_expire": 20,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "health_check_interval": 10,
        "socket_timeout": 30,
        "socket_connect_timeout": 5,
        "global_keyprefix": "kbw:",
        "client_name": "kbw-worker",
    } | ({} if use_socket else {"socket_keepalive": True})
    with Connection(address.broker_url, transport_options=options) as connection:
        queue = connection.SimpleQueue("kbw.io")
        queue.put({"task": "query-1-2"})
        message = queue.get(timeout=PATIENCE_S)
        assert message.payload == {"task": "query-1-2"}
        message.ack()
        queue.close()


def test_a_socket_path_that_is_too_long_is_explained(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ServerFaultError, match=r"longer than the system allows.*KBW_STATE_DIR"):
        make(state_dir=tmp_path / ("d" * 120), use_socket=True).start()


# ---------------------------------------------------------------- what the guard says of a real server


def test_the_guard_trusts_our_own_server(make: Make) -> None:
    server = make()
    server.start()
    assert check_server(client_of(server), require_persistence=True) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_the_guard_refuses_a_server_that_may_drop_records(make: Make, policy: str) -> None:
    server = make()
    server.start()
    client = client_of(server)
    client.config_set("maxmemory-policy", policy)
    with pytest.raises(ServerFaultError, match=rf"{policy}.*CONFIG SET maxmemory-policy noeviction"):
        check_server(client)


def test_the_guard_warns_without_persistence_and_refuses_when_told_to(make: Make) -> None:
    server = make()
    server.start()
    client = client_of(server)
    client.config_set("appendonly", "no")
    assert "appendonly yes" in check_server(client)[0]
    with pytest.raises(ServerFaultError, match="neither an append-only file nor a replica"):
        check_server(client, require_persistence=True)


@pytest.mark.parametrize(("setting", "value"), [("appendonly", "no"), ("maxmemory-policy", "allkeys-lru")])
def test_no_worker_starts_on_a_server_that_may_lose_records(
    make: Make, tmp_path: Path, setting: str, value: str
) -> None:
    server = make()
    address = server.start()
    client_of(server).config_set(setting, value)
    (tmp_path / "shared").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "KBW_REDIS_URL": address.url,
        "OPENCLAW_SHARED_DIR": str(tmp_path / "shared"),
    }
    command = [sys.executable, "-P", "-m", "worker.cli", "worker", "--class", "io"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert f"CONFIG SET {setting}" in done.stderr
    assert address.password not in done.stderr


def test_the_guard_goes_on_where_info_is_forbidden(make: Make) -> None:
    server = make()
    address = server.start()
    client_of(server).acl_setuser(
        "tenant", enabled=True, passwords=["+pw"], categories=["+@all"], commands=["-info", "-config"], keys=["*"]
    )
    tenant = connect(f"redis://tenant:pw@127.0.0.1:{address.port}/0")
    assert "INFO" in check_server(tenant)[0]


def test_the_kept_address_is_ignored_when_it_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text("{broken")
    assert read_address(tmp_path) is None
    (tmp_path / "server.json").write_text('{"unknown": 1}')
    assert read_address(tmp_path) is None
