"""Loading and filling the Markdown templates of this package; must not know what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

PROMPT_VERSION = "1"
"""Raised with every change of a rule's meaning; stands in ``context.instructions`` beside the rules themselves."""

_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")


@cache
def load(name: str) -> str:
    """The template ``<name>.md``, without the line break at its end."""
    return resources.files("tasks.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8").rstrip("\n")


def variables(name: str) -> frozenset[str]:
    """The ``{{placeholders}}`` of a template: what a knowledge source may name as ``target_variable``, and our own."""
    return frozenset(_PLACEHOLDER.findall(load(name)))


def fill(name: str, values: Mapping[str, str]) -> str:
    """The template with every placeholder replaced in one pass: braces inside a value stay as they are.

    Raises ``ValueError`` for a value that the template does not use, or a placeholder without a value.
    """
    wanted = variables(name)
    if wanted != values.keys():
        raise ValueError(f"{name}.md takes {sorted(wanted)}, given {sorted(values)}")
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], load(name))
