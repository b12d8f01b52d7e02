"""YAML read with the line of everything in it, so that a finding can name the place; must not know what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import yaml

MAX_BYTES = 1024 * 1024
_MAX_NODES = 50_000
_MAX_DEPTH = 40

Path = tuple[str | int, ...]


class UnreadableError(Exception):
    """The text is no YAML we take. ``line`` counts from 1."""

    def __init__(self, reason: str, line: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass
class Positions:
    """``data`` as plain Python values, and the line of each path; ``doubled`` are keys that stand twice."""

    data: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    doubled: list[Path] = field(default_factory=list)

    def line(self, path: Sequence[str | int]) -> int:
        """The line of the path, or of the nearest thing around it that is there."""
        known = tuple(path)
        while known and known not in self.lines:
            known = known[:-1]
        return self.lines.get(known, 1)


def read_yaml(text: str) -> Positions:
    """Raises :class:`UnreadableError`: no YAML, more than one document, too large, too deep."""
    if len(text) > MAX_BYTES:
        raise UnreadableError(f"larger than {MAX_BYTES // 1024} KiB")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        found = Positions()
        if node is not None:
            _walk(node, (), found, 0)
            found.data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UnreadableError(error.problem or "no YAML", mark.line + 1 if mark else 1) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableError(f"no YAML: {type(error).__name__}") from error
    return found


def _walk(node: yaml.Node, path: Path, found: Positions, depth: int) -> None:
    if len(found.lines) >= _MAX_NODES or depth > _MAX_DEPTH:
        raise UnreadableError("too many or too deeply nested entries (aliases?)", node.start_mark.line + 1)
    found.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            if below in found.lines:
                found.doubled.append(below)
            found.lines[below] = key.start_mark.line + 1
            _walk(value, below, found, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _walk(item, (*path, number), found, depth + 1)
