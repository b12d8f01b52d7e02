"""On which queue the jobs of a stage wait; must import no stage: who counts jobs does not run them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

IO, LLM, COMMIT = "kbw.io", "kbw.llm", "kbw.commit"

QUEUES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("prepare", "fetch", "apply", "publish", "plan", "render"), IO),
        **dict.fromkeys(("select", "answer", "find"), LLM),
        "commit": COMMIT,
    }
)
"""Of all stages of all pipelines (a test compares)."""
