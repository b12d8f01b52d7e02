"""Our regular expressions mean the same on every Python from 3.11 on: Debian 12 has 3.11.2, which misreads some."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PARSER = import_module("re._parser")
_POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")
_ONE_STEP = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}


def test_what_never_backtracks_gives_up_in_one_step() -> None:
    """Below 3.11.5 such a group goes on behind what it only tried to match (CPython gh-106052)."""
    unsafe = [name for name, pattern in _patterns() if _is_unsafe(_PARSER.parse(pattern.pattern, pattern.flags))]

    assert unsafe == []


def test_the_rule_knows_the_patterns_that_debian_misread() -> None:
    title, tag, string = (
        r"- \[((?:\\.|[^\\\]]|\](?!\())*+)\]",
        '<a((?:[^>"\']++|"[^"]*+")*+)>',
        r'"(?:[^"\\]|\\.)*+"',
    )

    assert [_is_unsafe(_PARSER.parse(text)) for text in (title, tag, string)] == [True, True, False]


def _patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for path in sorted([*ROOT.glob("tasks/**/*.py"), *ROOT.glob("worker/**/*.py")]):
        if not _POSSESSIVE_GROUP.search(path.read_text("utf-8")):
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name, value in vars(import_module(module)).items():
            for pattern in _within(value):
                yield f"{module}.{name}", pattern


def _within(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _within(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _within(item)


def _is_unsafe(tree: Any) -> bool:
    """Whether a possessive repeat or an atomic group holds more than single characters and choices among them."""
    for operator, argument in tree:
        inner = list(_subtrees(argument))
        if str(operator) in {"POSSESSIVE_REPEAT", "ATOMIC_GROUP"} and any(not _is_plain(part) for part in inner):
            return True
        if any(_is_unsafe(part) for part in inner):
            return True
    return False


def _is_plain(tree: Any) -> bool:
    return all(
        str(operator) in _ONE_STEP
        or (str(operator) in {"BRANCH", "SUBPATTERN"} and all(map(_is_plain, _subtrees(argument))))
        for operator, argument in tree
    )


def _subtrees(argument: Any) -> Iterator[Any]:
    if isinstance(argument, _PARSER.SubPattern):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _subtrees(part)
