"""Starts every git process: fixed environment, own process group, time limit; must not know what is asked of git."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import git

from worker.adapters.kb_git.remote import Remote

_REAP_S = 10.0

_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PROTOCOL_FROM_USER": "0",
}

_NOT_INHERITED = (
    # kbw may itself have been started inside a git hook or a debugging shell: none of that reaches our git. GitPython
    # can add to the environment of a child but not take away, so env(1) does.
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE"),
    *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_TEMPLATE_DIR", "GIT_EXEC_PATH", "GIT_DEFAULT_HASH", "GIT_PREFIX"),
    *(
        "GIT_TRACE",
        "GIT_TRACE_CURL",
        "GIT_TRACE_CURL_NO_DATA",
        "GIT_TRACE_PACKET",
        "GIT_TRACE_SETUP",
        "GIT_CURL_VERBOSE",
    ),
    *("GIT_TRACE2", "GIT_TRACE2_EVENT", "GIT_TRACE2_PERF", "GIT_QUARANTINE_PATH"),
)
_CLEAN = ("env", *(f"-u{name}" for name in _NOT_INHERITED))

_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.logAllRefUpdates": "false",
    "core.compression": "1",
    "credential.helper": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.unpackLimit": "1",  # a pack appears whole or not at all; loose objects of a killed fetch would look complete
    "http.followRedirects": "false",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    "i18n.logOutputEncoding": "UTF-8",
    "log.showSignature": "false",
    "protocol.version": "2",
}


class DamagedError(Exception):
    """The repository on disk cannot be used; ``mirror`` moves it away and clones anew."""


@dataclass(frozen=True)
class Done:
    """A git process that is over. ``status`` is its exit code, negative when a signal ended it."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "replace")


MIN_GIT = (2, 32)
"""Older ones ignore ``GIT_CONFIG_COUNT`` (2.31): neither our settings nor the token would reach them."""


def git_version() -> tuple[int, ...]:
    """The installed git, to be compared with :data:`MIN_GIT`."""
    return tuple(git.Git().version_info)


class GitProcess:
    """Runs git for one remote and (unless ``path`` is ``None``) in one bare repository."""

    def __init__(self, remote: Remote, path: Path | None) -> None:
        self._remote = remote
        self._path = path
        if path is not None and not _looks_usable(path):
            raise DamagedError(f"{path.name} is no usable bare repository")
        self._git = git.Git(path)  # not git.Repo: that one believes GIT_WORK_TREE and others of the environment

    def run(
        self,
        args: Sequence[str],
        timeout_s: float,
        *,
        data: bytes | None = None,
        env: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> Done:
        """Run to the end. Past ``timeout_s`` the whole group is killed: ``KB_UNREACHABLE``."""
        process = self._start(args, env or {}, config or {}, wants_input=data is not None)
        try:
            stdout, stderr = process.communicate(data, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            late = f"git {args[0]} gave no answer within {timeout_s:g} s"
            raise self._remote.unreachable(late, f"{timeout_s:g} 秒内没有应答") from error
        finally:
            end(process)
        return Done(process.returncode, stdout, stderr.decode("utf-8", "replace"))

    def open(self, args: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process that the caller talks to and gives back to :func:`end`."""
        process = self._start(args, {}, {}, wants_input=True)
        if process.stderr is not None:
            process.stderr.close()  # nobody would read it; a full pipe would stop the child
        return process

    def _start(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        config: Mapping[str, str],
        *,
        wants_input: bool,
    ) -> subprocess.Popen[bytes]:
        where = [f"--git-dir={self._path}"] if self._path else []
        settings = {**_CONFIG, **self._remote.config(), **config}
        handle = self._git.execute(
            [
                *(part for part in _CLEAN if part.removeprefix("-u") not in env),
                git.Git.GIT_PYTHON_GIT_EXECUTABLE,
                "--no-pager",
                *where,
                *args,
            ],
            istream=subprocess.PIPE if wants_input else None,
            as_process=True,
            env={**_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": self._remote.protocol, **_config_environment(settings), **env},
            start_new_session=True,
        )
        process = handle.proc
        assert process is not None
        handle.proc = None  # else GitPython's destructor ends the process, in a forked child even the parent's
        return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process group, reap the process and close its pipes."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_REAP_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _looks_usable(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def _config_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for the child only: nothing in argv, nothing in a file."""
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        numbered[f"GIT_CONFIG_KEY_{number}"] = key
        numbered[f"GIT_CONFIG_VALUE_{number}"] = value
    return numbered
