"""Reading what the model says of cards and of a transfer; must not judge a card nor mend a text.

Any reply gives a value or a :class:`ReplyFault`. Nothing of a reply is written anywhere from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasks.contract.material import Transfer
from tasks.contract.selection import ReadLevel
from tasks.rules import reply_fault as fault
from tasks.rules.reply_fields import Fields
from tasks.rules.reply_text import parse_reply, refuse_finish

_MAX_WORDS = 40


@dataclass(frozen=True)
class Verdict:
    """One card: ``isomorphic`` is ``None`` when the model cannot decide. The lists must not appear in a transfer."""

    card: str
    isomorphic: bool | None
    names: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    props: tuple[str, ...] = ()


@dataclass(frozen=True)
class Screening:
    """The model's view of a node's cards, in its order of preference."""

    verdicts: tuple[Verdict, ...]
    read_level: ReadLevel

    def kept(self, known: frozenset[str], limit: int) -> tuple[Verdict, ...]:
        """The cards to keep: clearly isomorphic, known, judged once, the first ``limit`` of them."""
        named = [verdict.card for verdict in self.verdicts]
        sure = (v for v in self.verdicts if v.isomorphic is True and v.card in known and named.count(v.card) == 1)
        return tuple(sure)[:limit]


@dataclass(frozen=True)
class Rewriting:
    """A transfer as the model wrote it."""

    transfer: Transfer
    read_level: ReadLevel


def read_screening(reply: str, *, finish_reason: str, name: str) -> Screening:
    """The verdicts in ``reply``; a value that means neither yes nor no is "cannot decide"."""
    document, fields, level = _document(reply, finish_reason, name, bare_list="cards")
    if "cards" not in document:
        raise fault.misshapen(name, "cards", None, zh="必须给出；都不同构时写 []", en="is required; [] is legal")
    items = fields.items(document["cards"], "cards")
    return Screening(
        tuple(_verdict(fields, item, at) for at, item in enumerate(items) if isinstance(item, dict)), level
    )


def _verdict(fields: Fields, item: dict[str, Any], at: int) -> Verdict:
    def words(key: str) -> tuple[str, ...]:
        return fields.texts(item.get(key, []), f"cards[{at}].{key}")[:_MAX_WORDS]

    value = item.get("isomorphic")
    return Verdict(
        card=fields.text(item.get("card", ""), f"cards[{at}].card").strip(),
        isomorphic=None if value is None else fields.flag(value, f"cards[{at}].isomorphic"),
        names=words("names"),
        lines=words("lines"),
        props=words("props"),
    )


def read_rewriting(reply: str, *, finish_reason: str, name: str) -> Rewriting:
    """The transfer in ``reply``; its fields may still be blank, leak or have another form."""
    document, fields, level = _document(reply, finish_reason, name)
    values = {key: fields.text(document.get(key, ""), key) for key in Transfer.model_fields}
    return Rewriting(Transfer(**values), level)


def _document(
    reply: str, finish_reason: str, name: str, bare_list: str = ""
) -> tuple[dict[str, Any], Fields, ReadLevel]:
    refuse_finish(finish_reason, name)
    parsed = parse_reply(reply, name)
    fields = Fields(name)
    value = fields.json_value(parsed.value)
    if bare_list and isinstance(value, list):
        value = {bare_list: value}
    if not isinstance(value, dict):
        raise fault.misshapen(name, "(root)", value, zh="必须是一个 JSON 对象", en="must be a JSON object")
    return value, fields, parsed.level
