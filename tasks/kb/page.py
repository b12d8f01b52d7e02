"""One page's text: frontmatter, body, facts and source traces; never raises for any text, and touches no repository.

python-frontmatter loads the YAML; the block is found here, by one splitter, so that what is read as metadata is exactly
what is cut from the body (its own pattern also takes a rule further down, and drops leading blanks of the body).
"""

from __future__ import annotations

import codecs
import datetime as dt
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import yaml
from frontmatter.default_handlers import YAMLHandler

from tasks.contract.pages import PageFacts, SourceTrace
from tasks.contract.shape import JsonObject, Note, Scalar
from tasks.kb.catalog import MAX_LIST_ITEMS, entry_facts
from tasks.kb.headings import first_heading
from tasks.kb.paths import problem_with_page_path

MAX_TRACES = 10
MAX_TITLE = 300
ARCHIVE_FOLDER = "source_files/"

_MAX_BLOCK = 256 * 1024
_MAX_DEPTH = 40
_MAX_VALUES = 20_000
_MAX_TEXT = 1_000
_INT64 = 1 << 63
_BOM = "\ufeff"
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_CONFLICT = re.compile(r"^(?:<{7}|>{7})(?:[ \t]|$)", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_URL_SCHEMES = frozenset({"http", "https", "git", "ssh"})
_SNAKE = re.compile(r"_([a-z])")
_YAML = YAMLHandler()

Outcome = Literal["parsed", "broken", "none"]


@dataclass(frozen=True)
class Page:
    """What a page's text holds.

    ``outcome``: ``parsed`` (``metadata`` is JSON-safe) · ``broken`` (a fenced block that is no YAML mapping: cut from
    the body, ``metadata`` empty) · ``none`` (the whole text is the body). ``problem`` is ``yaml`` or ``unterminated``,
    and ``detail`` says more about it, for a warning.
    """

    outcome: Outcome
    body: str
    metadata: JsonObject = field(default_factory=dict)
    problem: Literal["yaml", "unterminated"] | None = None
    detail: str = ""

    @property
    def title(self) -> str | None:
        """The frontmatter's title on one line."""
        return one_line(self.metadata.get("title"))[:MAX_TITLE] or None

    @property
    def type(self) -> str | None:
        """The frontmatter's page type."""
        return one_line(self.metadata.get("type")) or None

    @property
    def tags(self) -> list[str] | None:
        """The frontmatter's tags: ``None`` without the field, a text as a one-item list, nulls left out."""
        return text_list(self.metadata["tags"]) if "tags" in self.metadata else None

    def notes(self, path: str) -> list[Note]:
        """A warning when the frontmatter could not be used."""
        if self.problem is None:
            return []
        reason = (
            "缺少结束的 ---，整篇按正文处理" if self.problem == "unterminated" else f"不是合法的 YAML（{self.detail}）"
        )
        code = "FRONTMATTER_UNTERMINATED" if self.problem == "unterminated" else "FRONTMATTER_BROKEN"
        return [Note(code=code, path=path, message=f"页面 {path} 的 frontmatter {reason}")]


@dataclass(frozen=True)
class Decoded:
    """A file's text. ``guess`` names the encoding that was tried because the bytes are not UTF-8, else ``""``."""

    text: str
    guess: str = ""


def decode(data: bytes) -> Decoded:
    """Text of any bytes: UTF-8 (a BOM dropped), UTF-16 with a BOM, else GB18030 as a guess; what fits none: U+FFFD."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Decoded(_clean(data.decode("utf-16", "replace")), "utf-16")
    for encoding, guess in (("utf-8-sig", ""), ("gb18030", "gb18030")):
        try:
            return Decoded(data.decode(encoding), guess)
        except UnicodeDecodeError:
            continue
    return Decoded(data.decode("utf-8-sig", "replace"), "utf-8 with replacement characters")


def read_page(text: str) -> Page:
    """Split ``text`` and read its frontmatter. Any text gives a page."""
    block, body = _split(text.lstrip(_BOM))
    if block is not None:
        return _with_block(block, body)
    if _opening(body):
        return Page("none", body, problem="unterminated", detail="no closing --- line")
    return Page("none", body)


def page_body(text: str) -> str:
    """The body alone, as :func:`read_page` cuts it, without reading the frontmatter."""
    return _split(text.lstrip(_BOM))[1]


def _opening(text: str) -> int:
    """Where the first line ends when it opens a frontmatter block, else 0."""
    first = _LINE.match(text)
    return first.end() if first and first[1].rstrip(" \t") == "---" and first[2] else 0


def _split(text: str) -> tuple[str | None, str]:
    """Frontmatter block and body; without a closed block ``None`` and the whole text."""
    start = at = _opening(text)
    while start and at < len(text) and (line := _LINE.match(text, at)) is not None:
        if line[1].rstrip(" \t") == "---":
            return text[start:at], text[line.end() :]
        at = line.end()
    return None, text


def _with_block(block: str, body: str) -> Page:
    if _CONFLICT.search(block):
        return Page("broken", body, problem="yaml", detail="conflict marker")
    if len(block) > _MAX_BLOCK:
        return Page("broken", body, problem="yaml", detail=f"longer than {_MAX_BLOCK} characters")
    try:
        loaded = _YAML.load(_clean(block))
        if loaded is not None and not isinstance(loaded, dict):
            return Page("broken", body, problem="yaml", detail="no mapping")
        return Page("parsed", body, metadata=_JsonSafe().mapping(loaded or {}))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 2}: " if mark else ""
        detail = where + one_line(error.problem)[:100]
    except Exception as error:  # noqa: BLE001  # PyYAML lets TypeError, ValueError, RecursionError … through for odd pages
        detail = one_line(f"{type(error).__name__}: {error}")[:120]
    return Page("broken", body, problem="yaml", detail=detail)


class _JsonSafe:
    """YAML values as JSON: dates as text, no NaN, no bytes, no huge integers; bounded, since aliases can multiply."""

    def __init__(self) -> None:
        self._left = _MAX_VALUES

    def mapping(self, value: Mapping[Any, Any], depth: int = 0) -> JsonObject:
        return {self._key(key): self.value(item, depth + 1) for key, item in value.items()}

    def value(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise ValueError("too many or too deeply nested values")
        if isinstance(value, dict):
            return self.mapping(value, depth)
        if isinstance(value, list | tuple | set):
            return [self.value(item, depth + 1) for item in value]
        return _scalar(value)

    def _key(self, key: Any) -> str:
        return str(_scalar(key) if isinstance(key, str | int | float | dt.date) else key)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else _big(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dt.datetime):
        return _stamp(value)
    if isinstance(value, dt.date):
        return value.isoformat()
    return _clean(value) if isinstance(value, str) else None


def _big(value: int) -> str:
    return str(value) if value.bit_length() < 4_000 else hex(value)


def _stamp(value: dt.datetime) -> str:
    if value.utcoffset() is None:
        return value.isoformat()
    return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _clean(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)


def one_line(value: object) -> str:
    """A scalar as one line of text; anything else, and null, as ``""``."""
    if value is None or isinstance(value, dict | list | bool):
        return ""
    return _SPACE.sub(" ", _clean(str(value))).strip()


def text_list(value: object) -> list[str]:
    """A list of texts: a lone scalar counts as one item; nulls, blanks and nested values are left out."""
    items = value if isinstance(value, list) else [value]
    flags = {True: "true", False: "false"}
    texts = (flags[item] if isinstance(item, bool) else one_line(item) for item in items)
    return list(dict.fromkeys(text for text in texts if text))


# ---------------------------------------------------------------- facts


def page_facts(path: str, page: Page | None, entry: Mapping[str, Any] | None) -> PageFacts:
    """A page's metadata: title, type and keywords from the frontmatter before the catalog, all else the other way.

    Without a title in either: the first heading, then the file name. ``page`` is ``None`` when it could not be read.
    """
    known = entry_facts(path, entry or {})
    own = entry_facts(path, page.metadata if page else {})
    keywords = _own_keywords(page) or known.keywords
    title = (page and page.title) or one_line(known.title)[:MAX_TITLE]
    type_ = (page and page.type) or own.type or known.type
    facts = {
        name: getattr(known, name) or getattr(own, name)
        for name in PageFacts.model_fields
        if name not in ("path", "type")
    }
    facts |= {
        "path": path,
        "title": title or (first_heading(page.body)[:MAX_TITLE] if page else "") or PurePosixPath(path).stem,
        "type": type_,
        "kb_type": facts["kb_type"] or type_,
        "keywords": keywords[:MAX_LIST_ITEMS],
    }
    return PageFacts(**facts)


def _own_keywords(page: Page | None) -> tuple[str, ...]:
    if page is None:
        return ()
    return tuple(text_list(page.metadata.get("keywords")) or page.tags or [])


# ---------------------------------------------------------------- source traces


def source_traces(metadata: Mapping[str, Any], limit: int = MAX_TRACES) -> list[SourceTrace]:
    """The page's ``sources[]`` (CONTRACT §4.3), at most ``limit``; entries without any usable value are left out.

    camelCase and snake_case keys count alike; only scalars are taken. ``archivedPath`` must be a safe path below
    ``source_files/``; a URL keeps its address only: no credentials, and no scheme that runs something.
    """
    listed = metadata.get("sources")
    items = listed if isinstance(listed, list) else [listed]
    found = (trace for item in items if (trace := _trace(item)) is not None)
    return [trace for _, trace in zip(range(limit), found, strict=False)]


def _trace(item: object) -> SourceTrace | None:
    if isinstance(item, str):
        item = {"archivedPath" if item.startswith(ARCHIVE_FOLDER) else "url": item}
    if not isinstance(item, dict):
        return None
    given = {_SNAKE.sub(lambda match: match[1].upper(), str(key)): value for key, value in item.items()}
    values: dict[str, Scalar | None] = {}
    for name, spec in SourceTrace.model_fields.items():
        value = given.get(spec.alias or name)
        if name == "source_id":
            values[name] = _source_id(value)
        else:
            values[name] = one_line(value)[:_MAX_TEXT]
    values["archived_path"] = _archived(str(values["archived_path"]))
    values["url"] = _address(str(values["url"]))
    return SourceTrace.model_validate(values) if any(values.values()) else None


def _source_id(value: object) -> Scalar | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return one_line(value)[:_MAX_TEXT] or None


def _archived(path: str) -> str:
    inside = path.startswith(ARCHIVE_FOLDER) and problem_with_page_path(path) is None
    return path if inside else ""


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return ""
    if parts.scheme.lower() not in _URL_SCHEMES or not host or any(char.isspace() for char in url):
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
