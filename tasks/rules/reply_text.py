"""From the raw text of a model reply to one JSON value; must not know what the value means.

The order is fixed (DESIGN §5): strict JSON, else the single object inside fences, prose or banners, else a repair that
loses nothing, else a repair that had to guess where strings end. Cut text is never repaired. Shapes seen in the field:
facts/openclaw.md §2 and §9.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import json_repair

from tasks.contract.selection import ReadLevel
from tasks.rules import reply_fault as fault

MAX_REPLY_CHARS = 2_500_000
"""A legal answer has at most 200,000 characters; written twice and all of it as ``\\uXXXX`` it stays below this."""
MAX_GUESS_CHARS = 100_000
"""json-repair takes about 1 s of CPU for this much text full of bad quotes; beyond it, asking again is cheaper."""
MAX_DEPTH = 60
MAX_ROOTS = 20

_DOUBLE_QUOTED = r'"(?:[^"\\]|\\.)*+(?:"|\Z)'
_SINGLE_QUOTED = r"'(?:[^'\\]|\\.)*+(?:'|\Z)"
_COMMENT = r"//[^\n]*+|\#[^\n]*+|/\*.*?(?:\*/|\Z)"
_TOKEN = re.compile(rf"{_DOUBLE_QUOTED}|{_SINGLE_QUOTED}|{_COMMENT}|[{{}}\[\],]|[A-Za-z_]\w*+", re.DOTALL)
# A brace of prose ("用 { 表示") does not open an object; a bracket opens a list only at the start of a line.
_ROOT = re.compile(
    r"""\{(?=\s*+(?:["'}]|//|/\*|\#|[A-Za-z_]\w*+\s*+:|\Z))|^[ \t]*+(?P<list>\[)(?=\s*+(?:["'{\]]|//|/\*|\Z))""", re.M
)
_THOUGHTS = r"(?:think|thinking|reasoning|thought)"
_THINK_BLOCK = re.compile(rf"\s*<{_THOUGHTS}>.*?</{_THOUGHTS}>", re.DOTALL | re.IGNORECASE)
_THINK_END = re.compile(rf"</{_THOUGHTS}>(?=[ \t]*+(?:\n|\r|[{{\[`]))", re.IGNORECASE)
_TRUNCATION_LINE = re.compile(r"⚠️?\s*Reply truncated\b", re.IGNORECASE)
_QUOTE_OR_BRACKET = re.compile(r'\\.|"(?=(?P<border>\s*+(?:[,:}\]]|\Z))?)|[{}\[\]]', re.DOTALL)
_ESCAPE = re.compile(r'\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)|([\x00-\x1f"])', re.DOTALL)
# OpenAI says "stop"; servers that pass their own engine's word on say one of the others for the same thing.
_ENDED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_BROKEN: Any = object()


@dataclass(frozen=True)
class JsonReply:
    """One JSON value; ``level`` is ``exact``, ``unwrapped``, ``repaired`` or ``guessed``. It may still hold NaN."""

    value: Any
    level: ReadLevel


def decode(data: bytes, name: str) -> str:
    """The text of a reply or of a file that an agent wrote. Raises ``INVALID_ENCODING``, ``ANSWER_TOO_LARGE``."""
    if len(data) > 4 * MAX_REPLY_CHARS:
        raise fault.too_large(name, len(data), 4 * MAX_REPLY_CHARS)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise fault.not_utf8(name, error) from error


def refuse_finish(reason: str, name: str) -> None:
    """Refuse a reply that the model did not end by itself. ``""``: nobody said, the text alone decides."""
    if reason.strip().lower() not in ("", *_ENDED):
        shown = reason.strip()[:40]
        raise fault.truncated(name, zh=f"模型没有正常结束（finish_reason={shown}）", en=f"finish_reason={shown!r}")


def parse_reply(text: str, name: str) -> JsonReply:
    """The one JSON value in ``text``; ``name`` is how the reply is called in messages. Raises ``ReplyFault``."""
    body = text.removeprefix("\ufeff")
    if not body.strip():
        raise fault.empty(name)
    if len(body) > MAX_REPLY_CHARS:
        raise fault.too_large(name, len(body), MAX_REPLY_CHARS)
    _refuse_truncation_line(body, name)
    try:
        return _parse(body, name, ReadLevel.EXACT if body == text else ReadLevel.UNWRAPPED)
    except RecursionError as error:
        raise fault.too_deep(name, MAX_DEPTH) from error


def _refuse_truncation_line(body: str, name: str) -> None:
    """OpenClaw answers 200 with ``length`` and appends this line; where the reason gets lost it still shows."""
    if any(_TRUNCATION_LINE.match(line.strip()) for line in body[-2_000:].split("\n")):
        raise fault.truncated(
            name, zh="末尾带有网关追加的 Reply truncated 提示", en="it ends in the gateway's own line"
        )


def _parse(body: str, name: str, level: ReadLevel) -> JsonReply:
    try:
        value = _loads(body, name)
        if isinstance(value, str) and value.lstrip().startswith("{"):  # the document, once more as a JSON string
            return JsonReply(_loads(value, name), ReadLevel.UNWRAPPED)
    except json.JSONDecodeError as error:
        return _parse_wrapped(_without_thoughts(body), name, error)
    return JsonReply(value, level)


def _without_thoughts(body: str) -> str:
    """``body`` without think blocks before the reply; some chat templates swallow the opening tag."""
    while match := _THINK_BLOCK.match(body):
        body = body[match.end() :]
    if body.lstrip()[:1] not in ("{", "[", "`"):
        ends = [match.end() for match in _THINK_END.finditer(body)]
        return body[ends[-1] :] if ends else body
    return body


def _parse_wrapped(body: str, name: str, cause: json.JSONDecodeError) -> JsonReply:
    roots = _roots(body, name)
    if not roots:
        raise fault.invalid(name, cause)
    if len(roots) == 1 and _goes_on(body, roots[0][0]):
        return JsonReply(_guessed(body, name, cause), ReadLevel.GUESSED)
    if all(value is not _BROKEN for _, value in roots):
        if any(value != roots[0][1] for _, value in roots):
            raise fault.ambiguous(name)
        return JsonReply(roots[0][1], ReadLevel.UNWRAPPED)
    if len(roots) == 1:
        repaired = _repaired(roots[0][0], name)
        if repaired is not _BROKEN:
            return JsonReply(repaired, ReadLevel.REPAIRED)
    return JsonReply(_guessed(body, name, cause), ReadLevel.GUESSED)


def _goes_on(body: str, root: str) -> bool:
    """Whether more of the reply follows its root: a bad quote before a brace of a text (``"用"}"表示"``) ended it."""
    tail = body[body.index(root) + len(root) :]
    return '"' in tail and tail.count("}") > tail.count("{")


def _roots(body: str, name: str) -> list[tuple[str, Any]]:
    """Every outermost object (or list on a line of its own): its text and its value, ``_BROKEN`` when not strict.

    Nothing inside a broken or unfinished one is looked at: half a reply must not be mistaken for a whole one.
    """
    roots: list[tuple[str, Any]] = []
    at = 0
    while match := _ROOT.search(body, at):
        if len(roots) == MAX_ROOTS:
            raise fault.ambiguous(name)
        start = match.start("list") if match["list"] else match.start()
        at = _end_of_root(body, start, name)
        if at < 0:
            if _ends_inside(body[start:]):
                raise fault.truncated(name, zh="JSON 没有结束就断了", en="the JSON stops before its end")
            return [*roots, (body[start:], _BROKEN)]
        roots.append((body[start:at], _loads_or_broken(body[start:at], name)))
    return roots


def _end_of_root(body: str, start: int, name: str) -> int:
    """Where the bracket at ``start`` is closed, strings and comments aside; -1: nowhere."""
    depth = 0
    for match in _TOKEN.finditer(body, start):
        token = match.group()
        if token in ("{", "["):
            depth += 1
            if depth > MAX_DEPTH:
                raise fault.too_deep(name, MAX_DEPTH)
        elif token in ("}", "]"):
            depth -= 1
            if depth == 0:
                return match.end()
    return -1


def _ends_inside(segment: str) -> bool:
    """Whether ``segment`` stops inside a string or an open bracket, if a quote within a text need not be escaped.

    Read so, a quote closes a string only when a comma, colon or closing bracket (or the end) follows. An odd number of
    bad quotes makes a whole reply look cut; this tells the two apart.
    """
    depth, inside = 0, False
    for match in _QUOTE_OR_BRACKET.finditer(segment):
        mark = match.group()
        if mark == '"':
            inside = not inside or match["border"] is None
        elif not inside and mark in ("{", "["):
            depth += 1
        elif not inside and mark in ("}", "]"):
            depth -= 1
            if depth == 0:
                return False
    return True


# ---------------------------------------------------------------- strict JSON


def _loads(text: str, name: str) -> Any:
    """Strict JSON, but NaN and infinities are let through: they are settled with the fields. One key a name."""

    def one_key_a_name(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise fault.duplicate_key(name, key)
            found[key] = value
        return found

    return json.loads(text, object_pairs_hook=one_key_a_name, parse_int=_integer)


def _loads_or_broken(text: str, name: str) -> Any:
    try:
        return _loads(text, name)
    except json.JSONDecodeError:
        return _BROKEN


def _integer(digits: str) -> int | float:
    """Python refuses integers of thousands of digits with an error of its own; in a reply they mean nothing."""
    return int(digits) if len(digits) <= 300 else math.inf


# ---------------------------------------------------------------- repair


def _repaired(segment: str, name: str) -> Any:
    """The value after a repair that loses nothing, else ``_BROKEN``."""
    strict = _in_strict_form(segment)
    return _BROKEN if strict is None else _loads_or_broken(strict, name)


def _in_strict_form(segment: str) -> str | None:
    """Comments and trailing commas dropped, control characters and odd escapes in strings escaped, Python literals and

    quotes translated. Where strings begin and end is never changed. ``None``: what looks like a comment may be text.
    """
    out: list[str] = []
    last, comma, at = "{", -1, 0
    for match in _TOKEN.finditer(segment):
        between, piece = segment[at : match.start()], match.group()
        at = match.end()
        out.append(between)
        if between.strip():
            comma, last = -1, "value"
        if piece.startswith(("//", "#", "/*")):
            if '"' in piece and last not in ("{", "[", ",") and "\n" not in between:
                return None
            continue
        if piece in ("}", "]") and comma >= 0:
            out[comma] = ""
        comma = len(out) if piece == "," else -1
        last = piece
        out.append(_in_strict_token(piece))
    return "".join([*out, segment[at:]])


def _in_strict_token(token: str) -> str:
    if token[0] in "\"'":
        return '"' + _ESCAPE.sub(_in_strict_escape, token[1:-1]) + '"'
    return _PYTHON_WORDS.get(token, token)


def _in_strict_escape(match: re.Match[str]) -> str:
    escaped, raw = match.groups()
    if raw is not None:
        return '\\"' if raw == '"' else f"\\u{ord(raw):04x}"
    if len(escaped) == 5 or escaped in '"\\/bfnrt':
        return f"\\{escaped}"
    if escaped == "'":
        return "'"
    if len(escaped) == 3:
        return f"\\u00{escaped[1:]}"
    return "\\\\" + _ESCAPE.sub(_in_strict_escape, escaped)  # `\d`, `\(`: a backslash that was meant


def _guessed(body: str, name: str, cause: json.JSONDecodeError) -> Any:
    """The object when string borders have to be guessed; refused when a single letter got lost over it."""
    root = _ROOT.search(body)
    segment = body[root.start() :].rstrip(" \t\r\n`") if root else ""
    if not segment.endswith("}") or len(segment) > MAX_GUESS_CHARS:  # text behind it may be the rest of a string
        raise fault.invalid(name, cause)
    try:
        value: Any = json_repair.loads(segment, skip_json_loads=True)
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # it documents none; seen: ValueError
        raise fault.invalid(name, cause) from error
    if not isinstance(value, dict) or _letters(json.dumps(value, ensure_ascii=False)) < _letters(segment):
        raise fault.invalid(name, cause)
    return value


def _letters(text: str) -> int:
    """How many letters and digits ``text`` has, escapes aside."""
    return sum(map(str.isalnum, re.sub(r"\\(?:u[0-9A-Fa-f]{4}|.)", "", text, flags=re.DOTALL)))
