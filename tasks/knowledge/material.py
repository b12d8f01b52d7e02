"""``{material_content}`` in its one fixed form (seed 000 §4.4), and what stands there without a card; pure text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasks.contract.material import MaterialNode, Transfer
from tasks.knowledge.degrade import DegradeMatrix
from tasks.knowledge.leak import CardLabels
from tasks.knowledge.question import WordLists

FIRST_LINE = "【素材内容 · 来源：极致事件机制检索】"
OFF_LINE = "（检索不可用时此段留空，按 references/素材库/ 源文件填充）"
NUMBERS = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳"
SETUPS = ("短", "中", "长")
MAX_VALUE = 300

_STRUCTURE = re.compile(
    r"[\[［]([^\[\]［］]+)[\]］]\s*[—–―-]{1,2}\s*被(.+?)打破\s*[→➔➜]\s*[\[［]([^\[\]［］]+)[\]］][。.]?"
)
_PLACEHOLDERS = frozenset({"期待A", "期待", "A", "X", "结果B", "结果", "B", "…", "...", "？", "?"})
_NUMBER = re.compile(r"(?=.*\d)[一-鿿]{0,4}[A-Za-z0-9_.#/-]{1,40}")
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True)
class MaterialRules:
    """What the pipeline goes by: data of ``config/`` and settings. ``timeout_s`` bounds one search."""

    words: WordLists
    labels: CardLabels
    matrix: DegradeMatrix
    setup_of_function: Mapping[str, str] = field(default_factory=dict)
    kb_id: str = "MCN极致事件素材库"
    max_searches: int = 3
    match_count: int = 3
    vector_threshold: float = 0.5
    max_kept: int = 2
    timeout_s: float = 15.0


@dataclass(frozen=True)
class Block:
    """One node as it is shown. ``source``: numbers of the kept cards, or the node's subtype."""

    node: MaterialNode
    source: str
    transfer: Transfer


def material_content(blocks: Sequence[Block], *, off: bool) -> str:
    """The whole text: the first line always; the second only when retrieval is off, then no nodes.

    At most 20 blocks, as many as there are circled numbers.
    """
    if off:
        return f"{FIRST_LINE}\n{OFF_LINE}"
    shown = [_block(number, block) for number, block in zip(NUMBERS, blocks, strict=False)]
    return "\n\n".join([FIRST_LINE, *shown])


def _block(number: str, block: Block) -> str:
    node, transfer = block.node, block.transfer
    when = f"（{cell(node.time_range)}）" if node.time_range else ""
    function = f"{cell(node.function).removesuffix('型')}型"
    head = f"■ 节点{number} {cell(node.title)}{when}｜{function}"
    return "\n".join(
        (
            f"{head}｜方法：{cell(node.method)}｜机制来源：{cell(block.source)}",
            f"  · 落差结构：{transfer.structure}",
            f"  · 手法与铺垫量级：{cell(transfer.technique)} ＋ 铺垫 {transfer.setup}",
            f"  · 拍摄参考：{cell(transfer.camera)} ｜ {cell(transfer.style)}",
            f"  · 本账号转译：{cell(transfer.bridge)}",
        )
    )


def cell(text: str) -> str:
    """A value on one line that cannot pose as a mark of the form; invisible characters dropped."""
    seen = (" " if char.isspace() else char for char in text)
    line = " ".join("".join(char for char in seen if unicodedata.category(char) not in _INVISIBLE).split())
    return line.replace("■", "▪").replace("｜", "/").replace("【", "[").replace("】", "]")[:MAX_VALUE].strip()


def gap_structure(text: str) -> str:
    """The structure as ``[期待A] —被X打破→ [结果B]``, ``""`` when it is none (or the bare pattern itself)."""
    match = _STRUCTURE.fullmatch(" ".join(text.split()))
    if match is None:
        return ""
    parts = [cell(part).strip() for part in match.groups()]
    if not all(parts) or all(part in _PLACEHOLDERS for part in parts):
        return ""
    return "[{}] —被{}打破→ [{}]".format(*parts)


def guidance(node: MaterialNode, setup_of_function: Mapping[str, str]) -> Transfer | None:
    """What stands for a node without a card: its own words and the subtype of the type layer, no material.

    ``None`` when the node names no subtype: then there is nothing to point to.
    """
    subtype = cell(node.subtype)
    structure = gap_structure(
        f"[{_inner(node.gap_object)}] —被{_inner(node.break_method)}打破→ [{_inner(node.anchor)}]"
    )
    if not subtype or not structure:
        return None
    return Transfer(
        structure=structure,
        technique=node.break_method,
        setup=setup_of_function.get(node.function.removesuffix("型"), "中"),
        camera=f"按「{subtype}」子类指引",
        style="沿用本账号画面风格",
        bridge=f"未取用素材：仅按判定层子类「{subtype}」的指引设计，不编造素材",
    )


def _inner(text: str) -> str:
    return re.sub(r"[\[\]［］]", "", text)


def card_number(card: str, labels: CardLabels, fallback: str) -> str:
    """The number a card gives itself, else ``fallback``: a sentence in its place would get past the leak check."""
    named = labels.values(card, "number")
    number = cell(named[0]) if named else ""
    return number if _NUMBER.fullmatch(number) else fallback


def card_setup(cards: Sequence[str], labels: CardLabels) -> frozenset[str]:
    """The set-up lengths that the cards declare: a transfer keeps one of them."""
    values = [value for card in cards for value in labels.values(card, "setup")]
    return frozenset(setup for value in values for setup in SETUPS if value.startswith(setup))
