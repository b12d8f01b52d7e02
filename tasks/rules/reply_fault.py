"""Why a model reply cannot be read: one exception and its sentences; must not decide what follows."""

from __future__ import annotations

import json

from tasks.errors import Code, PermanentError

UNREADABLE = frozenset(
    {
        Code.EMPTY_FILE,
        Code.INVALID_ENCODING,
        Code.INVALID_JSON,
        Code.AMBIGUOUS_JSON,
        Code.DUPLICATE_KEY,
        Code.SCHEMA,
        Code.TRUNCATED,
        Code.ANSWER_TOO_LARGE,
    }
)
"""The codes of replies that cannot be read, whatever was asked."""

BROKEN_REPLY = UNREADABLE | {Code.EMPTY_ANSWER, Code.SOURCES_REQUIRED, Code.UNKNOWN_SOURCE}
"""The codes that only another reply of the model mends."""


class ReplyFault(Exception):  # noqa: N818 - a fault of the reply, which the program expects
    """A reply cannot be read. ``zh`` goes back to the model and to the team, ``en`` to operators; both name the kind

    and the place, and never repeat the reply. Asking the model again is always worth a try.
    """

    retryable = True

    def __init__(self, code: Code, *, zh: str, en: str) -> None:
        super().__init__(f"{code}: {en}")
        self.code = code
        self.zh = zh
        self.en = en

    def as_error(self) -> PermanentError:
        """The error of a job (or of a file command) that has no further try."""
        return PermanentError(self.code, en=self.en, zh=self.zh)


def empty(name: str) -> ReplyFault:
    """Nothing but white space came."""
    return ReplyFault(Code.EMPTY_FILE, zh=f"{name} 是空的，没有任何内容", en=f"{name} is empty")


def too_large(name: str, size: int, limit: int) -> ReplyFault:
    """More text than any legal reply has."""
    return ReplyFault(
        Code.ANSWER_TOO_LARGE,
        zh=f"{name} 大小为 {size}，超过上限 {limit}",
        en=f"{name} has a size of {size}, the limit is {limit}",
    )


def not_utf8(name: str, error: UnicodeDecodeError) -> ReplyFault:
    """The bytes are in another encoding."""
    return ReplyFault(
        Code.INVALID_ENCODING,
        zh=f"{name} 不是 UTF-8 编码（第 {error.start + 1} 个字节）",
        en=f"{name} is not UTF-8 at byte {error.start + 1}",
    )


def truncated(name: str, *, zh: str, en: str) -> ReplyFault:
    """The reply stops before its end."""
    return ReplyFault(Code.TRUNCATED, zh=f"{name} 不完整：{zh}。半截内容不会被采用", en=f"{name} is cut off: {en}")


def invalid(name: str, error: json.JSONDecodeError) -> ReplyFault:
    """No JSON, and no repair helps."""
    return ReplyFault(
        Code.INVALID_JSON,
        zh=f"{name} 不是合法的 JSON（第 {error.lineno} 行第 {error.colno} 列有语法错误）",
        en=f"{name} is not valid JSON at line {error.lineno} column {error.colno}: {error.msg}",
    )


def too_deep(name: str, limit: int) -> ReplyFault:
    """Nested deeper than any shape of ours."""
    return ReplyFault(
        Code.INVALID_JSON, zh=f"{name} 的 JSON 嵌套超过 {limit} 层", en=f"{name}: JSON nested deeper than {limit}"
    )


def ambiguous(name: str) -> ReplyFault:
    """Several different objects where one is wanted."""
    return ReplyFault(
        Code.AMBIGUOUS_JSON,
        zh=f"{name} 里有多个不同的 JSON 对象，无法判断以哪个为准；只能输出一个",
        en=f"{name} holds several different JSON objects",
    )


def duplicate_key(name: str, key: str) -> ReplyFault:
    """One object says the same thing twice."""
    return ReplyFault(
        Code.DUPLICATE_KEY,
        zh=f"{name} 的同一个对象里字段 {key[:80]!r} 出现了两次，无法判断以哪个为准",
        en=f"{name}: key {key[:80]!r} occurs twice in one object",
    )


def misshapen(name: str, field: str, found: object, *, zh: str, en: str) -> ReplyFault:
    """The JSON is fine, its shape is not; ``zh`` and ``en`` say what ``field`` must be."""
    kind = "missing" if found is None else type(found).__name__
    return ReplyFault(
        Code.SCHEMA,
        zh=f"{name} 的字段 {field}（收到：{kind}）{zh}",
        en=f"{name}: field {field} ({kind}) {en}",
    )
