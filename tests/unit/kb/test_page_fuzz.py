"""Seeded mutations of pages: whatever becomes of the bytes, a typed page; ``KBW_FUZZ_CASES`` sets the number."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from tasks.contract import strict_json
from tasks.kb.headings import headings
from tasks.kb.page import decode, page_facts, read_page, source_traces
from tests.unit.attachments.test_fuzz import mutated

CASES = int(os.environ.get("KBW_FUZZ_CASES", "150"))
BODY = "# 网关的部署 {#deploy}\n\n正文 **重点** [链接](b.md)\n\n```yaml\n---\na: 1\n---\n```\n\n---\n\n## 第二节\n"
BLOCKS = {
    "plain": "title: 网关\ntype: qa\ntags: [网关, 部署]\nupdatedAt: 2024-05-06T08:00:00+08:00\n",
    "sources": "sources:\n  - sourceId: 7\n    url: https://a.example/b?c=d\n    archivedPath: source_files/a.pdf\n"
    "    sha256: abc\n  - sourceId: x\n    title: 'it''s'\n",
    "odd": "? [a, b]\n: c\nday: 2024-13-45\nnan: .nan\nbin: !!binary aGk=\nbig: 123456789012345678901234567890\n",
    "aliases": "a: &a [x, y]\nb: *a\n<<: {c: 1}\nd: &d {e: *a}\nf: *d\n",
    "texts": 'fold: >-\n  eins\n  zwei\nliteral: |\n  drei\nquoted: "\\u4e2d\\n\\x41"\nnone: ~\nempty:\n',
    "unfinished": "a: [1, 2\nb: {c\n",
}
PAGES = {
    **{name: f"---\n{block}---\n{BODY}".encode() for name, block in BLOCKS.items()},
    "crlf": f"\ufeff---  \r\n{BLOCKS['plain']}---\r\n{BODY}".encode(),
    "gbk": f"---\n{BLOCKS['plain']}---\n{BODY}".encode("gb18030"),
    "utf-16": f"---\n{BLOCKS['plain']}---\n{BODY}".encode("utf-16"),
    "bare": BODY.encode(),
}


def changed_lines(data: bytes, rng: random.Random) -> bytes:
    """The page with lines dropped, doubled or swapped: what merges and hasty edits do to frontmatter."""
    lines = data.splitlines(keepends=True)
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(4):
            case 0:
                lines[at : at + 1] = []
            case 1:
                lines[at:at] = [lines[at]]
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at:at] = [rng.choice([b"---\n", b"<<<<<<< HEAD\n", b"\t", b"  - ", b"!!python/object:os.x y\n"])]
        if not lines:
            lines = [b"---\n"]
    return b"".join(lines)


def check(data: bytes, case: object) -> None:
    """What must hold for any page."""
    decoded = decode(data)
    page = read_page(decoded.text)
    assert page.outcome in ("parsed", "broken", "none"), case
    assert page.problem in (None, "yaml", "unterminated"), case
    assert (page.outcome == "broken") == (page.problem == "yaml"), case
    assert decoded.text.lstrip("\ufeff").endswith(page.body), case
    strict_json.dumps(page.metadata)
    json.dumps(page.metadata, allow_nan=False)
    facts = page_facts("qa/x.md", page, page.metadata)
    assert facts.title.strip(), case
    strict_json.dumps(facts.document())
    traces = source_traces(page.metadata)
    assert len(traces) <= 10, case
    for trace in traces:
        strict_json.dumps(trace.document())
        assert not (trace.archived_path or "").startswith(("/", "..")), case
    list(headings(page.body))
    assert all(note.code.startswith("FRONTMATTER_") for note in page.notes("qa/x.md")), case


def mutate_all(pages: Mapping[str, bytes]) -> None:
    names = sorted(pages)
    for case in range(CASES):
        rng = random.Random(case)
        name = rng.choice(names)
        change = rng.choice((mutated, changed_lines))
        check(change(pages[name], rng), (case, name))


def test_a_mutated_page_is_still_a_page() -> None:
    mutate_all(PAGES)


def test_so_is_every_mutated_page_of_the_shared_corpus(shared: Callable[[str], Path]) -> None:
    mutate_all({path.name: path.read_bytes() for path in (shared("frontmatter") / "files").iterdir()})
