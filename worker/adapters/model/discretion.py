"""Keeps a server's own words fit for logs and results: short, one line, without tokens, without our prompt's text."""

from __future__ import annotations

import re

LONGEST = 200
_MASK = "[…]"
_ASCII_RUN = 12  # shorter runs of plain letters are ordinary words of an error message
_OTHER_RUN = 4  # four Chinese characters are already a clause


def quotable(message: str, *, prompt: str, secrets: tuple[str, ...]) -> str:
    """``message`` cut to :data:`LONGEST` characters, with every secret and every run that ``prompt`` holds masked."""
    for secret in secrets:
        if secret:
            message = message.replace(secret, _MASK)
    line = re.sub(r"[\s\x00-\x1f\x7f\u2028\u2029\ud800-\udfff]+", " ", message[: LONGEST * 4]).strip()
    if len(line) > LONGEST:
        line = line[:LONGEST].rstrip() + " …"
    return _without_echo(line, re.sub(r"\s+", " ", prompt))


def _without_echo(line: str, prompt: str) -> str:
    """Servers repeat the value they dislike; what also stands in the prompt is left out."""
    kept: list[str] = []
    at = 0
    while at < len(line):
        size = _echo_at(line, at, prompt)
        if size:
            if not kept or kept[-1] != _MASK:
                kept.append(_MASK)
            at += size
        else:
            kept.append(line[at])
            at += 1
    return "".join(kept)


def _echo_at(line: str, at: int, prompt: str) -> int:
    """Length of the longest run from ``at`` on that the prompt holds; 0 when it is too short to tell anything."""
    size = _ASCII_RUN if line[at].isascii() else _OTHER_RUN
    if at + size > len(line) or line[at : at + size] not in prompt:
        return 0
    while at + size < len(line) and line[at : at + size + 1] in prompt:
        size += 1
    return size
