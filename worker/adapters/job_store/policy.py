"""The numbers and names the job record is run with; must not hold a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class StorePolicy:
    """Times in seconds. All processes of a fleet should run with the same values; each claim uses its caller's."""

    prefix: str = "kbw:"
    lease_s: float = 60.0
    stall_s: float = 5.0
    """An open job without a lease is woken again after this time, then after twice that, …"""
    stall_max_s: float = 300.0
    """… but at least this often."""
    max_attempts: int = 6
    stage_attempts: Mapping[str, int] = field(default_factory=lambda: _NONE)
    default_cap: int = 4
    """Model calls in flight, fleet-wide, for each endpoint without an entry in ``caps``."""
    caps: Mapping[str, int] = field(default_factory=lambda: _NONE)
    queues: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Queue of each stage, for ``pause``."""
    lane_patience_s: float = 300.0
    """A head that stands parked for longer at one stage no longer holds up its conversation."""
    breaker_faults: int = 5
    breaker_base_s: float = 10.0
    breaker_max_s: float = 300.0
    election_s: float = 10.0
    tombstone_s: float = 365 * 86400.0
    commit_stage: str = "commit"
    publish_stage: str = "publish"
    max_result_files: int = 20
    """Result files remembered from repeats of one payload."""

    def cap(self, endpoint: str) -> int:
        """How many calls may be in flight."""
        return self.caps.get(endpoint, self.default_cap)

    def attempts(self, stage: str) -> int:
        """How many attempts a stage gets."""
        return self.stage_attempts.get(stage, self.max_attempts)


@dataclass(frozen=True)
class FailureText:
    """Told to a job that the record itself gives up on; ``{task} {stage} {attempts} {last} {lastzh}`` are filled in."""

    en: str
    zh: str
    retryable: bool


GIVE_UP_TEXTS: Mapping[str, FailureText] = MappingProxyType(
    {
        "CANCELLED": FailureText(
            en="Cancelled at stage {stage}; nothing was committed. Start it again with: kbw replay {task}",
            zh="任务已被取消，没有写入知识库；如仍需要答案，请重新提问。",
            retryable=False,
        ),
        "DEADLINE": FailureText(
            en="Past its deadline at stage {stage} (attempt {attempts}){last}. "
            "Ask again, or give the payload a larger deadlineSeconds.",
            zh="任务在 {stage} 阶段超过了时限，已停止处理{lastzh}；请稍后重新提问，或请管理员调大 deadlineSeconds。",
            retryable=True,
        ),
        "EXHAUSTED": FailureText(
            en="Gave up at stage {stage} after {attempts} attempts{last}. "
            "When the cause is mended: kbw replay {task} --from-stage {stage}",
            zh="任务在 {stage} 阶段尝试了 {attempts} 次仍未完成，已停止处理{lastzh}；请联系管理员查明原因后重新执行。",
            retryable=True,
        ),
    }
)
