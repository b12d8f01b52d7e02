"""The parent's side of the child process: start it on a descriptor, wait, end it; must not parse a file itself."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_PROGRAM = Path(__file__).with_name("child_main.py")
_PROJECT = Path(__file__).resolve().parents[3]
_LEAVE_S = 1.0
_OUR_KILL = -1_000
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The child's whole environment. Each thread of numpy would map memory that the limit counts."""


@dataclass(frozen=True)
class ChildLimits:
    """What one child may use. Bytes and seconds; ``wall_s`` is held by the parent."""

    memory_bytes: int = 512 * 1024 * 1024
    cpu_s: int = 8
    wall_s: float = 10.0
    open_files: int = 64
    output_bytes: int = 1024 * 1024
    nice: int = 10
    ocr: bool = False

    def rlimits(self) -> dict[str, tuple[int, int]]:
        """As ``setrlimit`` takes them: soft, hard."""
        return {
            "RLIMIT_AS": (self.memory_bytes, self.memory_bytes),
            "RLIMIT_CPU": (self.cpu_s, self.cpu_s + 1),
            "RLIMIT_FSIZE": (self.output_bytes, self.output_bytes),
            "RLIMIT_NOFILE": (self.open_files, self.open_files),
            "RLIMIT_CORE": (0, 0),
        }


def ocr_limits() -> ChildLimits | None:
    """For reading pictures; ``None`` without the extra ``ocr``.

    Measured: the libraries alone map 550 MiB, a dense page 1 GiB; they take 1.7 s of CPU to load, 1.5 s to find the
    lines of a page and 0.17 s a line. The 512 MiB and 8 s of the other formats would end half way down a page.
    """
    if not all(find_spec(name) for name in ("rapidocr", "onnxruntime")):
        return None
    return ChildLimits(memory_bytes=1536 * 1024 * 1024, cpu_s=20, wall_s=25.0, open_files=128, ocr=True)


@dataclass(frozen=True)
class ChildAnswer:
    """What came out of a child: text, or a fault code. ``settled``: the same bytes would give the same again."""

    kind: str = "unknown"
    text: str = ""
    truncated: bool = False
    fault: str = ""
    settled: bool = True
    meta: dict[str, object] | None = None
    isolated: bool = False


def run_child(descriptor: int, name: str, limit: int, limits: ChildLimits, wall_s: float) -> ChildAnswer:
    """Read one file in its own process: at most ``limit`` characters, ``wall_s`` seconds. Never raises for the file."""
    request = {
        "path": [str(_PROJECT), *_library_folders()],
        "name": name,
        "limit": limit,
        "rlimits": limits.rlimits(),
        "nice": limits.nice,
        "wall_s": wall_s,
        "ocr": limits.ocr,
    }
    os.lseek(descriptor, 0, os.SEEK_SET)
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and program, the file comes as a descriptor
        [sys.executable, "-I", "-S", str(_PROGRAM), json.dumps(request)],
        stdin=descriptor,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_ONE_THREAD,
        cwd="/",
        start_new_session=True,
    )
    try:
        output = _read_output(process, limits.output_bytes, wall_s)
        if output is None:
            return ChildAnswer(fault="TIMEOUT", settled=False)
        answer = _answer(output)
        if answer is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_S)
            return _death(process.returncode if process.returncode is not None else _OUR_KILL)
        return answer
    finally:
        _end(process)


def _library_folders() -> list[str]:
    return [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]


def _read_output(process: subprocess.Popen[bytes], cap: int, wall_s: float) -> bytes | None:
    """All that the child wrote until it closed its output, at most ``cap`` bytes; ``None``: time is over."""
    assert process.stdout is not None
    deadline = time.monotonic() + wall_s
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) <= cap:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            block = os.read(process.stdout.fileno(), 65_536)
            if not block:
                break
            output += block
    return bytes(output)


def _answer(output: bytes) -> ChildAnswer | None:
    if not output.endswith(b"\n"):
        return None
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    fault = str(document.get("fault", ""))
    meta = document.get("meta")
    return ChildAnswer(
        kind=str(document.get("kind", "unknown")),
        text=str(document.get("text", "")),
        truncated=bool(document.get("truncated")),
        fault=fault,
        settled=fault not in ("TIMEOUT", "OUT_OF_MEMORY") and "incomplete" not in (meta or {}),
        meta=meta if isinstance(meta, dict) else {},
        isolated=bool(document.get("isolated")),
    )


def _death(code: int) -> ChildAnswer:
    """A child that ended without a word: a parser aborted, crashed, or hit a limit."""
    if code in (-signal.SIGXCPU, _OUR_KILL):
        return ChildAnswer(fault="TIMEOUT", settled=False)
    if code in (-signal.SIGABRT, -signal.SIGKILL):  # native code aborts when memory is refused
        return ChildAnswer(fault="OUT_OF_MEMORY", settled=False)
    return ChildAnswer(fault="CORRUPT", settled=False)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the child's session, then take its exit status: until then the process id is ours."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
