"""Whether this machine lets a pool of processes start at all; must not start one."""

from __future__ import annotations

from collections.abc import Callable

import billiard

from worker.settings import SettingsError

CURE = "mount a tmpfs at /dev/shm, mode 1777 (Docker: --shm-size; a bare container: mount -t tmpfs -o mode=1777 …)"


def semaphore_problem(make: Callable[[], object] = billiard.Lock) -> str:
    """What keeps Celery's pool from making a semaphore, ``""`` when nothing does.

    glibc keeps POSIX semaphores as files in ``/dev/shm``. Without it the pool dies with a traceback, at every start.
    """
    try:
        make()
    except (OSError, ImportError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"worker processes cannot make semaphores ({reason})"
    return ""


def require_semaphores(make: Callable[[], object] = billiard.Lock) -> None:
    """Refuse to start where a pool cannot. Raises :class:`SettingsError`."""
    if problem := semaphore_problem(make):
        raise SettingsError(f"{problem}: {CURE}")
