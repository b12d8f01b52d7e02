"""The child process: limits itself, reads one file from stdin's descriptor, prints one JSON line; run by path only.

Started as ``python -I -S child_main.py REQUEST`` with next to no environment. ``REQUEST`` is JSON: ``path`` (what to
add to ``sys.path``), ``name``, ``limit``, ``rlimits``, ``wall_s``, ``nice`` and ``ocr``. Imports are few and late: each
costs every file.
"""

from __future__ import annotations

import os
import resource
import sys

_NEW_USER = 0x1000_0000
_NEW_NET = 0x4000_0000
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def main() -> None:
    """Answer one request."""
    import json

    request = json.loads(sys.argv[1])
    for name, (soft, hard) in request["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    os.nice(request["nice"])
    isolated = _shut_in()
    sys.path.extend(request["path"])
    from worker.adapters.attachments.formats.extract import extract

    with os.fdopen(0, "rb") as file:
        answer = extract(
            file,
            request["name"],
            request["limit"],
            cpu_s=request["rlimits"]["RLIMIT_CPU"][0],
            wall_s=request["wall_s"],
            ocr=request["ocr"],
        )
    answer["isolated"] = isolated
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # native parsers' destructors have nothing to add


def _shut_in() -> bool:
    """Die with the parent, and move to an empty network namespace, as root or through a user namespace.

    Returns whether the network is gone; ``False`` where the system denies it.
    """
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        return bool(libc.unshare(_NEW_NET) == 0 or libc.unshare(_NEW_USER | _NEW_NET) == 0)
    except (ImportError, OSError, AttributeError):
        return False


if __name__ == "__main__":
    main()
