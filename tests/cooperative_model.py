"""Plays a willing model for kb_query: chooses pages it sees, cites pages it was given; a test aid, never product.

It knows no prompt. A page is what looks like one in the user message (``…/name.md``); the stage is the name of the
asked JSON Schema, or, when ``response_format`` was dropped, whatever the given ``stage_of`` says.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable

from tests.model_shapes import Reply, Request, Rule, completion

PAGE = re.compile(r"[^\s\"'`《》()（）\[\]<>,，:：；;\\|]+\.md")
_NAMED = re.compile(r'"path":\s*"((?:[^"\\\n]|\\.)+\.md)"')
_HIDDEN = {"README.md", "index.md", "AGENTS.md", "log.md"}
_SENTENCE = re.compile(r"[^\n\\\"{}|`#<>\[\]]{12,160}")
_CJK = re.compile(r"[\u4e00-\u9fff]")


def stage_by_schema(request: Request) -> str:
    """``select`` or ``answer`` by the schema's name; without one, by the fields that the prompt asks for."""
    name = request.schema_name
    if name:
        return "select" if name == "page_selection" else "answer"
    text = request.message("system") + request.message("user")
    return "answer" if "knowledgeSufficient" in text else "select"


def pages_seen(text: str) -> list[str]:
    """Page paths in a prompt, the most often named first: cards and ranked pages are named more than once.

    Where the prompt names pages as JSON (``"path": "…"``) only those count: page text links to pages it does not hold.
    """
    named = [str(json.loads(f'"{path}"')) for path in _NAMED.findall(text)]
    kept = [path for path in named if _is_page(path)]
    if not kept:
        kept = [path for path in (found.strip(".*-") for found in PAGE.findall(text)) if _is_page(path)]
    first: dict[str, int] = {}
    for place, path in enumerate(kept):
        first.setdefault(path, place)
    counts = Counter(kept)
    return sorted(counts, key=lambda path: (-counts[path], first[path]))


def snippet_after(text: str, path: str) -> str:
    """A sentence that stands verbatim below the path's first naming: from the page's text, if the prompt gives it."""
    at = max(text.find(f'"path": {json.dumps(path, ensure_ascii=False)}'), text.find(path))
    _, _, below = text[at:].partition("\n")
    below = below.partition("\n[[[")[0][:8_000]
    sentences = (match.group().strip() for match in _SENTENCE.finditer(below))
    return next((sentence for sentence in sentences if _CJK.search(sentence)), "")


def _is_page(path: str) -> bool:
    """Not one of the root files that nobody may choose, nor the placeholder of a format description."""
    return path not in _HIDDEN and not path.endswith("/example.md") and "source_files/" not in path


def answer_from_pages(
    *,
    choose: Callable[[Request], list[str]] | None = None,
    cite: Callable[[Request], list[str]] | None = None,
    stage_of: Callable[[Request], str] = stage_by_schema,
    pick: int = 2,
    write_qa: bool = True,
    delay_s: float = 0.0,
    qa_title: str = "",
) -> Rule:
    """A rule that chooses ``pick`` pages, cites them with verbatim snippets and (``write_qa``) asks for a QA page.

    ``choose`` and ``cite`` say which paths to choose from and to cite, when a test knows better; ``delay_s`` is how
    long each reply takes. An answer without any page in its prompt says that the knowledge base cannot answer.
    """

    def select(request: Request) -> dict[str, object]:
        paths = choose(request) if choose else pages_seen(request.message("user"))
        pages = [{"path": path, "reason": "与问题直接相关", "expectedUse": "作为结论依据"} for path in paths[:pick]]
        return {"rationale": "依据目录和卡片选择最相关的页面", "selectedPages": pages, "unresolvedQuestions": []}

    def answer(request: Request) -> dict[str, object]:
        text = request.message("user")
        paths = cite(request) if cite else pages_seen(text)
        sources = [{"path": path, "title": path, "snippet": snippet_after(text, path)} for path in paths[:pick]]
        return _answer(sources, write_qa=write_qa, qa_title=qa_title)

    def rule(request: Request) -> Reply:
        document = select(request) if stage_of(request) == "select" else answer(request)
        return completion(json.dumps(document, ensure_ascii=False), delay_s=delay_s)

    return rule


def _answer(sources: list[dict[str, str]], *, write_qa: bool, qa_title: str) -> dict[str, object]:
    supported = bool(sources)
    quotes = "\n".join(f"- {source['snippet'] or source['path']}" for source in sources)
    text = (
        f"结论：可以按知识库中的说明处理。\n\n{quotes}" if supported else "知识库内容无法回答这个问题。缺少相关页面。"
    )
    wanted = supported and write_qa
    score = int(wanted)
    return {
        "answer": text,
        "knowledgeSufficient": supported,
        "sources": sources,
        "usedAttachments": [],
        "highValue": wanted,
        "qaEvaluation": {
            "reuseValue": score,
            "synthesisDepth": score,
            "evidenceQuality": score,
            "stability": score,
            "actionability": score,
            "attachmentDriven": False,
            "ephemeral": False,
            "reason": "同类问题会反复出现，结论稳定" if wanted else "没有可复用的稳定结论",
        },
        "qa": {"write": wanted, "path": "", "title": qa_title, "content": ""},
        "errors": [],
    }
