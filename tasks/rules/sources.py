"""The one ``## 参考来源`` that ends every answer (CONTRACT §4.5); must not lose text that is no list of sources.

It is rebuilt from the checked sources. Sections of that name which a model wrote itself are taken out: the heading (or
bold line) and the list of sources below it. What follows that list stays, and so do the words in prose and in code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it.token import Token

from tasks.contract.answer import AnswerSource
from tasks.contract.pages import SourceTrace
from tasks.rules.inline_scan import INVISIBLE
from tasks.rules.markdown_blocks import Markdown, parse

HEADING = "## 参考来源"
NO_SOURCES = "知识库中未找到可支撑本问题的页面"

_MAX_ROUNDS = 5
_MAX_BLOCKS = 100
_NUMBER = r"(?:(?:\d+|[一二三四五六七八九十]+)[.、．)）]\s*)?"
_SUFFIX = r"[】\]]?(?:列表|清单|如下)?(?:\s*[（(\[【][^）)\]】]*[）)\]】])?\s*[:：]?"
_NAME = re.compile(rf"[^\w（(《`“\"]*{_NUMBER}(?:以下[是为])?参考来源{_SUFFIX}")
_LIKE_NAME = re.compile(
    rf"[^\w（(《`“\"]*{_NUMBER}(?:references?|(?:reference )?sources?|参考(?:资料|文献|页面)|(?:引用|资料)来源|"
    rf"參考(?:來源|資料|文獻)){_SUFFIX}",
    re.IGNORECASE,
)
_MENTIONED = re.compile(r"来源|参考(?:资料|文献|页面)|參考|reference|source", re.IGNORECASE)
_ONE_LINE = re.compile(r"参考来源\s*[:：]\s*(.+)")
# A path begins where its run of characters does, or behind a title: no run is looked through twice.
_REFERENCE = re.compile(
    r"《[^《》]*》|https?://\S+|(?<![^\s、，,；;|：:])[^\s、，,；;|：:]+\.md\b|(?<=》)[^\s、，,；;|：:《》]+\.md\b"
)
_BETWEEN_REFERENCES = re.compile(r"[\s、，,；;|｜和与及（）()。.`*_\[\]-]*")
_ENTRY = re.compile(
    r"(?:[-*+]|\d+[.)])?\s*(?:\[\^?\d+\][:.]?\s*)?(?:《|`[^`]+\.md`|\[[^\]]*\]\(|\*\*《|https?://|源文件|归档|commit\b|"
    r"[^\s。！？]+\.md\b|知识库中未找到可支撑本问题的页面)"
)
_LISTS = frozenset({"bullet_list_open", "ordered_list_open", "table_open"})


def with_section(body: str, sources: Sequence[AnswerSource]) -> str:
    """``body`` (already without such sections) and below it the section for ``sources``."""
    return f"{body.rstrip()}\n\n{section(sources)}\n".lstrip("\n")


def section(sources: Sequence[AnswerSource]) -> str:
    """The section in the exact line form of the contract; titles and paths cannot become markup."""
    lines = [line for source in sources for line in _lines(source)]
    return "\n".join([HEADING, "", *(lines or [NO_SOURCES])])


def without_sections(text: str) -> str:
    """``text`` without any 参考来源 section of the model's own, at any heading level, also in quotes and lists."""
    for _ in range(_MAX_ROUNDS):
        if not _MENTIONED.search(text):
            break  # spares most answers the parsing
        markdown = parse(text)
        doomed = {line for start, end in _sections(markdown) for line in range(start, end)}
        if not doomed:
            break
        text = _without_lines(markdown.lines, doomed)
    return text


def _lines(source: AnswerSource) -> Iterator[str]:
    yield f"- 《{_inert(source.title or source.path).replace('《', '〈').replace('》', '〉')}》 {_inert(source.path)}"
    for trace in source.source_traces:
        if facts := _facts(trace):
            yield "  - " + " ｜ ".join(facts)


def _facts(trace: SourceTrace) -> list[str]:
    named = [
        ("源文件 ", trace.file_name or trace.title),
        ("归档 ", trace.archived_path),
        ("", trace.url),
        ("commit ", trace.commit_hash),
    ]
    return [label + _inert(value) for label, value in named if value.strip()]


def _inert(text: str) -> str:
    """One line without markup; plain names, paths and addresses stay letter for letter."""
    line = " ".join(INVISIBLE.sub("", text).split())
    return re.sub(r"([\\`\[\]])", r"\\\1", line).replace("](", "]\\(").replace("<", "&lt;")


def _without_lines(lines: list[str], doomed: set[int]) -> str:
    """A gap becomes a blank line, so that what stood around it does not grow together."""
    kept: list[str] = []
    gap = False
    for number, line in enumerate(lines):
        gap = number in doomed or (gap and not line.strip())
        if not gap:
            kept.append(line)
        elif kept and kept[-1].strip():
            kept.append("\n" if kept[-1].endswith(("\n", "\r")) else "\n\n")
    return "".join(kept)


# ---------------------------------------------------------------- finding the model's own sections


def _sections(markdown: Markdown) -> Iterator[tuple[int, int]]:
    """Line ranges of sections, headings first; ranges may overlap."""
    for at, token in enumerate(markdown.tokens):
        if not token.map or token.type not in ("heading_open", "paragraph_open"):
            continue
        text = _plain(markdown.tokens[at + 1].content)
        if "来源" not in text and not _LIKE_NAME.match(text):
            continue  # spares the look at what follows for the many blocks that are neither
        following = _siblings(markdown.tokens, at)
        if token.type == "heading_open":
            yield from _of_heading(token, text, following, markdown.lines)
        else:
            yield from _of_paragraph(token, text, following, markdown.lines)


def _of_heading(token: Token, text: str, following: list[Token], lines: list[str]) -> Iterator[tuple[int, int]]:
    assert token.map is not None
    if _NAME.fullmatch(text):
        yield token.map[0], token.map[1]
        yield from _body(following, lines)
    elif _LIKE_NAME.fullmatch(text):
        own = _until_heading(following)
        if own and all(_is_reference_block(block, lines) for block in own):
            yield token.map[0], _end(own[-1])


def _of_paragraph(token: Token, text: str, following: list[Token], lines: list[str]) -> Iterator[tuple[int, int]]:
    """``**参考来源**`` or ``参考来源：`` as a line of its own, or all sources on one line behind it."""
    assert token.map is not None
    start, end = token.map
    first, *rest = text.split("\n")
    if one := _ONE_LINE.fullmatch(first):
        names = _REFERENCE.sub("", one[1])
        if _REFERENCE.search(one[1]) and _BETWEEN_REFERENCES.fullmatch(names):
            yield start, start + 1
        return
    if not _NAME.fullmatch(first):
        return
    if rest:
        entries = [line for line in rest if _ENTRY.match(line)]
        yield start, end if len(entries) == len(rest) else start + 1
        return
    marked = "*" in lines[start] or "_" in lines[start] or first.endswith(("：", ":"))
    if marked or (following and following[0].type in _LISTS):
        yield start, end
        yield from _body(following, lines)


def _body(following: list[Token], lines: list[str]) -> Iterator[tuple[int, int]]:
    """The list of sources below the heading, with its introduction and with sub-headings that hold nothing else."""
    rest = list(following)
    if len(rest) > 1 and rest[1].type in _LISTS and _is_introduction(rest[0], lines):
        yield rest[0].map[0], _end(rest[0])  # type: ignore[index]
        rest = rest[1:]
    first = True
    while rest:
        block = rest.pop(0)
        assert block.map is not None
        if block.type == "heading_open":
            own = _until_heading(rest)
            if not (own and all(_is_reference_block(item, lines) for item in own)):
                return
        elif not ((first and block.type in _LISTS) or _is_reference_block(block, lines)):
            return
        first = first and block.type not in _LISTS
        yield block.map[0], block.map[1]


def _siblings(tokens: list[Token], at: int) -> list[Token]:
    """The blocks after ``tokens[at]`` in the same container, up to a heading that is not below it."""
    own, level = tokens[at], tokens[at].level
    found: list[Token] = []
    for number in range(at + 1, len(tokens)):  # a slice would copy the rest of the text for each heading in it
        token = tokens[number]
        if token.level < level or len(found) >= _MAX_BLOCKS:
            break
        if token.level == level and token.map and token.nesting >= 0:
            if token.type == "heading_open" and (own.type != "heading_open" or token.tag <= own.tag):
                break
            found.append(token)
    return found


def _until_heading(blocks: list[Token]) -> list[Token]:
    stop = next((at for at, block in enumerate(blocks) if block.type == "heading_open"), len(blocks))
    return blocks[:stop]


def _is_introduction(block: Token, lines: list[str]) -> bool:
    assert block.map is not None
    text = "".join(lines[block.map[0] : block.map[1]]).strip()
    return block.type == "paragraph_open" and "\n" not in text and text.endswith(("：", ":"))


def _is_reference_block(block: Token, lines: list[str]) -> bool:
    """Whether every line names a source; sub-lines of a list (file, commit) follow their entry."""
    assert block.map is not None
    if block.type not in _LISTS and block.type != "paragraph_open":
        return False
    own = [line for line in lines[block.map[0] : block.map[1]] if line.strip(" \t\r\n>")]
    top = [line for line in own if not line[:1].isspace()] or own
    return bool(top) and all(_ENTRY.match(line.strip(" \t>|")) or _is_rule(line) for line in top)


def _is_rule(line: str) -> bool:
    return re.fullmatch(r"[|:\s-]+", line) is not None


def _plain(content: str) -> str:
    """Lines without emphasis marks; an emphasis may hold the colon."""
    return "\n".join(line.replace("*", "").replace("__", "").strip() for line in content.split("\n"))


def _end(block: Token) -> int:
    assert block.map is not None
    return block.map[1]
