"""Replies written by hand for given questions (demo and tests); any other question has no model, never a near match."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tasks.errors import Code, PermanentError
from tasks.ports import ModelCall, RawReply
from worker.adapters.model.probing import Finding

MODEL_NAME = "recorded"


class RecordingError(ValueError):
    """A recordings file cannot be used; the text names the file and the place."""


@dataclass(frozen=True)
class Recording:
    """What stands in the file for one question and stage."""

    question: str
    stage: str
    text: str
    finish_reason: str = "stop"


class RecordedDriver:
    """Answers from a file, by the job's question and the stage, exactly as written there."""

    def __init__(self, source: str, recordings: list[Recording]) -> None:
        self._source = source
        self._by_key = {(_normal(entry.question), entry.stage): entry for entry in recordings}

    @property
    def name(self) -> str:
        """``recorded``: results say so in ``degraded[]``."""
        return "recorded"

    @property
    def endpoint(self) -> str:
        """There is none."""
        return ""

    def complete(self, call: ModelCall) -> RawReply:
        """The recorded reply. Raises ``NO_MODEL`` for any other question: a recording is never a fallback."""
        entry = self._by_key.get((_normal(call.question), call.stage))
        if entry is None:
            raise PermanentError(
                Code.NO_MODEL,
                en=f"the recorded driver has no reply for this question at stage {call.stage} ({self._source});"
                " unset KBW_MODEL_DRIVER and configure a model",
                zh=f"当前使用预录回复，这个问题的 {call.stage} 阶段没有录制；"
                "请取消 KBW_MODEL_DRIVER=recorded 并配置模型",
            )
        return RawReply(text=entry.text, finish_reason=entry.finish_reason, model=MODEL_NAME)

    def probe(self) -> list[Finding]:
        """A warning: this is no model."""
        questions = len({question for question, _ in self._by_key})
        message = f"recorded replies for {questions} question(s) from {self._source}; every other question fails"
        return [Finding("model", "warn", message, "unset KBW_MODEL_DRIVER and configure a model")]

    def close(self) -> None:
        """Nothing is open."""


def load_recordings(path: Path) -> list[Recording]:
    """The entries of a JSON or YAML file: ``{replies: [{question, stage, reply, finishReason?}]}``.

    ``reply`` is text, kept as it is, or an object, sent as JSON. Raises :class:`RecordingError`.
    """
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordingError(f"{path}: {_first_line(error)}") from error
    entries = document.get("replies") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise RecordingError(f"{path}: needs a list under 'replies'")
    recordings = [_recording(path, number, entry) for number, entry in enumerate(entries, 1)]
    keys = [(_normal(entry.question), entry.stage) for entry in recordings]
    if len(set(keys)) < len(keys):
        raise RecordingError(f"{path}: a question has two replies for the same stage")
    return recordings


def _recording(path: Path, number: int, entry: Any) -> Recording:
    fields = entry if isinstance(entry, dict) else {}
    question, stage, reply = fields.get("question"), fields.get("stage"), fields.get("reply")
    if not (isinstance(question, str) and question.strip() and isinstance(stage, str) and stage):
        raise RecordingError(f"{path}: reply {number} needs 'question' and 'stage' as text")
    if not isinstance(reply, str | dict):
        raise RecordingError(f"{path}: reply {number} needs 'reply' as text or as an object")
    text = reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False, default=str)
    return Recording(question, stage, text, str(fields.get("finishReason", "stop")))


def _normal(question: str) -> str:
    """White space and Unicode form do not make another question."""
    return re.sub(r"\s+", " ", unicodedata.normalize("NFC", question)).strip()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
