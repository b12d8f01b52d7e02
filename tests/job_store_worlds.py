"""The job record in memory and on a real server, both with a clock that a test can move on."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tasks.ports import NewJob
from tests.fakes_job_store import FakeJobRecords
from worker.adapters.job_store import StorePolicy, open_job_records

MODEL = "https://model.test/v1"
POLICY = StorePolicy(
    max_attempts=3,
    caps={MODEL: 2},
    queues={"prepare": "kbw.io", "select": "kbw.llm", "commit": "kbw.commit", "publish": "kbw.io"},
    breaker_faults=3,
)

# Moves everything the record knows into the past, which is the same as moving the server's clock on.
REWIND = """
local seconds = tonumber(ARGV[2])
local times = { 'created', 'deadline', 'updated', 'stage_at', 'enqueued_at', 'woken_at', 'lease_until', 'parked_until',
  'finished', 'claimed_at', 'blocked_until', 'blocked_at', 'open_until', 'probe_until' }
for _, name in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind = redis.call('TYPE', name).ok
  local rest = string.sub(name, #ARGV[1] + 1)
  if kind == 'hash' and rest ~= 'counters' then
    for _, field in ipairs(times) do
      local value = tonumber(redis.call('HGET', name, field) or '')
      if value and value > 0 then redis.call('HSET', name, field, string.format('%.6f', value - seconds)) end
    end
  elseif kind == 'zset' and string.sub(rest, 1, 5) ~= 'lane:' then
    local flat = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
    for i = 1, #flat, 2 do redis.call('ZADD', name, string.format('%.6f', flat[i + 1] - seconds), flat[i]) end
  end
  local left = redis.call('PTTL', name)
  if left > 0 then redis.call('PEXPIRE', name, math.floor(left - seconds * 1000)) end
end
return 1
"""


@dataclass
class World:
    """One record and its clock. ``records`` has ``store``, ``views``, ``sweep``, ``control``, ``archive``."""

    records: Any
    advance: Callable[[float], None]
    now: Callable[[], float]

    def accept(self, task_id: str, *, lane: str = "", deadline_s: float = 900.0, stage: str = "prepare") -> None:
        kind = self.records.store.accept(new_job(task_id, lane=lane, deadline_s=deadline_s, stage=stage)).kind
        assert kind == "new"


def new_job(
    task_id: str,
    *,
    digest: str = "d1",
    lane: str = "",
    deadline_s: float = 900.0,
    stage: str = "prepare",
    result_file: str = "/shared/r.json",
) -> NewJob:
    return NewJob(task_id, digest, "kb_query", stage, lane, deadline_s, "file", result_file, "00-trace-01")


def fake_world(policy: StorePolicy = POLICY, ticking: Callable[[], float] = lambda: 1_000_000.0) -> World:
    """``ticking`` is the clock that runs on by itself; by default time only passes when the test says so."""
    passed = [0.0]
    records = FakeJobRecords(lambda: ticking() + passed[0], policy)

    def advance(seconds: float) -> None:
        passed[0] += seconds

    return World(records, advance, records.now)


def server_world(url: str, policy: StorePolicy = POLICY) -> World:
    policy = replace(policy, prefix=f"test{secrets.token_hex(6)}:")
    records = open_job_records(url, policy, lambda: secrets.token_hex(8))
    client: Any = records.client
    rewind = client.register_script(REWIND)

    def advance(seconds: float) -> None:
        rewind(args=[policy.prefix, str(seconds)])

    def now() -> float:
        seconds, micros = client.time()
        return float(seconds) + micros / 1e6

    return World(records, advance, now)
