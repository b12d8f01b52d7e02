"""The job record in Redis or Valkey (one server or a primary with replicas; Redis Cluster is not supported)."""

from __future__ import annotations

from worker.adapters.job_store.address import Address, running_server
from worker.adapters.job_store.faults import ServerFaultError
from worker.adapters.job_store.guard import check_server
from worker.adapters.job_store.policy import StorePolicy
from worker.adapters.job_store.redis_store import JobRecords, open_job_records
from worker.adapters.job_store.valkey import EmbeddedValkey

__all__ = [
    "Address",
    "EmbeddedValkey",
    "JobRecords",
    "ServerFaultError",
    "StorePolicy",
    "check_server",
    "open_job_records",
    "running_server",
]
