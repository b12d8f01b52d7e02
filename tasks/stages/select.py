"""select: the model chooses the pages it wants to read (CONTRACT §4.2); must not choose for it nor read a page."""

from __future__ import annotations

from tasks.contract.context import Context
from tasks.contract.payload import Payload
from tasks.contract.selection import PageSelection
from tasks.ports import RawReply, Snapshot
from tasks.prompts.prompt import Prompt, Repair, chars_of, selection_prompt
from tasks.prompts.schemas import selection_schema
from tasks.prompts.sections import selection_sections
from tasks.rules.answer import Violation
from tasks.rules.budget import MAX_PROMPT_CHARS
from tasks.rules.reply import read_selection
from tasks.rules.selection import choose_pages
from tasks.stages.ask import Asker, Inquiry, fitted

NO_PAGE_LEFT = "NO_PAGE_LEFT"
_WHY = {
    "unknown": "不存在",
    "hidden": "不可见",
    "unsafe": "路径不允许",
    "duplicate": "重复",
    "over_limit": "超出数量上限",
}


def select(
    payload: Payload,  # noqa: ARG001 - every stage takes the payload first; its question is in the context
    context: Context,
    *,
    snapshot: Snapshot,
    ask: Asker,
    max_prompt_chars: int = MAX_PROMPT_CHARS,
) -> PageSelection:
    """The model's choice, as it wrote it; ``fetch`` resolves the paths. Empty is legal.

    Unknown, hidden or surplus paths are no violation, but when nothing remains of a choice it is asked once more, and
    the job then goes on with what it has. Raises what ``ask`` raises.
    """
    limits = context.analysis_limits
    knowledge = context.knowledge.at("select")

    def prompt(nonce: str, repair: Repair | None) -> Prompt:
        sections = fitted(selection_sections(context), max_prompt_chars - chars_of(knowledge), repair)
        return selection_prompt(sections, nonce=nonce, limits=limits, knowledge=knowledge, repair=repair)

    def read(raw: RawReply, name: str) -> PageSelection:
        return read_selection(raw.text, finish_reason=raw.finish_reason, name=name)

    def judge(selection: PageSelection) -> list[Violation]:
        chosen = choose_pages(
            selection, visible=lambda path: snapshot.lookup(path) is not None, limit=limits.max_selected_pages
        )
        if chosen.pages or not selection.selected_pages:
            return []
        listed = "；".join(f"{page.path}（{_WHY[page.reason]}）" for page in chosen.missing[:10])
        message = f"所选页面都无法读取：{listed}。请从目录中照抄存在的页面路径；确实没有相关页面时写空选择 []。"
        return [Violation(NO_PAGE_LEFT, message)]

    inquiry = Inquiry(prompt, read, judge, schema_name="page_selection", schema=selection_schema(), max_mends=1)
    return ask(inquiry)
