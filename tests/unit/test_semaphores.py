"""A machine without a usable /dev/shm: told in one line with its cure, before a pool dies of it."""

from __future__ import annotations

import errno
import os

import pytest

from worker.semaphores import require_semaphores, semaphore_problem
from worker.settings import SettingsError


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EROFS, errno.ENOSYS])
def test_where_no_semaphore_can_be_made_the_cure_is_one_line(number: int) -> None:
    def make() -> object:
        raise OSError(number, os.strerror(number))

    with pytest.raises(SettingsError) as caught:
        require_semaphores(make)

    assert os.strerror(number) in str(caught.value)
    assert "mount a tmpfs at /dev/shm, mode 1777" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_python_built_without_semaphores_is_told_too() -> None:
    def make() -> object:
        raise ImportError("no sem_open")

    assert "no sem_open" in semaphore_problem(make)


def test_where_one_can_be_made_nothing_is_said() -> None:
    assert semaphore_problem(object) == ""
