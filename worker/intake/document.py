"""From bytes that anybody sent to a JSON object; must not know what a payload's fields mean."""

from __future__ import annotations

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
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
            Code.BAD_PAYLOAD, en=f"payload is not valid JSON: {reason}", zh=f"任务内容不是合法的 JSON：{reason}"
        ) from error
    if not isinstance(document, dict):
        kind = type(document).__name__
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload must be a JSON object, not {kind}",
            zh=f"任务内容必须是 JSON 对象，收到的是 {kind}",
        )
    return document
