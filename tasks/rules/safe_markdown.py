"""Makes a model's Markdown safe to show (CONTRACT §4.5) by small edits in place; must not reformat anything else.

Outside code, invisible characters are dropped, raw HTML is shown as text, images become their alt text, and a link
keeps its target only when :class:`~tasks.rules.links.Links` allows it. Every pass removes or escapes, so passes are
repeated until nothing changes: what one edit lays bare the next pass sees, and a safe text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from markdown_it.common.utils import unescapeAll

from tasks.rules.inline_scan import INVISIBLE, InlineScan, Tally
from tasks.rules.links import Links
from tasks.rules.markdown_blocks import Block, Definition, Markdown, OpenFence, parse

MAX_PASSES = 12

_PLAIN_DEFINITION = re.compile(r"[\s>]*\[[^\[\]<>`\\]+\]:[ \t]+[^\s<>\[\]`\\]+[ \t]*(?:\r\n?|\n|\Z)")
_DEFINED = re.compile(r"(\[(?:[^\[\]\\]|\\.)*\]):", re.DOTALL)
_LIKE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|/|\.|www\.|[^\s]*\.(?:md|html?|com|cn)\b", re.IGNORECASE)
_LOOKALIKE = str.maketrans({"<": "&lt;", "[": "［", "]": "］", "`": "｀", "~": "～"})


@dataclass(frozen=True)
class SafeText:
    """``dropped_links``: targets that were not kept · ``dropped_images``: images of which the alt text is left."""

    text: str
    dropped_links: int = 0
    dropped_images: int = 0


def make_safe(text: str, links: Links) -> SafeText:
    """``text`` as it may be shown by any Markdown renderer; code spans and blocks keep their bytes.

    A fenced block that is never closed is closed at its end, so that nothing put below can hide in it.
    """
    return _until_stable(text, lambda current, tally: _one_pass(current, links, tally))


def safe_line(text: str, links: Links) -> SafeText:
    """The same for a single line (a title, a reason): no block syntax, white space runs become one blank."""
    return _until_stable(text, lambda current, tally: InlineScan(" ".join(current.split()), links, {}, tally).run())


def _until_stable(text: str, one_pass: Callable[[str, Tally], str]) -> SafeText:
    tally = Tally()
    for _ in range(MAX_PASSES):
        changed = one_pass(text, tally)
        if changed == text:
            return SafeText(text, tally.links, tally.images)
        text = changed
    # Only text built to outrun us gets here: take away every character that could open a construct.
    return SafeText(INVISIBLE.sub("", text).translate(_LOOKALIKE), tally.links, tally.images)


def _one_pass(text: str, links: Links, tally: Tally) -> str:
    markdown = parse(text)
    fates = {item.start: _fate(item, markdown, links) for item in markdown.definitions}
    # Of two definitions of one label the first counts, so it is put in last.
    kept = {
        item.label: fates[item.start] == "keep"
        for item in reversed(markdown.definitions)
        if fates[item.start] != "show"
    }
    fences = {fence.end: fence for fence in markdown.open_fences}
    out: list[str] = []
    for block in markdown.blocks:
        raw = _raw(markdown, block)
        if block.kind == "code":
            out.append(raw)
            if fence := fences.get(block.end):
                out.append(_closing(fence, markdown, raw))
        elif block.kind == "definition":
            out.append(_treated(raw, fates[block.start], tally))
        elif block.kind == "table":
            out += _table(markdown.lines[block.start : block.end], links, kept, tally)
        else:
            out.append(InlineScan(raw, links, kept, tally).run())
    return "".join(out)


def _raw(markdown: Markdown, block: Block) -> str:
    return "".join(markdown.lines[block.start : block.end])


def _closing(fence: OpenFence, markdown: Markdown, raw: str) -> str:
    opening = markdown.lines[fence.start]
    marks = opening[: opening.index(fence.fence)]
    # a quote mark swallows one blank, a list mark is a matter of columns
    prefix = re.sub(r"[^ \t>]", " ", re.sub(r">(?=[^ \t])", "> ", marks))
    line_end = "" if raw.endswith(("\n", "\r")) else "\n"
    return f"{line_end}{prefix}{fence.fence}\n"


def _fate(item: Definition, markdown: Markdown, links: Links) -> Literal["keep", "drop", "show"]:
    """``keep`` only the plain form (one line, no title) with an allowed target.

    ``show`` what people write as text (``[注意]: 先备份``, footnotes) though CommonMark takes it for a definition.
    """
    target = unescapeAll(item.target)
    raw = "".join(markdown.lines[item.start : item.end])
    if links.allows(target):
        return "keep" if _PLAIN_DEFINITION.fullmatch(raw) else "drop"
    return "drop" if _LIKE_URL.match(target) else "show"


def _treated(raw: str, fate: str, tally: Tally) -> str:
    """A dropped definition leaves its quote or list marks and its line ends, so that its neighbours stay apart."""
    if fate == "keep":
        return raw
    if fate == "show":
        return _DEFINED.sub(r"\1\:", raw, count=1)
    tally.links += 1
    marks = raw.partition("[")[0]
    return (marks if marks.strip() else "") + re.sub(r"[^\r\n]", "", raw)


def _table(lines: list[str], links: Links, kept: Mapping[str, bool], tally: Tally) -> list[str]:
    """Cell by cell; what counts as code must be code for a renderer without tables too."""
    as_text = InlineScan("".join(lines), links, {}, Tally())
    as_text.run()
    shared = frozenset(as_text.code)
    out, offset = [], 0
    for cell in (cell for line in lines for cell in _cells(line)):
        out.append(InlineScan(cell, links, kept, tally, offset=offset, shared_code=shared).run())
        offset += len(cell)
    return out


def _cells(line: str) -> list[str]:
    """The pieces of a row, each with the bar before it; a bar behind a backslash does not part cells."""
    bars = [match.start() for match in re.finditer(r"\\.|\|", line) if match.group() == "|"]
    edges = [0, *bars, len(line)]
    return [line[start:end] for start, end in pairwise(edges)]
