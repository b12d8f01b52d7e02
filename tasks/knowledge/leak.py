"""Whether a rewritten text still carries a card's names, lines or props; deterministic, must not ask a model.

Words are compared without white space and punctuation, so that neither hides a quote. What the node itself says (its
account, its objects) is the team's own and may stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tasks.knowledge.question import plain

LONGEST_SHARED = 7
"""Characters in a row that a text may share with a card by chance; a run of eight is a quote."""

_MIN_NAME, _MIN_LINE, _MIN_CLAUSE, _MIN_PROP = 2, 3, 4, 2
_CLAUSE = re.compile(r"[，。！？；：、…—,.!?;:\s「」『』“”‘’\"']+")
_SPLIT = re.compile(r"[、，,；;/／|｜\n]|和|与|以及")
_ASIDE = re.compile(r"[（(][^（()）]*[)）]")
_QUOTED = re.compile('[「『“"‘]([^」』”"’「『“‘]{2,200})[」』”"’]')
_SURNAMES = (
    "王李张刘陈杨黄赵周吴徐孙朱胡郭林何高梁郑罗宋谢唐韩曹许邓萧冯曾程蔡彭潘袁董余苏叶吕魏蒋田杜丁沈姜范江傅钟卢汪戴崔任"
    "陆廖姚方金邱夏谭韦贾邹石熊孟秦阎薛侯雷白龙段郝孔邵史毛顾赖武康贺严尹钱施洪龚"
)
_NICKED = (
    "王李张刘陈杨黄赵周吴徐孙朱胡郭何梁郑罗宋谢唐韩曹许邓萧冯曾程蔡彭潘袁董苏吕魏蒋杜丁沈姜范傅钟卢汪戴崔陆廖姚邱谭"
)
_NO_NAMES = frozenset(
    {"顾客", "任何", "方才", "高手", "白天", "程度", "曾经", "金额", "石头", "江湖", "周围", "周边", "严肃"}
)
_TITLES = (
    "先生|女士|小姐|师傅|老师|医生|大夫|经理|总监|主任|厂长|局长|校长|老板|警官|阿姨|大爷|大妈|大叔|大哥|奶奶|爷爷"
    "|叔|婶|姨|姐|哥|嫂|工|总|导|队"
)
_TITLED = re.compile(f"[{_SURNAMES}](?:{_TITLES})")
_NICKNAME = re.compile(f"[老小阿][{_NICKED}]|阿[一-鿿](?=[说道问喊笑哭把被对拿给])")
_FULL_NAME = re.compile(f"([{_SURNAMES}]|欧阳|司马|上官|诸葛|皇甫)([一-鿿]{{1,2}})")
_COUNTED = re.compile(
    "(?:[一二两三四五六七八九十几半数整]|\\d+)[个把张条只台部本支瓶杯碗盒袋块根双副件辆封串包盘口扇幅面顶枚颗粒片]"
)
_DESCRIBED = 4
"""A prop of so many characters is a thing with a word about it: the thing is its last two."""
_SPEAKER = re.compile(
    f"([{_SURNAMES}][一-鿿]{{1,2}}?)(?=[说道问喊吼叫答骂叹笑哭]|[：:]|把|被|拿|掏|递|站起|转身|走进|推开)"
)


@dataclass(frozen=True)
class CardLabels:
    """Labels of a card (``标签：值`` a line, ``【标签】值`` anywhere) by what they tell.

    Meanings: ``number``, ``kind``, ``names``, ``lines``, ``props``, ``setup``, ``technique``.
    """

    by_meaning: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, card: str, meaning: str) -> list[str]:
        """All values that a card gives under the labels of one meaning, in its order."""
        labels = "|".join(map(re.escape, self.by_meaning.get(meaning, ())))
        if not labels:
            return []
        line = rf"^[\s>#*·•\-]*(?:{labels})\**\s*[：:]\s*\**\s*(.+)$"
        boxed = rf"[【\[](?:{labels})[】\]]\s*[：:]?([^【\n]+)"
        found = re.finditer(f"{line}|{boxed}", card, re.MULTILINE | re.IGNORECASE)
        return [(match.group(1) or match.group(2)).strip(" *") for match in found]


@dataclass(frozen=True)
class Forbidden:
    """What of the cards must not appear, as plain words."""

    names: frozenset[str] = frozenset()
    lines: frozenset[str] = frozenset()
    props: frozenset[str] = frozenset()
    shingles: frozenset[str] = frozenset()

    def __or__(self, other: Forbidden) -> Forbidden:
        return Forbidden(
            self.names | other.names,
            self.lines | other.lines,
            self.props | other.props,
            self.shingles | other.shingles,
        )


@dataclass(frozen=True)
class Leak:
    """One thing of a card found in the text. ``word`` is for the model only: it must not be written anywhere."""

    kind: str
    word: str


def forbidden_in(card: str, labels: CardLabels) -> Forbidden:
    """Names, lines and props that a card tells by its labels, its quotation marks and its speakers."""
    people, things = _parts(labels.values(card, "names")), _parts(labels.values(card, "props"))
    return Forbidden(
        names=_words([*people, *_otherwise_called(people), *_names(card)], _MIN_NAME),
        lines=_lines([*labels.values(card, "lines"), *_QUOTED.findall(card)]),
        props=_words([*things, *_bare_things(things)], _MIN_PROP),
        shingles=_shingles(plain(card)),
    )


def listed(names: Collection[str], lines: Collection[str], props: Collection[str]) -> Forbidden:
    """What a reader (the model) found in a card beside what the labels tell."""
    return Forbidden(_words(names, _MIN_NAME), _lines(list(lines)), _words(props, _MIN_PROP))


def leaks(texts: Sequence[str], forbidden: Forbidden, *, own: Sequence[str], kept: Sequence[str] = ()) -> list[Leak]:
    """What of the cards appears in ``texts``.

    ``own``: the node's own texts, whose words are free. ``kept``: what a transfer is meant to keep (technique class).
    """
    free = [plain(text) for text in own]
    found: list[Leak] = []
    for text in map(plain, texts):
        for kind, words in (("人物", forbidden.names), ("台词", forbidden.lines), ("道具", forbidden.props)):
            found += [Leak(kind, word) for word in sorted(words) if word in text and not _is_free(word, free)]
        found += [Leak("原句", run) for run in _shared_runs(text, forbidden.shingles, [*free, *map(plain, kept)])]
    return list(dict.fromkeys(found))


def _is_free(word: str, free: Sequence[str]) -> bool:
    return any(word in text for text in free)


def _shared_runs(text: str, shingles: frozenset[str], free: Sequence[str]) -> list[str]:
    size = LONGEST_SHARED + 1
    pieces = (text[at : at + size] for at in range(len(text) - size + 1))
    return [piece for piece in pieces if piece in shingles and not _is_free(piece, free)][:1]


def _shingles(text: str) -> frozenset[str]:
    size = LONGEST_SHARED + 1
    return frozenset(text[at : at + size] for at in range(len(text) - size + 1))


def _parts(values: Sequence[str]) -> list[str]:
    """Single names or things of an enumeration; asides in brackets are looked at as well."""
    found = []
    for value in values:
        found += _SPLIT.split(_ASIDE.sub("、", value))
        found += _SPLIT.split("、".join(_ASIDE.findall(value)))
    return found


def _names(card: str) -> list[str]:
    found = [*_TITLED.findall(card), *_NICKNAME.findall(card), *_SPEAKER.findall(card)]
    return [name for name in found if name not in _NO_NAMES]


def _otherwise_called(people: Sequence[str]) -> list[str]:
    """周铁锅 is still named when a text says 铁锅, 周师傅 or 小周; 贺总 when it says 贺老板."""
    found = []
    for person in map(plain, people):
        if match := _FULL_NAME.fullmatch(person):
            surname, given = match.groups()
            found += [
                given,
                *(f"{surname}{title}" for title in _TITLES.split("|")),
                *(f"{n}{surname}" for n in "老小阿"),
            ]
    return found


def _bare_things(things: Sequence[str]) -> list[str]:
    """半瓶老抽 is still 老抽, 豁口铁锅 still 铁锅."""
    found = []
    for thing in map(plain, things):
        bare = _COUNTED.sub("", thing, count=1) if _COUNTED.match(thing) else thing
        found += [bare, bare[-2:] if len(bare) == _DESCRIBED else ""]
    return found


def _lines(texts: Sequence[str]) -> frozenset[str]:
    """Whole lines, and their clauses: half a line is quoted as easily as a whole one."""
    clauses = (clause for text in texts for clause in _CLAUSE.split(text))
    return _words(texts, _MIN_LINE) | _words(list(clauses), _MIN_CLAUSE)


def _words(texts: Collection[str], shortest: int) -> frozenset[str]:
    return frozenset(word for text in texts if len(word := plain(text)) >= shortest)
