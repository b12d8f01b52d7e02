"""Which paths of the repository are pages, which are hidden, which are refused; must not look at any file.

CONTRACT §4.1 "Visible page", §4.5 (the name of a QA page); lengths: the path limit of Gitea's API.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

MAX_SEGMENT_BYTES = 200
MAX_PATH_BYTES = 500
MAX_SLUG_CHARS = 80
MAX_SLUG_BYTES = 180
QA_FOLDER = "qa/"

_HIDDEN_AT_ROOT = frozenset({"README.md", "index.md", "catalog.json", "AGENTS.md", "log.md"})
_HIDDEN_FOLDERS = frozenset({".kb", "source_files"})
# Names that Windows keeps for devices: a repository that holds one cannot be checked out there at all.
_DEVICES = frozenset({"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in "123456789¹²³"})
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_WHITE_SPACE = re.compile(r"\s+")
# What ends a sentence, after NFKC (full-width forms are ASCII by then). Not `#` or `+`: "C#" is not "C".
_SENTENCE_END = ".,;:!?~。、·・—…"


def is_hidden(path: str) -> bool:
    """Whether ``path`` is never a page: service files of the repository root, and all below the closed folders."""
    first, slash, _ = path.partition("/")
    if first.startswith(".git"):
        return True
    return first in _HIDDEN_FOLDERS if slash else first in _HIDDEN_AT_ROOT


def is_page(path: str) -> bool:
    """Whether a file of the tree can be a visible page: a safe ``.md`` path that is not hidden."""
    return path.endswith(".md") and not is_hidden(path) and problem_with_page_path(path) is None


def problem_with_page_path(path: str) -> str | None:
    """Why ``path`` must not be used to read or write a file of the repository (English), or ``None``.

    It says nothing about whether the file exists, is hidden or is a page.
    """
    if not path:
        return "is empty"
    if _CONTROL.search(path) or _LONE_SURROGATE.search(path):
        return "holds control characters"
    if "\\" in path:
        return "holds a backslash"
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "is absolute"
    if len(path.encode()) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    return next((problem for part in path.split("/") if (problem := _problem_with_segment(part))), None)


def _problem_with_segment(part: str) -> str | None:
    if part == "":
        return "holds an empty segment"
    if part in (".", ".."):
        return f"holds the segment {part!r}"
    if _as_file_systems_see(part) in (".git", "git~1"):
        return "holds a .git segment"
    if len(part.encode()) > MAX_SEGMENT_BYTES:
        return f"holds a segment longer than {MAX_SEGMENT_BYTES} bytes"
    return None


def _as_file_systems_see(part: str) -> str:
    """Case, ignorable characters (HFS+) and trailing dots and spaces (NTFS) do not tell two names apart there."""
    visible = "".join(char for char in part if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFKC", visible).casefold().rstrip(". ")


def clash_key(path: str) -> str:
    """Equal for paths that one checkout cannot hold side by side: they differ only in case or Unicode form."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


# ---------------------------------------------------------------- the name of a QA page


def normalized_question(question: str) -> str:
    """What makes two questions the same: NFKC, lower case, white space runs to one, sentence ends off."""
    text = _WHITE_SPACE.sub(" ", unicodedata.normalize("NFKC", question).lower()).strip()
    return text.rstrip(_SENTENCE_END + " ") or text


def qa_id(question: str) -> str:
    """The page's id, ``qa-`` + 12 hex digits: the same question keeps its page."""
    return "qa-" + hashlib.sha256(_encodable(normalized_question(question)).encode()).hexdigest()[:12]


def qa_slug(text: str) -> str:
    """``text`` as a file name without ending: letters, digits and CJK stay, every other run becomes ``-``.

    At most 80 characters and 180 bytes of UTF-8; ``""`` when nothing is left, or a name that Windows cannot have.
    """
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    words = "".join(char if char.isalnum() else " " for char in lowered).split()
    slug = "-".join(words)[:MAX_SLUG_CHARS]
    slug = slug.encode()[:MAX_SLUG_BYTES].decode(errors="ignore").rstrip("-")
    return "" if slug in _DEVICES else slug


def problem_with_qa_path(path: str) -> str | None:
    """Why a ``qa.path`` proposed by the model is ignored (English), or ``None``; a bare name counts as inside."""
    if problem := problem_with_page_path(path):
        return problem
    if "/" in path and not path.lower().startswith(QA_FOLDER):
        return "is not inside qa/"
    return None


def qa_path(wanted: str, title: str, question: str, page_id: str) -> str:
    """``qa/<slug>.md`` from the first of ``wanted`` (if safe), title and question that leaves a name, else the id.

    An unsafe ``wanted`` is ignored; the caller notes it (:func:`problem_with_qa_path`).
    """
    wanted = unicodedata.normalize("NFC", wanted.strip())
    candidates = [title, question]
    if problem_with_qa_path(wanted) is None:
        stem = wanted[len(QA_FOLDER) :] if wanted.lower().startswith(QA_FOLDER) else wanted
        candidates.insert(0, stem.removesuffix(".md").removesuffix(".MD"))
    slug = next((slug for candidate in candidates if (slug := qa_slug(candidate))), page_id)
    return f"{QA_FOLDER}{slug}.md"


def suffixed(path: str, task_id: str) -> str:
    """The name taken when ``path`` belongs to another page: ``-`` + 8 hex of sha256(taskId) before the ending."""
    return f"{path.removesuffix('.md')}-{hashlib.sha256(task_id.encode()).hexdigest()[:8]}.md"


def _encodable(text: str) -> str:
    return _LONE_SURROGATE.sub("\ufffd", text)
