"""The mirror question of a node and why one is refused before any call (seed 000 §1.3); must not search."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

from tasks.contract.material import MaterialNode

FUNCTIONS = ("钩子", "留人", "转粉", "传播")
_LINKS = frozenset("的与和之及跟同或是在了")
_MIN_ANCHOR = 2


@dataclass(frozen=True)
class WordLists:
    """Words that find nothing: mechanisms and feelings, and names of content tracks."""

    abstract: frozenset[str] = frozenset()
    track: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Question:
    """The question to ask, or (``text`` empty) a Chinese sentence that says why none is asked."""

    text: str
    refusal: str = ""


def mirror_question(node: MaterialNode, words: WordLists) -> Question:
    """「找一条 {落差对象} {打破方式} {具象锚点} 的 {段落功能} 型事件素材」, if all four slots can carry it."""
    function = node.function.removesuffix("型")
    slots = {"落差对象": node.gap_object, "打破方式": node.break_method, "具象锚点": node.anchor, "段落功能": function}
    refusal = _refusal(slots, words)
    if refusal:
        return Question("", refusal)
    return Question(f"找一条 {node.gap_object} {node.break_method} {node.anchor} 的 {function} 型事件素材")


def _refusal(slots: dict[str, str], words: WordLists) -> str:
    bare = {name: plain(value) for name, value in slots.items()}
    blank = next((name for name, value in bare.items() if not value), "")
    if blank:
        return f"{blank}为空，无法检索"
    if slots["段落功能"] not in FUNCTIONS:
        return f"段落功能应为 {' / '.join(FUNCTIONS)} 之一"
    anchor = bare.pop("具象锚点")
    if len(anchor) < _MIN_ANCHOR:
        return "具象锚点少于 2 个字，请写出具体的人、物或场景"
    same = next((name for name, value in bare.items() if anchor in (value, f"{value}型")), "")
    if same:
        return f"具象锚点与{same}相同，请写出具体的人、物或场景"
    if made_of(anchor, words.abstract):
        return "具象锚点全是抽象词，请写出具体的人、物或场景"
    if made_of(anchor, words.track):
        return "具象锚点只是赛道词，请写出本账号的具体人、物或场景"
    if made_of(bare["落差对象"] + bare["打破方式"] + anchor, words.abstract | words.track):
        return "问法全是抽象词或赛道词，检索不到素材，请写得具体"
    return ""


def plain(text: str) -> str:
    """Letters and digits only, compatibility forms folded, lower case: what counts when words are compared."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def made_of(text: str, words: Collection[str]) -> bool:
    """Whether ``text`` can be cut into listed words, particles (的, 和 …) between them aside."""
    reachable = {0}
    for end in range(1, len(text) + 1):
        if any(at in reachable and _is_word(text[at:end], words) for at in range(end)):
            reachable.add(end)
    return len(text) in reachable and not all(char in _LINKS for char in text)


def _is_word(piece: str, words: Collection[str]) -> bool:
    return piece in words or piece in _LINKS


def read_words(text: str) -> frozenset[str]:
    """A word list: one word a line, ``#`` comments."""
    return frozenset(word for line in text.splitlines() if (word := plain(line.partition("#")[0])))
