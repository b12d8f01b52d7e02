"""Why an attachment gave no text: the sentence for each code of CONTRACT §4.1; must not show a path or content."""

from __future__ import annotations

import re

from tasks.contract.context import AttachmentFault

_SENTENCES = {
    "NO_FILE": "附件《{name}》没有提供文件（缺少 storagePath），无法读取。",
    "NOT_FOUND": "附件《{name}》在存储位置找不到或无权读取，请重新上传。",
    "OUTSIDE_ALLOWED_ROOTS": "附件《{name}》的存储位置不在允许的目录内，未读取。",
    "NOT_A_FILE": "附件《{name}》的存储位置不是普通文件，无法读取。",
    "INTEGRITY_MISMATCH": "附件《{name}》与提交时的校验值或大小不一致，未读取，请重新上传。",
    "TOO_LARGE": "附件《{name}》过大（文件本身或解压后的内容超出限制），无法读取。",
    "EMPTY_FILE": "附件《{name}》是空文件，没有内容。",
    "PASSWORD_PROTECTED": "附件《{name}》有密码保护，无法读取内容，请上传解密后的版本。",
    "CORRUPT": "附件《{name}》已损坏或不完整（例如上传中断），无法读取。",
    "NO_TEXT_LAYER": "附件《{name}》是扫描件或图片，没有可提取的文字。",
    "UNSUPPORTED_TYPE": "附件《{name}》的文件类型暂不支持，请转换为 PDF、Word、Excel、文本等格式后上传。",
    "BINARY_FILE": "附件《{name}》是二进制文件或无法识别的编码，没有可读的文字。",
    "FORBIDDEN_XML": "附件《{name}》含不安全的结构（XML 实体声明），已拒绝解析。",
    "TIMEOUT": "附件《{name}》解析超时，未能读取。",
    "OUT_OF_MEMORY": "附件《{name}》解析所需内存超出限制，未能读取。",
    "BUDGET_EXHAUSTED": "附件《{name}》未读取：本次提问的附件数量、时间或字数额度已用完。",
}
CODES = frozenset(_SENTENCES)
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff《》]")
_MAX_NAME = 120


_HOW_TO_READ_PICTURES = "如需识别图片中的文字，请管理员安装可选组件 ocr，或上传带文字层的文件。"


def fault(code: str, file_name: str, *, pictures_are_read: bool = False) -> AttachmentFault:
    """The error entry of an attachment. ``pictures_are_read``: OCR is there, and found nothing either."""
    message = _SENTENCES[code].format(name=shown_name(file_name))
    if code == "NO_TEXT_LAYER" and not pictures_are_read:
        message += _HOW_TO_READ_PICTURES
    return AttachmentFault(code=code, message=message)


def shown_name(file_name: str) -> str:
    """The name as people may see it: the last part only, one line, no control or direction marks, not endless."""
    name = _UNSAFE.sub("", file_name.replace("\\", "/").rstrip("/").rpartition("/")[2]).strip()
    if len(name) > _MAX_NAME:
        name = name[: _MAX_NAME - 20] + "…" + name[-19:]
    return name or "未命名"
