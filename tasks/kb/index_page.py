"""``index.md``: our lines in a page that also belongs to people; must not touch a line that is not ours.

CONTRACT §4.6. Ours are the lines ``- [title](path)`` whose path is in the catalog of the parent commit.
"""

from __future__ import annotations

import io
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tasks.kb.headings import atx_heading

MAX_KEYWORDS = 8
HEADER = "# Knowledge Base Index"

# The title ends at its first `](`, and only there: where the rest does not fit, no later one would.
_LINE = re.compile(
    r"- \[([^\\\]]*+(?:(?:\\.|\](?!\())[^\\\]]*+)*)\]\((<[^<>\\]*+(?:\\.[^<>\\]*+)*>|.+?)\)(?=\s*$|\s+- )"
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UPDATED = "Updated at:"
# Types whose English plural is not made by rule, as the team's own index writes them.
_GROUPS = {"qa": "QA", "faq": "FAQ", "overview": "Overview", "": "Pages"}


@dataclass(frozen=True)
class IndexEntry:
    """What the index says about one page."""

    path: str
    title: str
    type: str
    keywords: tuple[str, ...] = ()


def group_name(page_type: str) -> str:
    """The heading of a type: ``tech-note`` → ``Tech Notes``."""
    key = _one_line(page_type).lower()
    if key in _GROUPS:
        return _GROUPS[key]
    words = [word[:1].upper() + word[1:] for word in re.split(r"[-_\s]+", key) if word] or ["Page"]
    return " ".join([*words[:-1], _plural(words[-1])])


def index_line(entry: IndexEntry) -> str:
    """``- [title](path) - keyword, …`` without a line end."""
    title = _escaped(_one_line(entry.title) or entry.path)
    keywords = [text for word in entry.keywords if (text := _one_line(word))][:MAX_KEYWORDS]
    tail = f" - {', '.join(_escaped(word) for word in keywords)}" if keywords else ""
    return f"- [{title}]({_destination(entry.path)}){tail}"


def create(entries: Iterable[IndexEntry], updated_at: str) -> str:
    """A whole new index over ``entries``."""
    groups = _by_group(entries)
    parts = [f"{HEADER}\n\n{_UPDATED} {updated_at}\n"]
    for name in sorted(groups, key=str.casefold):
        lines = sorted(groups[name], key=_order_of)
        parts.append(f"\n## {name}\n\n" + "".join(f"{index_line(entry)}\n" for entry in lines))
    return "".join(parts)


def update(text: str, entries: Sequence[IndexEntry], ours: Container[str], updated_at: str) -> str:
    """The index with ``entries`` put in or renewed and the ``Updated at`` line set; every other line as it was.

    ``ours``: the paths of the parent commit's catalog.
    """
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    if not text.removeprefix(bom).strip():
        return bom + create(entries, updated_at)
    page = _Index(text.removeprefix(bom), ours)
    page.set_date(updated_at)
    page.put(entries)
    return bom + page.text()


def listed_paths(text: str) -> list[str]:
    """The paths that lines ``- [title](path)`` point to, in order."""
    return [path for line in text.split("\n") if line.startswith("- [") and (path := _path_in(line.rstrip("\r")))]


def without(text: str, paths: Container[str]) -> str:
    """The index without the lines that point to ``paths``; every other line as it was."""
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
    return "".join(line for line in lines if not (line.startswith("- [") and _path_in(line.rstrip("\r\n")) in paths))


class _Index:
    """The page as lines (line ends on them). ``headings`` are kept in step with every edit."""

    def __init__(self, text: str, ours: Container[str]) -> None:
        self.end = "\r\n" if "\r\n" in text[:10_000] else "\n"
        self.lines = io.StringIO(text, newline="\n").readlines()  # other line ends of Python's are text here
        self.headings = list(_headings(self.lines))
        self.ours = ours

    def text(self) -> str:
        return "".join(self.lines)

    def set_date(self, updated_at: str) -> None:
        line = f"{_UPDATED} {updated_at}{self.end}"
        first_group = next((at for at, level, _ in self.headings if level > 1), len(self.lines))
        for at in range(first_group):
            if self.lines[at].startswith(_UPDATED):
                self._edit(at, at + 1, [line if self.lines[at].endswith("\n") else line.rstrip()])
                return
        title = next((at for at, level, _ in self.headings if level == 1 and at < first_group), None)
        if title is None:
            top = self._after_frontmatter()
            self._edit(top, top, [f"{HEADER}{self.end}", self.end, line, self.end])
        else:
            below = [] if self._is_blank(title + 1) else [self.end]
            self._edit(title + 1, title + 1, [self.end, line, *below])

    def put(self, entries: Sequence[IndexEntry]) -> None:
        """Renew the lines that are there and insert the others, group by group."""
        known = [entry for entry in entries if entry.path in self.ours]
        places = self._places_of({entry.path for entry in known})
        missing = [entry for entry in entries if entry.path not in places]
        moved = []
        for entry in known:
            for at in places.get(entry.path, []):
                if _title_in(self.lines[at]) == _order_of(entry)[0]:
                    tail = self.lines[at][len(self.lines[at].rstrip("\r\n")) :]
                    self.lines[at] = index_line(entry) + tail
                    break
            else:
                if entry.path in places:
                    moved.append(entry)
        for at in sorted((at for entry in moved for at in places[entry.path]), reverse=True):
            self._edit(at, at + 1, [])
        for name, group in _by_group([*missing, *moved]).items():
            self._insert(name, sorted(group, key=_order_of))

    def _insert(self, name: str, entries: Sequence[IndexEntry]) -> None:
        lines = [index_line(entry) + self.end for entry in entries]
        start = next(
            (at for at, level, title in self.headings if level == 2 and title.casefold() == name.casefold()), None
        )
        if start is None:
            self._insert_group(name, lines)
            return
        own = [(at, _order_in(self.lines[at])) for at in range(start + 1, self._stop(start)) if self._is_ours(at)]
        if not own:
            self._insert_first(start, lines)
            return
        end = own[-1][0] + 1
        for entry, line in reversed(list(zip(entries, lines, strict=True))):
            at = next((at for at, order in own if order > _order_of(entry)), end)
            self._edit(at, at, [line])

    def _insert_first(self, start: int, lines: list[str]) -> None:
        """A group without a line of ours: below what people wrote there, apart from it."""
        stop = self._stop(start)
        last = max(at for at in range(start, stop) if at == start or not self._is_blank(at))
        in_list = last > start and self.lines[last].startswith("- ")
        follows_blank = not in_list and self._is_blank(last + 1)
        at = last + 2 if follows_blank else last + 1
        above = [] if in_list or follows_blank else [self.end]
        below = [self.end] if at == stop < len(self.lines) else []
        self._edit(at, at, [*above, *lines, *below])

    def _insert_group(self, name: str, lines: list[str]) -> None:
        """A new group stands before the first group of ours that sorts after it, else after the last of ours."""
        groups = [(at, title) for at, level, title in self.headings if level == 2]
        own = [(at, title) for at, title in groups if self._holds_ours(at)] or groups
        block = [f"## {name}{self.end}", self.end, *lines]
        place = next((at for at, title in own if title.casefold() > name.casefold()), None)
        if place is not None:
            self._edit(place, place, [*block, self.end])
            return
        stop = self._stop(own[-1][0]) if own else len(self.lines)
        above = [] if self._is_blank(stop - 1) else [self.end]
        below = [self.end] if stop < len(self.lines) else []
        self._edit(stop, stop, [*above, *block, *below])

    def _edit(self, start: int, stop: int, lines: list[str]) -> None:
        if lines and start and not self.lines[start - 1].endswith("\n"):
            self.lines[start - 1] += self.end
        self.lines[start:stop] = lines
        shift = len(lines) - (stop - start)
        above = [heading for heading in self.headings if heading[0] < start]
        below = [(at + shift, level, title) for at, level, title in self.headings if at >= stop]
        self.headings = [*above, *((start + at, level, title) for at, level, title in _headings(lines)), *below]

    def _stop(self, start: int) -> int:
        return next((at for at, level, _ in self.headings if at > start and level <= 2), len(self.lines))

    def _is_blank(self, at: int) -> bool:
        return 0 <= at < len(self.lines) and not self.lines[at].strip()

    def _is_ours(self, at: int) -> bool:
        path = _path_in(self.lines[at])
        return path is not None and path in self.ours

    def _holds_ours(self, heading: int) -> bool:
        return any(self._is_ours(at) for at in range(heading + 1, self._stop(heading)))

    def _places_of(self, paths: set[str]) -> dict[str, list[int]]:
        """Line numbers of the lines that point to one of ``paths``."""
        found: dict[str, list[int]] = {}
        for at, line in enumerate(self.lines) if paths else ():
            if line.startswith("- [") and (path := _path_in(line)) in paths and path:
                found.setdefault(path, []).append(at)
        return found

    def _after_frontmatter(self) -> int:
        if self.lines and self.lines[0].strip() == "---":
            closing = [at for at in range(1, len(self.lines)) if self.lines[at].strip() == "---"]
            return closing[0] + 1 if closing else 0
        return 0


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Line number, level and text of each heading outside code blocks."""
    fence = ""
    for at, line in enumerate(lines):
        if line[:1] not in "#`~ ":
            continue
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif not fence and (heading := atx_heading(line.rstrip("\r\n"))):
            yield at, *heading


def _by_group(entries: Iterable[IndexEntry]) -> dict[str, list[IndexEntry]]:
    groups: dict[str, list[IndexEntry]] = {}
    for entry in entries:
        groups.setdefault(group_name(entry.type), []).append(entry)
    return groups


def _order_in(line: str) -> tuple[str, str]:
    return _title_in(line), _path_in(line) or ""


def _title_in(line: str) -> str:
    found = _LINE.match(line)
    return _unescaped(found[1]) if found else ""


def _path_in(line: str) -> str | None:
    found = _LINE.match(line)
    if not found:
        return None
    target = found[2]
    return _unescaped(target[1:-1]) if target.startswith("<") else target


def _order_of(entry: IndexEntry) -> tuple[str, str]:
    return _one_line(entry.title) or entry.path, entry.path


def _destination(path: str) -> str:
    if any(char.isspace() or char in "()<>" for char in path):
        return "<" + re.sub(r"([<>\\])", r"\\\1", path) + ">"
    return path


def _one_line(text: str) -> str:
    return " ".join(part for line in text.splitlines() if (part := line.strip()))


def _escaped(text: str) -> str:
    """Brackets escaped; a backslash only where it would otherwise escape one."""
    return re.sub(r"([\[\]])", r"\\\1", re.sub(r"\\(?=[\[\]\\]|$)", r"\\\\", text))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([\[\]\\<>])", r"\1", text)


def _plural(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    if re.search(r"(s|x|z|ch|sh)$", word):
        return f"{word}es"
    return f"{word}s" if re.search(r"[a-z]$", word) else word
