"""Runs the record's scripts on a server and translates connection faults; must not know what a script means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any

import redis
import redis.exceptions as faults
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from tasks.errors import StoreUnavailableError
from worker.adapters.job_store.policy import GIVE_UP_TEXTS, StorePolicy

RETRIES = 3
"""Every script recognises its own repetition (tokens, epochs), so a lost answer may be asked for again."""

NO_WRITES = (faults.OutOfMemoryError, faults.ReadOnlyError, faults.ClusterDownError)
"""A server that is full or just lost its primary (``MASTERDOWN`` is a kind of the third): later it may take writes."""

NO_WRITES_TOLD = ("OOM ", "READONLY ", "MISCONF ", "NOREPLICAS ", "BUSY ")
"""The same, and a disk that takes no writes or another's script that runs on, where redis-py has no type of its own or
an old server tells its script's fault in a text."""


def connect(url: str, *, timeout_s: float = 10.0, decode: bool = True) -> redis.Redis:
    """A client with time limits, keep-alive, health checks and bounded retries; nothing is sent yet.

    ``url``: ``redis://``, ``rediss://`` or ``unix://`` (also ``redis+socket://`` as Celery writes it). Answers are
    text, or bytes without ``decode``.
    """
    return redis.Redis.from_url(
        url.replace("redis+socket://", "unix://", 1),
        decode_responses=decode,
        socket_timeout=timeout_s,
        socket_connect_timeout=min(5.0, timeout_s),
        health_check_interval=15,
        client_name="kbw-record",
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), RETRIES),
        **({} if url.startswith(("unix:", "redis+socket:")) else {"socket_keepalive": True}),
    )


@contextmanager
def translated_faults() -> Iterator[None]:
    """Connection faults become ``StoreUnavailableError``; a wrong password or a broken script stays loud as itself."""
    try:
        yield
    except (faults.AuthenticationError, faults.AuthorizationError):
        raise
    except (redis.ConnectionError, redis.TimeoutError) as fault:
        raise StoreUnavailableError(f"Redis cannot be reached ({type(fault).__name__}): check KBW_REDIS_URL") from fault
    except faults.ResponseError as fault:
        if not isinstance(fault, NO_WRITES) and not any(word in str(fault) for word in NO_WRITES_TOLD):
            raise
        raise StoreUnavailableError(f"Redis takes no writes at present: {fault}") from fault


@cache
def script_text(name: str) -> str:
    """The script with the shared part before it; part of the package."""
    return script_of("common") + script_of(name)


def script_of(name: str) -> str:
    """One file of ``scripts/`` as it is."""
    folder = resources.files("worker.adapters.job_store") / "scripts"
    return (folder / f"{name}.lua").read_text(encoding="utf-8")


class ScriptRunner:
    """Runs scripts by their hash (loading them again when the server forgot them) with one JSON argument."""

    def __init__(self, client: redis.Redis, policy: StorePolicy) -> None:
        self.client = client
        self.policy = policy
        self._scripts: dict[str, Any] = {}
        constants: dict[str, object] = {
            "prefix": policy.prefix,
            "lease_s": policy.lease_s,
            "stall_s": policy.stall_s,
            "stall_max_s": policy.stall_max_s,
            "max_attempts": policy.max_attempts,
            "stage_attempts": dict(policy.stage_attempts),
            "default_cap": policy.default_cap,
            "caps": dict(policy.caps),
            "lane_patience_s": policy.lane_patience_s,
            "breaker_faults": policy.breaker_faults,
            "breaker_base_s": policy.breaker_base_s,
            "breaker_max_s": policy.breaker_max_s,
            "tombstone_s": policy.tombstone_s,
            "commit_stage": policy.commit_stage,
            "publish_stage": policy.publish_stage,
            "max_result_files": policy.max_result_files,
            "texts": {
                code: {"en": text.en, "zh": text.zh, "retryable": text.retryable}
                for code, text in GIVE_UP_TEXTS.items()
            },
        }
        self._constants = json.dumps(constants, ensure_ascii=False)[:-1]  # open: each call adds its own

    def key(self, *parts: str) -> str:
        """The name of a key, as the scripts build it."""
        return self.policy.prefix + ":".join(parts)

    def run(self, name: str, **arguments: object) -> Mapping[str, Any]:
        """The script's JSON answer. Raises ``StoreUnavailableError``."""
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self.client.register_script(script_text(name))
        own = json.dumps(arguments, ensure_ascii=False)
        argument = f"{self._constants}, {own[1:]}" if arguments else f"{self._constants}}}"
        with translated_faults():
            answer = script(keys=[], args=[argument.encode("utf-8", "replace")])
        result: Mapping[str, Any] = json.loads(answer)
        return result
