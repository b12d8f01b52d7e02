"""Where the contract names the environment: ``{{env.X}}`` in endpoint and headers; must not read the environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

ENV = re.compile(r"\{\{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
SECRET_NAME = re.compile(
    r"(?:^|[-_])(?:authorization|key|token|secret|password|passwd|cookie|credentials?)$|^(?:api|app|access)[-_]?(?:key|token)$",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9_-]{0,19}\s+)?")


class MissingVariableError(Exception):
    """A named variable is not there, or not allowed; ``reason`` names it and what to do, never a value."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason


def variables_in(text: str) -> list[str]:
    """The names of all ``{{env.X}}`` in the text."""
    return ENV.findall(text)


def resolve(text: str, lookup: Callable[[str], str | None], allowed: Callable[[str], bool]) -> tuple[str, list[str]]:
    """The text with every ``{{env.X}}`` filled in, and the values used, for masking.

    Raises :class:`MissingVariableError` that names the variable.
    """
    used: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if not allowed(name):
            raise MissingVariableError(
                name, f"environment variable {name} is not on the allow-list KBW_KNOWLEDGE_ENV: add it there"
            )
        value = (lookup(name) or "").strip()
        if not value:
            raise MissingVariableError(name, f"environment variable {name} is not set: set it for the workers")
        used.append(value)
        return value

    return ENV.sub(fill, text), used


def holds_literal_secret(name: str, value: str) -> bool:
    """Whether a header or field that carries a secret has it written out: only a scheme and ``{{env.X}}`` may stand."""
    if not SECRET_NAME.search(name) or not value.strip():
        return False
    first = ENV.search(value)
    if first is None:
        return True
    rest = ENV.sub("", value[first.start() :]).strip()
    return _SCHEME.fullmatch(value[: first.start()].lstrip()) is None or rest not in ("", ":")


def allow_list(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a variable may be used: exact names or patterns (``KB_*``)."""
    known = tuple(pattern for pattern in patterns if pattern)
    return lambda name: any(fnmatchcase(name, pattern) for pattern in known)
