"""The variables that a node's prompt takes from knowledge sources; must not load the shipped templates."""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def variables_of(template: str) -> frozenset[str]:
    """The names in ``{{…}}``."""
    return frozenset(VARIABLE.findall(template))


def place(template: str, values: Mapping[str, str]) -> str:
    """The template with its variables filled in one pass; nothing at all when none of them has a text.

    Words around a variable introduce what stands there: without it they would introduce nothing.
    """
    if not any(values.get(name, "").strip() for name in variables_of(template)):
        return ""
    return VARIABLE.sub(lambda match: values.get(match.group(1), ""), template)
