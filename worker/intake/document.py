"""From bytes that anybody sent to a JSON object; must not know what a payload's fields mean."""

from __future__ import annotations

from tasks.contract import strict_json
from tasks.contract.payload import as_object
from tasks.contract.shape import JsonObject
from tasks.contract.strict_json import json_cause
from tasks.errors import Code, PermanentError

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024


def read_document(content: bytes) -> JsonObject:
    """The JSON object in ``content``. Raises ``BAD_PAYLOAD``: too large, not UTF-8, no JSON, no object."""
    if len(content) > MAX_PAYLOAD_BYTES:
        limit = MAX_PAYLOAD_BYTES // (1024 * 1024)
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload has {len(content)} bytes; at most {limit} MiB are taken",
            zh=f"任务内容过大（{len(content)} 字节），上限为 {limit} MiB",
        )
    try:
        document = strict_json.loads(content)
    except UnicodeDecodeError as error:
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload is not UTF-8 (byte {error.start})",
            zh=f"任务内容不是 UTF-8 编码（第 {error.start} 字节）",
        ) from error
    except (ValueError, RecursionError) as error:
        reason = str(error) or "nested too deeply"
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload is not valid JSON: {reason}",
            zh=f"任务内容不是合法的 JSON：{json_cause(error)}",
        ) from error
    return as_object(document)


def refuse_double_names(content: bytes) -> None:
    """Raise ``BAD_PAYLOAD`` for a field that stands there twice with different values: which one counts?"""
    if name := strict_json.double_name(content):
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload has the field {name[:80]!r} twice with different values; send each field once",
            zh=f"任务内容中字段 {name[:80]} 出现两次且内容不同，无法判断以哪个为准；请每个字段只写一次",
        )
