"""The identity of a job: what a ``taskId`` may look like; must not split ids at hyphens (they may be UUIDs)."""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX_OF_SKILL = {"kb_query": "query", "material_search": "material"}
MAX_TASK_ID = 200

_ID = re.compile(r"[A-Za-z0-9_.:-]+\Z")


@dataclass(frozen=True)
class Problem:
    """What is allowed in a field: a sentence for operators and one for the team member."""

    en: str
    zh: str


def problem_with_id(value: str) -> Problem | None:
    """Why ``value`` cannot be a conversation or message id, or ``None``."""
    if not value:
        return Problem("is empty", "不能为空")
    if not _ID.match(value):
        return Problem("may hold only letters, digits and _ . : -", "只能包含字母、数字和 _ . : -")
    if ".." in value:
        return Problem("must not hold '..'", "不能包含 '..'")
    return None


def problem_with_task_id(task_id: str, skill: str, conversation_id: str, message_id: str) -> Problem | None:
    """Why ``task_id`` is refused (CONTRACT §1), or ``None``.

    An unknown skill may have any prefix: it is refused later by its own code, ``UNKNOWN_SKILL``.
    """
    if not is_safe_task_id(task_id):
        return Problem(
            f"must be 1-{MAX_TASK_ID} characters of letters, digits and _ . : - without '..'",
            f"应为 1-{MAX_TASK_ID} 个字符，只能包含字母、数字和 _ . : -，且不含 '..'",
        )
    tail = f"-{conversation_id}-{message_id}"
    prefix = PREFIX_OF_SKILL.get(skill)
    expected = f"{prefix or '<prefix>'}{tail}"
    if (prefix is not None and task_id != expected) or not task_id.endswith(tail) or task_id == tail:
        return Problem(
            f"must be {expected!r} (from skill, conversationId and messageId)",
            f"应为 {expected}（由 skill、conversationId、messageId 组成）",
        )
    return None


def is_safe_task_id(task_id: str) -> bool:
    """Whether ``task_id`` can name a folder of ours."""
    return len(task_id) <= MAX_TASK_ID and problem_with_id(task_id) is None and task_id.strip(".") != ""
