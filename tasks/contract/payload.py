"""What the backend sends (CONTRACT §2): tolerant where the contract says so, clear where it refuses."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from tasks.contract import strict_json
from tasks.contract.ids import problem_with_id, problem_with_task_id
from tasks.contract.refusal import NotAllowedError, describe, kind_of
from tasks.contract.shape import JsonObject, Note, OpenShape, Scalar
from tasks.contract.strict_json import json_cause
from tasks.errors import Code, PermanentError

KNOWN_SCOPE = "auto_by_openclaw"
DEFAULT_DEADLINE_S = 900
_REPO = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?\Z")
_NOT_CONTENT = ("payloadFile", "resultFile", "sharedDir", "deadlineSeconds")


def _id_text(value: Any) -> Any:
    """Ids are numbers or text; ``True`` is neither. A JSON library may write the number 7 as ``7.0``."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _read_id(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise NotAllowedError("must be a number or text", "应为数字或文本")
    return _id_text(value)


def _policy_text(value: Any) -> Any:
    """A policy value of any kind is accepted and noted, never a reason to refuse the job."""
    return value if isinstance(value, str) else strict_json.line(value).decode().strip()


IdText = Annotated[str, BeforeValidator(_read_id, json_schema_input_type=Scalar)]
PolicyText = Annotated[str, BeforeValidator(_policy_text)]


class _Tolerant(OpenShape):
    """Empty text, 0 and null in an optional field mean "not given" (CONTRACT §2); ``false`` is a value."""

    @model_validator(mode="before")
    @classmethod
    def _drop_blanks(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        optional = {
            key for name, field in cls.model_fields.items() if not field.is_required() for key in (name, field.alias)
        }
        return {k: v for k, v in value.items() if not (k in optional and _is_blank(v))}


def _is_blank(value: object) -> bool:
    return value is None or value == "" or (value == 0 and not isinstance(value, bool))


class HistoryMessage(_Tolerant):
    """One earlier message of the conversation, as the backend keeps it."""

    id: Scalar | None = None
    role: str = "user"
    content: str = ""
    sources: tuple[object, ...] = ()
    created_qa_path: str | None = None
    created_at: object = None


class AttachmentRef(_Tolerant):
    """One attached file, by path; it is read only inside the allowed roots."""

    attachment_id: Scalar | None = None
    file_name: str = ""
    mime_type: str = ""
    storage_path: str | None = None
    sha256: str | None = None
    size: int | None = Field(default=None, ge=0)
    temporary: bool = True


class AnswerPolicy(_Tolerant):
    """What the backend allows for this answer; other values of the first two are noted and treated as the default."""

    scope_selection: PolicyText = KNOWN_SCOPE
    knowledge_base_first: bool = True
    allow_non_kb_supplement_when_insufficient: bool = False
    write_high_value_answer_to_qa: bool = False


class Team(_Tolerant):
    """The team that asks, and where its knowledge lies."""

    kb_repo: str | None = None
    name: str | None = None
    research_direction: str | None = None

    @field_validator("kb_repo")
    @classmethod
    def _repo(cls, value: str | None) -> str | None:
        if value is not None and (not _REPO.match(value) or any(part.strip(".") == "" for part in value.split("/"))):
            raise NotAllowedError(
                "must be 'name' or 'owner/name' of letters, digits and _ . -",
                "应为 name 或 owner/name，只能包含字母、数字和 _ . -",
            )
        return value


class Platform(_Tolerant):
    """Where the backend believes Gitea and the shared directory to be."""

    gitea_url: str | None = None
    gitea_owner: str | None = None
    shared_dir: str | None = None

    @field_validator("gitea_owner")
    @classmethod
    def _owner(cls, value: str | None) -> str | None:
        if value is not None and (not _REPO.match(value) or "/" in value or value.strip(".") == ""):
            raise NotAllowedError("must be one name of letters, digits and _ . -", "只能包含字母、数字和 _ . -")
        return value


class Payload(_Tolerant):
    """One job as the backend hands it over. Unknown fields stay in ``model_extra`` and in :meth:`document`."""

    task_id: str
    conversation_id: IdText
    message_id: IdText
    skill: str
    question: str = ""
    conversation_history: tuple[HistoryMessage, ...] = ()
    attachments: tuple[AttachmentRef, ...] = ()
    answer_policy: AnswerPolicy = AnswerPolicy()
    team: Team = Team()
    platform: Platform = Platform()
    payload_file: str | None = None
    result_file: str | None = None
    shared_dir: str | None = None
    deadline_seconds: float = Field(default=DEFAULT_DEADLINE_S, ge=10, le=86_400)
    protocol_version: str | None = None

    @field_validator("conversation_id", "message_id")
    @classmethod
    def _ids(cls, value: str) -> str:
        if problem := problem_with_id(value):
            raise NotAllowedError(problem.en, problem.zh)
        return value

    @field_validator("skill")
    @classmethod
    def _skill(cls, value: str) -> str:
        if not value.strip():
            raise NotAllowedError("must not be blank", "不能为空")
        return value

    @model_validator(mode="after")
    def _identity(self) -> Self:
        if problem := problem_with_task_id(self.task_id, self.skill, self.conversation_id, self.message_id):
            raise NotAllowedError(problem.en, problem.zh, field="taskId")
        if self.skill == "kb_query" and not self.question.strip():
            raise NotAllowedError("must not be blank for skill kb_query", "不能为空", field="question")
        return self

    def policy_notes(self) -> list[Note]:
        """Policy values that are accepted but treated as the default."""
        notes = []
        if self.answer_policy.scope_selection != KNOWN_SCOPE:
            notes.append(
                Note(
                    code="POLICY_TREATED_AS_DEFAULT",
                    field="answerPolicy.scopeSelection",
                    message=f"按 {KNOWN_SCOPE} 处理",
                )
            )
        if not self.answer_policy.knowledge_base_first:
            notes.append(
                Note(code="POLICY_TREATED_AS_DEFAULT", field="answerPolicy.knowledgeBaseFirst", message="按 true 处理")
            )
        return notes


def content_digest(document: JsonObject) -> str:
    """What makes two payloads the same job (CONTRACT §3): 64 hex digits over the backend's own JSON object.

    Paths and the deadline do not count, ids count as text. The object itself is hashed, not our reading of it: a later
    version of this module must not turn an old job into a conflict.
    """
    content: JsonObject = {k: v for k, v in document.items() if k not in _NOT_CONTENT}
    if isinstance(platform := content.get("platform"), dict):
        content["platform"] = {k: v for k, v in platform.items() if k != "sharedDir"}
    return strict_json.digest(_ids_as_text(content))


def _ids_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        ids = {"conversationId", "messageId", "attachmentId", "id"}
        return {k: _id_text(v) if k in ids else _ids_as_text(v) for k, v in value.items()}
    return [_ids_as_text(item) for item in value] if isinstance(value, list) else value


def as_object(document: object) -> JsonObject:
    """The document, being a JSON object. Raises ``BAD_PAYLOAD``, which names the kind that came."""
    if not isinstance(document, dict):
        en, zh = kind_of(document)
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload must be a JSON object, not {en}",
            zh=f"任务内容必须是 JSON 对象，收到的是{zh}",
        )
    return document


def read_payload(data: bytes | JsonObject) -> Payload:
    """The payload in ``data`` (JSON bytes, or an object already parsed).

    Raises :class:`~tasks.errors.PermanentError` ``BAD_PAYLOAD``; its text names each field, the kind of the value
    found and what is allowed. Values themselves are not repeated: they may be private.
    """
    try:
        document = strict_json.loads(data) if isinstance(data, bytes) else data
    except ValueError as error:
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload is not valid JSON: {error}",
            zh=f"任务文件不是合法的 JSON：{json_cause(error)}",
        ) from error
    document = as_object(document)
    if strict_json.is_too_deep(document):
        raise PermanentError(
            Code.BAD_PAYLOAD,
            en=f"payload is {strict_json.TOO_DEEP}",
            zh=f"任务内容嵌套过深（超过 {strict_json.MAX_DEPTH} 层）",
        )
    try:
        return Payload.model_validate(document)
    except ValidationError as error:
        en, zh = describe(error)
        raise PermanentError(Code.BAD_PAYLOAD, en=f"payload refused: {en}", zh=f"任务内容不合要求：{zh}") from error
