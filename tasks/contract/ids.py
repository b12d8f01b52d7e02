"""The identity of a job: what a ``taskId`` may look like; must not split ids at hyphens (they may be UUIDs)."""

from __future__ import annotations

import re

PREFIX_OF_SKILL = {"kb_query": "query", "material_search": "material"}
MAX_TASK_ID = 200

_ID = re.compile(r"[A-Za-z0-9_.:-]+\Z")


def problem_with_id(value: str) -> str | None:
    """Why ``value`` cannot be a conversation or message id (English), or ``None``."""
    if not value:
        return "is empty"
    if not _ID.match(value):
        return "may hold only letters, digits and _ . : -"
    if ".." in value:
        return "must not hold '..'"
    return None


def problem_with_task_id(task_id: str, skill: str, conversation_id: str, message_id: str) -> str | None:
    """Why ``task_id`` is refused (CONTRACT §1), in English, or ``None``.

    An unknown skill may have any prefix: it is refused later by its own code, ``UNKNOWN_SKILL``.
    """
    if not is_safe_task_id(task_id):
        return f"must be 1-{MAX_TASK_ID} characters of letters, digits and _ . : - without '..'"
    tail = f"-{conversation_id}-{message_id}"
    prefix = PREFIX_OF_SKILL.get(skill)
    expected = f"{prefix or '<prefix>'}{tail}"
    if (prefix is not None and task_id != expected) or not task_id.endswith(tail) or task_id == tail:
        return f"must be {expected!r} (from skill, conversationId and messageId)"
    return None


def is_safe_task_id(task_id: str) -> bool:
    """Whether ``task_id`` can name a folder of ours."""
    return len(task_id) <= MAX_TASK_ID and problem_with_id(task_id) is None and task_id.strip(".") != ""
