"""Checks that a server can be trusted with job records before work starts; must not change the server."""

from __future__ import annotations

from typing import Any

import redis
import redis.exceptions as faults

from worker.adapters.job_store.connection import translated_faults
from worker.adapters.job_store.faults import ServerFaultError

OLDEST = (6, 2)
"""XAUTOCLAIM (stream reclaim) and GETEX-era scripting came with Redis 6.2; every Valkey has them."""


def check_server(client: redis.Redis, *, require_persistence: bool = False) -> list[str]:
    """Warnings for operators; raises ``ServerFaultError`` for a server that would lose records or cannot hold them.

    ``INFO`` alone is read: managed services forbid ``CONFIG``. Where ``INFO`` is forbidden too, one warning says so.
    """
    try:
        with translated_faults():
            info: dict[str, Any] = client.info("everything")
    except faults.NoPermissionError:
        return ["The Redis user may not run INFO: eviction policy and persistence were not checked. Allow +info."]
    _refuse_wrong_kind(info)
    _refuse_eviction(info)
    return _persistence_warnings(info, required=require_persistence)


def _refuse_wrong_kind(info: dict[str, Any]) -> None:
    version = str(info.get("redis_version", "0"))
    known = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if known < OLDEST:
        raise ServerFaultError(
            f"The Redis server is version {version}; 6.2 or newer is needed.",
            cure="Upgrade it, or leave KBW_REDIS_URL empty to use the embedded Valkey.",
        )
    if int(info.get("cluster_enabled") or 0):
        raise ServerFaultError(
            "The server runs as Redis Cluster, which is not supported.",
            cure="Point KBW_REDIS_URL to a single server (with a replica, if you like).",
        )
    if info.get("role") in ("slave", "replica"):
        raise ServerFaultError(
            "KBW_REDIS_URL points to a read-only replica.", cure="Point KBW_REDIS_URL to the primary."
        )


def _refuse_eviction(info: dict[str, Any]) -> None:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ServerFaultError(
            f"The Redis server may drop job records: maxmemory-policy is {policy}.",
            cure="Run: redis-cli CONFIG SET maxmemory-policy noeviction (and put it into redis.conf).",
        )


def _persistence_warnings(info: dict[str, Any], *, required: bool) -> list[str]:
    append_only = int(info.get("aof_enabled") or 0)
    replicas = int(info.get("connected_slaves") or 0)
    if append_only or replicas:
        return []
    cure = "Run: redis-cli CONFIG SET appendonly yes (and put it into redis.conf)."
    why = "The Redis server has neither an append-only file nor a replica: its death loses open jobs' records."
    if required:
        raise ServerFaultError(why, cure=cure)
    return [f"{why} {cure}"]
