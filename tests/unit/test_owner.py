"""One embedded system a shared directory: the second names the first; what is dead or stale is taken over."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes_model import StillClock
from worker.owner import AlreadyOwnedError, Owner


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def shared_dir(tmp_path: Path) -> Path:
    place = tmp_path / "shared"
    place.mkdir()
    return place


def owner(shared_dir: Path, clock: StillClock, token: str, host: str = "here", pid: int | None = None) -> Owner:
    return Owner(shared_dir, token, clock.now, host=host, pid=pid or os.getpid(), sleep=clock.sleep)


def written(shared_dir: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((shared_dir / ".kbw" / "owner.json").read_bytes())
    return found


def ended_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc: a zombie cannot be told from a process")
def test_one_that_was_killed_and_not_reaped_yet_is_dead(shared_dir: Path, clock: StillClock) -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended; its entry stays until it is reaped
        owner(shared_dir, clock, "a1", pid=process.pid).take()
        owner(shared_dir, clock, "b2").take()
    assert written(shared_dir)["id"] == "b2"


def test_the_owner_is_named_in_a_file_and_gone_afterwards(shared_dir: Path, clock: StillClock) -> None:
    first = owner(shared_dir, clock, "a1")
    first.take()

    assert written(shared_dir) == {"host": "here", "pid": os.getpid(), "id": "a1", "renewedAt": clock.now()}
    first.release()
    assert not (shared_dir / ".kbw" / "owner.json").exists()


def test_a_second_one_refuses_names_the_first_and_says_what_to_do(shared_dir: Path, clock: StillClock) -> None:
    owner(shared_dir, clock, "a1", host="alpha", pid=4711).take()

    with pytest.raises(AlreadyOwnedError, match=r"alpha.*4711.*KBW_REDIS_URL"):
        owner(shared_dir, clock, "b2", host="beta").take()
    assert written(shared_dir)["id"] == "a1"


def test_a_second_process_of_this_host_is_refused_while_the_first_lives(shared_dir: Path, clock: StillClock) -> None:
    owner(shared_dir, clock, "a1", pid=os.getppid()).take()

    with pytest.raises(AlreadyOwnedError):
        owner(shared_dir, clock, "b2").take()


def test_a_dead_process_of_this_host_is_replaced_at_once(shared_dir: Path, clock: StillClock) -> None:
    owner(shared_dir, clock, "a1", pid=ended_pid()).take()

    owner(shared_dir, clock, "b2").take()
    assert written(shared_dir)["id"] == "b2"


def test_an_owner_whose_clock_is_behind_is_seen_to_renew(shared_dir: Path, clock: StillClock) -> None:
    first = Owner(shared_dir, "a1", lambda: clock.now() - 3_600, host="alpha", sleep=clock.sleep)
    first.take()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        first.renew()

    with pytest.raises(AlreadyOwnedError, match="alpha"):
        Owner(shared_dir, "b2", clock.now, host="beta", sleep=sleep).take()
    assert written(shared_dir)["id"] == "a1"


def test_an_owner_of_another_host_grows_stale_after_a_minute(shared_dir: Path, clock: StillClock) -> None:
    owner(shared_dir, clock, "a1", host="alpha").take()
    second = owner(shared_dir, clock, "b2", host="beta")

    clock.sleep(59.0)
    with pytest.raises(AlreadyOwnedError):
        second.take()
    clock.sleep(1.0)
    second.take()
    assert written(shared_dir)["id"] == "b2"


def test_it_is_renewed_every_fifteen_seconds(shared_dir: Path, clock: StillClock) -> None:
    first = owner(shared_dir, clock, "a1")
    first.take()
    taken = clock.now()

    clock.sleep(14.0)
    first.renew()
    assert written(shared_dir)["renewedAt"] == taken
    clock.sleep(1.0)
    first.renew()
    assert written(shared_dir)["renewedAt"] == taken + 15.0


def test_an_owner_that_was_replaced_learns_it_and_does_not_remove_the_others_file(
    shared_dir: Path, clock: StillClock
) -> None:
    first = owner(shared_dir, clock, "a1", host="alpha")
    first.take()
    clock.sleep(60.0)
    owner(shared_dir, clock, "b2", host="beta").take()

    with pytest.raises(AlreadyOwnedError, match="beta"):
        first.renew()
    first.release()
    assert written(shared_dir)["id"] == "b2"


def test_a_damaged_file_holds_nobody_up(shared_dir: Path, clock: StillClock) -> None:
    (shared_dir / ".kbw").mkdir()
    for damaged in (b"", b"{", b"[]", b'{"host": "x", "pid": "y", "renewedAt": "z"}'):
        (shared_dir / ".kbw" / "owner.json").write_bytes(damaged)
        owner(shared_dir, clock, "b2").take()
        assert written(shared_dir)["id"] == "b2"


def test_a_share_that_is_gone_is_not_made(shared_dir: Path, clock: StillClock) -> None:
    first = owner(shared_dir, clock, "a1")
    first.take()
    shutil.rmtree(shared_dir)
    clock.sleep(20.0)

    with pytest.raises(FileNotFoundError):
        first.renew()
    first.renew()  # not tried again before its time
    first.release()
    assert not shared_dir.exists()
