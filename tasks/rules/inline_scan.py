"""Finds what is not safe in one run of inline Markdown and edits it; must not know blocks.

The walk follows the algorithm of the CommonMark specification (code spans and autolinks first, brackets on a stack),
because no parser in Python keeps the source positions of inline tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from markdown_it.common.utils import normalizeReference, unescapeAll

from tasks.rules.links import Links

_VARIATION = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_UNSEEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a"  # zero-width and bidi
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"  # tags
)
# One variation selector belongs to its character (emoji, rare Han forms); a run of them can only carry hidden data.
INVISIBLE = re.compile(f"[{_UNSEEN}]|(?<=[{_VARIATION}])[{_VARIATION}]")

_SPECIAL = re.compile(rf"[\\`<!\[\]]|{INVISIBLE.pattern}")
_ESCAPABLE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_TICKS = re.compile("`+")
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")
_AUTOLINK = re.compile(r"<([A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>\x00-\x20]*)>")
_EMAIL = re.compile(r"<[\w.!#$%&'*+/=?^`{|}~-]+@[\w.-]+>")
_IN_ANGLES = re.compile(r"<((?:[^<>\r\n\\]|\\.)*)>")
_TITLE = re.compile(r"""\s+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\))""", re.DOTALL)
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999})\]", re.DOTALL)
_LIKE_DEFINITION = re.compile(
    r":\s*<?([^\s<>]+)>?(?=[ \t]*(?:[\r\n]|\Z|[\"'(]))|:\s*<?((?:[A-Za-z][A-Za-z0-9+.-]*:|//)[^\s>]+)"
)
# Blank lines are part of it: whatever the text, each character is passed once.
_LINE_PREFIX = re.compile(r"(?:\A|[\r\n])[\s>*+\-0-9.)]*+")
_PAREN_OR_END = re.compile(r"\\[!-/:-@\[-`{-~]|[()\x00-\x20\x7f]")
_PLAIN_TARGET = re.compile(r"(?:[^\s()<>\[\]`\\!]|\([^\s()<>\[\]`\\!]*\))+")
_QUOTED = {ord(char): f"%{ord(char):02X}" for char in ' ()<>[]`\\"!'}
_MAX_TARGET = 2_000
_MAX_DEPTH = 32
_MAX_LABEL = 999


@dataclass
class Tally:
    """What readers have to be told: link targets and images that are gone."""

    links: int = 0
    images: int = 0


@dataclass(frozen=True)
class _Opener:
    start: int
    after: int
    image: bool


@dataclass(frozen=True)
class _Target:
    """``(raw "title")`` behind a link text; ``url`` is what a renderer would open, ``end`` lies behind ``)``."""

    url: str
    plain: bool
    end: int


class InlineScan:
    """One walk over ``text``. ``kept`` tells of each defined reference label whether its definition stays.

    With ``shared_code``, only these ranges (shifted by ``offset``) may count as code.
    """

    def __init__(
        self,
        text: str,
        links: Links,
        kept: Mapping[str, bool],
        tally: Tally,
        *,
        offset: int = 0,
        shared_code: frozenset[tuple[int, int]] | None = None,
    ) -> None:
        self._text = text
        self._links = links
        self._kept = kept
        self._tally = tally
        self._offset = offset
        self._shared_code = shared_code
        self._at = 0
        self._edits: list[tuple[int, int, str]] = []
        self._openers: list[_Opener] = []
        self._no_link_before = 0  # a link holds no link: brackets opened left of this place cannot become one
        self._runs = _ends_by_length(text)
        self._line_starts = {prefix.end() for prefix in _LINE_PREFIX.finditer(text)}
        self._html_lines = sorted(at for at in self._line_starts if _TAG_START.match(text, at))
        self._trusts_code = True
        self.code: list[tuple[int, int]] = []

    def run(self) -> str:
        """The edited text."""
        steps = {"\\": self._escape, "`": self._ticks, "<": self._angle, "!": self._bang, "[": self._open}
        steps["]"] = self._close
        while found := _SPECIAL.search(self._text, self._at):
            self._at = found.start()
            steps.get(found.group(), self._invisible)()
        out, done = [], 0
        for start, end, replacement in sorted(self._edits):
            out += [self._text[done:start], replacement]
            done = end
        return "".join([*out, self._text[done:]])

    def _edit(self, start: int, end: int, replacement: str = "") -> None:
        self._edits.append((start, end, replacement))

    def _invisible(self) -> None:
        self._edit(self._at, self._at + 1)
        self._at += 1

    def _escape(self) -> None:
        """``\\<`` is text in CommonMark, but a tag for renderers that look for HTML first."""
        if _TAG_START.match(self._text, self._at + 1):
            self._edit(self._at, self._at + 2, "&lt;")
        self._at += 2 if self._text[self._at + 1 : self._at + 2] in _ESCAPABLE else 1

    def _ticks(self) -> None:
        run = _TICKS.match(self._text, self._at)
        assert run is not None
        ends = self._runs.get(len(run.group()), [])
        while ends and ends[-1] <= run.end():
            ends.pop()
        if ends and self._is_code(self._at, ends[-1]):
            self.code.append((self._at + self._offset, ends[-1] + self._offset))
            self._at = ends[-1]
            return
        # Where renderers may differ on one pair of runs, they differ on all pairs after it.
        self._trusts_code = self._trusts_code and not ends
        self._at = run.end()

    def _is_code(self, start: int, end: int) -> bool:
        """Not when a line inside begins with HTML: that line would end the paragraph, and the code span with it."""
        next_html = bisect_right(self._html_lines, start)
        if not self._trusts_code or any(at < end for at in self._html_lines[next_html : next_html + 1]):
            return False
        return self._shared_code is None or (start + self._offset, end + self._offset) in self._shared_code

    def _angle(self) -> None:
        if link := _AUTOLINK.match(self._text, self._at):
            if _PLAIN_TARGET.fullmatch(link[1]) and self._links.allows(unescapeAll(link[1])):
                self._at = link.end()
                return
            self._strip_angles(link)
        elif email := _EMAIL.match(self._text, self._at):
            self._strip_angles(email)
        elif _TAG_START.match(self._text, self._at):
            self._edit(self._at, self._at + 1, "&lt;")
        self._at += 1

    def _strip_angles(self, link: re.Match[str]) -> None:
        self._tally.links += 1
        self._edit(link.start(), link.start() + 1)
        self._edit(link.end() - 1, link.end())

    def _bang(self) -> None:
        if self._text[self._at + 1 : self._at + 2] == "[":
            self._openers.append(_Opener(self._at, self._at + 2, image=True))
            self._at += 1
        self._at += 1

    def _open(self) -> None:
        self._openers.append(_Opener(self._at, self._at + 1, image=False))
        self._at += 1

    def _close(self) -> None:
        closing, after = self._at, self._at + 1
        self._at = after
        opener = self._openers.pop() if self._openers else None
        target = _target(self._text, after) if opener else None
        if opener and target and (opener.image or opener.start >= self._no_link_before):
            self._resolve(opener, closing, target.end, keep=self._is_allowed(target), target=target)
            return
        if self._text.startswith("(", after):
            self._edit(after, after, "\\")  # no link here, but some renderers are less strict
        if opener is None:
            return
        end, known = self._reference(opener, closing)
        if known is not None:
            self._resolve(opener, closing, end, keep=known)
        elif self._is_like_definition(opener, after):
            self._edit(after, after, "\\")

    def _resolve(self, opener: _Opener, closing: int, end: int, *, keep: bool, target: _Target | None = None) -> None:
        """Keep the link, keep its target in a plain form, or leave nothing but its text."""
        self._at = end
        if keep and not opener.image:
            self._no_link_before = opener.start
            form = _quoted(self._links.written(target.url)) if target else ""
            if target and not (target.plain and self._links.written(target.url) == target.url):
                self._edit(closing, end, f"]({form})")
            return
        if opener.image:
            self._tally.images += 1
        else:
            self._tally.links += 1
        self._edit(opener.start, opener.after)
        self._edit(closing, end)

    def _is_allowed(self, target: _Target) -> bool:
        return self._links.allows(target.url) and self._links.allows(_quoted(target.url))

    def _reference(self, opener: _Opener, closing: int) -> tuple[int, bool | None]:
        """Where a reference ends, and whether its definition stays; ``None`` when there is no definition."""
        if not self._kept:
            return closing + 1, None
        own = self._text[opener.after : min(closing, opener.after + _MAX_LABEL + 1)]
        if label := _LABEL.match(self._text, closing + 1):
            named = self._kept.get(normalizeReference(label[1] or own))
            if named is not None:
                return label.end(), named
        return closing + 1, self._kept.get(normalizeReference(own))

    def _is_like_definition(self, opener: _Opener, after: int) -> bool:
        """``[x]: target`` at the start of a line, where CommonMark sees text but others a definition."""
        if opener.start not in self._line_starts:
            return False
        like = _LIKE_DEFINITION.match(self._text, after)
        return like is not None and not self._links.allows(unescapeAll(like[1] or like[2]))


def _ends_by_length(text: str) -> dict[int, list[int]]:
    """Where backtick runs of each length end, last first: found once, so that the walk stays linear."""
    ends: dict[int, list[int]] = {}
    for run in reversed(list(_TICKS.finditer(text))):
        ends.setdefault(len(run.group()), []).append(run.end())
    return ends


def _target(text: str, at: int) -> _Target | None:
    """An inline link's ``(target "title")`` at ``at``, as CommonMark reads it; ``None`` when there is none."""
    if not text.startswith("(", at):
        return None
    start = _skip_space(text, at + 1)
    if angled := _IN_ANGLES.match(text, start):
        raw, end = angled[1], angled.end()
    else:
        end = _bare_end(text, start)
        raw = text[start:end]
    title = _TITLE.match(text, end)
    close = _skip_space(text, title.end() if title else end)
    if not text.startswith(")", close):
        return None
    plain = text[at : close + 1] == f"({raw})" and unescapeAll(raw) == raw and bool(_PLAIN_TARGET.fullmatch(raw))
    return _Target(unescapeAll(raw), plain, close + 1)


def _bare_end(text: str, at: int) -> int:
    """The end of a target without angle brackets: up to white space or the bracket that it did not open."""
    depth, limit = 0, min(len(text), at + _MAX_TARGET)
    for mark in _PAREN_OR_END.finditer(text, at, limit):
        char = mark.group()
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0 or depth > _MAX_DEPTH or char <= " " or char == "\x7f":
            return mark.start()
    return limit


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _quoted(url: str) -> str:
    """``url`` so that it needs no Markdown escaping inside ``(…)``."""
    return url.translate(_QUOTED).replace("&", "&amp;") if unescapeAll(url) != url else url.translate(_QUOTED)
