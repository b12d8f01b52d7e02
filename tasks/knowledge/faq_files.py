"""Cards out of Markdown, YAML, JSON and JSON Lines; text in, cards out; must not read a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tasks.knowledge.faq import FaqCard

_NAMES: dict[str, tuple[str, ...]] = {
    "question": ("standard_question", "standardQuestion", "question", "标准问", "问题"),
    "similar": ("similar_questions", "similarQuestions", "similar", "相似问"),
    "negative": ("negative_questions", "negativeQuestions", "negative", "反例问", "负面问"),
    "answers": ("answers", "answer", "答案", "内容"),
    "strategy": ("answer_strategy", "answerStrategy"),
    "tag": ("tag_name", "tagName", "tag", "标签分类"),
}
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LABEL = re.compile(r"^\s*(?:[-*]\s+)?\**(标准问|相似问|反例问|负面问)\**\s*[：:]\**\s*(.*)$")
_ITEM = re.compile(r"^\s+[-*]\s+(.+)$|^[-*]\s+(.+)$")
_LIST = re.compile(r"[；;\n]+")
_MEANING = {"标准问": "question", "相似问": "similar", "反例问": "negative", "负面问": "negative"}


class CardFileError(ValueError):
    """A file holds no cards as we read them; the text names the place."""


def read_cards(name: str, text: str) -> list[FaqCard]:
    """The cards of one file, by its suffix: ``.md``, ``.yaml``, ``.yml``, ``.json``, ``.jsonl``."""
    suffix = name.rpartition(".")[2].lower()
    text = text.removeprefix("﻿")
    if suffix == "md":
        return _markdown(name, text)
    if suffix == "jsonl":
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        return [_card(_json(line, f"{name}:{number}"), f"{name}:{number}") for number, line in lines]
    if suffix not in ("yaml", "yml", "json"):
        raise CardFileError(f"{name}: cards come as .md, .yaml, .json or .jsonl")
    document = _json(text, name) if suffix == "json" else _yaml(text, name)
    rows = document.get("cards", document.get("entries")) if isinstance(document, Mapping) else document
    if not isinstance(rows, list):
        raise CardFileError(f"{name}: needs a list of cards (or one under 'cards')")
    return [_card(row, f"{name}#{number}") for number, row in enumerate(rows, 1)]


def _card(row: Any, place: str) -> FaqCard:
    if not isinstance(row, Mapping):
        raise CardFileError(f"{place}: a card is a mapping of fields")
    values = {field: next((row[key] for key in keys if key in row), None) for field, keys in _NAMES.items()}
    return FaqCard(
        question=" ".join(str(values["question"] or "").split()),
        answers=_texts(values["answers"]),
        similar=_texts(values["similar"]),
        negative=_texts(values["negative"]),
        strategy=str(values["strategy"] or "all"),
        tag=str(values["tag"] or ""),
        place=place,
    )


def _texts(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(text for item in items if (text := str(item).strip()))


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CardFileError(f"{place}: {error}") from error


def _yaml(text: str, place: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CardFileError(f"{place}: {(str(error).splitlines() or [''])[-1].strip()}") from error


# ---------------------------------------------------------------- Markdown


def _markdown(name: str, text: str) -> list[FaqCard]:
    """One card a heading of the deepest level; its questions are labelled lines, everything else is its answer."""
    lines = text.splitlines()
    levels = dict(_headings(lines))
    if not levels:
        raise CardFileError(f"{name}: no heading, so no card")
    cards = []
    for start in [at for at, level in levels.items() if level == max(levels.values())]:
        end = min((at for at in levels if at > start), default=len(lines))
        cards.append(_section(lines[start:end], f"{name}:{start + 1}"))
    return cards


def _headings(lines: list[str]) -> Iterator[tuple[int, int]]:
    """Place and level of each heading; a comment in a code block is none."""
    fence = ""
    for at, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark.group(1)
        elif mark and mark.group(1).startswith(fence):
            fence = ""
        elif not fence and (heading := _HEADING.match(line)):
            yield at, len(heading.group(1))


def _section(lines: list[str], place: str) -> FaqCard:
    heading = _HEADING.match(lines[0])
    fields: dict[str, list[str]] = {"question": [], "similar": [], "negative": []}
    answer: list[str] = []
    listing = ""
    for line in lines[1:]:
        label, item = _LABEL.match(line), _ITEM.match(line)
        if label:
            listing = _MEANING[label.group(1)]
            fields[listing] += [part.strip() for part in _LIST.split(label.group(2)) if part.strip()]
        elif listing in ("similar", "negative") and item:
            fields[listing].append((item.group(1) or item.group(2)).strip())
        else:
            listing = "" if line.strip() else listing
            answer.append(line)
    text = "\n".join(answer).strip()
    title = heading.group(2) if heading else ""
    return FaqCard(
        question=" ".join((fields["question"] or [title])[0].split()),
        answers=(text,) if text else (),
        similar=tuple(fields["similar"]),
        negative=tuple(fields["negative"]),
        place=place,
    )
