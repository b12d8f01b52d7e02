"""The job record in Redis or Valkey (one server or a primary with replicas; Redis Cluster is not supported)."""

from __future__ import annotations

from worker.adapters.job_store.policy import StorePolicy
from worker.adapters.job_store.redis_store import JobRecords, open_job_records

__all__ = ["JobRecords", "StorePolicy", "open_job_records"]
