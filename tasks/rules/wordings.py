"""How each language says that the knowledge base cannot answer, and what is missing; data only, no decisions."""

from __future__ import annotations

import re
from dataclasses import dataclass

CHINESE = "zh"
OTHER = "other"
"""A language that we have no table for: it is held to the English or the Chinese words."""


@dataclass(frozen=True)
class Wording:
    """``opening`` and ``label`` are what we put in ourselves; the patterns find what a model wrote.

    ``cannot``: the opening line or an equivalent · ``missing``: which evidence is missing · ``own``: talk about the
    knowledge base itself, so no supplement · ``labelled``: what follows is not from the knowledge base.
    """

    opening: str
    label: str
    cannot: re.Pattern[str]
    missing: re.Pattern[str]
    own: re.Pattern[str]
    labelled: re.Pattern[str]


def _wording(opening: str, label: str, *, cannot: str, missing: str, own: str, labelled: str = "") -> Wording:
    patterns = (cannot, missing, own, "|".join(part for part in (_ZH_LABEL, labelled) if part))
    return Wording(opening, label, *(re.compile(text, re.IGNORECASE) for text in patterns))


ATTACHMENT_LABEL = "本轮参考附件推断"
_ZH_LABEL = rf"以下(?:内容)?(?:均)?为非知识库(?:结论|内容)|{ATTACHMENT_LABEL}"
_ZH_NOUN = "知识库|证据|页面|资料|文档|说明|记录|内容|信息|介绍|依据|数据"

WORDINGS = {
    CHINESE: _wording(
        "知识库内容无法回答这个问题。",
        "以下为非知识库结论",
        cannot=r"知识库[^。！？\n]{0,20}(?:无法|不能|不足以|没有|未找到|未包含)[^，。；！？\n]{0,20}(?:回答|支撑|相关内容)|"
        r"(?:无法|不能|不足以|没有|未)[^，。；！？\n]{0,10}知识库[^，。；！？\n]{0,20}(?:回答|支撑|相关内容)",
        missing=r"缺少|缺失|缺乏|尚缺|欠缺|(?:需要|建议|请)补充|未(?:找到|包含|涉及|提及|提供|说明|记录|覆盖|给出|收录|介绍|描述)|"
        rf"(?:没有|无)[^。；\n]{{0,20}}(?:{_ZH_NOUN})|(?:{_ZH_NOUN})[^。；\n]{{0,12}}(?:没有|不足|不够)",
        own=r"知识库|证据|(?:现有|已读取|读取到|读到|读过|选中|最接近)的?[^。\n]{0,6}(?:页面|资料|文档)",
    ),
    "en": _wording(
        "The knowledge base cannot answer this question.",
        "The following is not from the knowledge base (以下为非知识库结论)",
        cannot=r"knowledge base\b[^.!?\n]{0,60}\b(?:can ?not|can't|could not|does not|doesn't|do not|has no|is not|"
        r"isn't|insufficient|lacks?|contains? no)|not (?:found|covered|available|answered)[^.!?\n]{0,40}knowledge base|"
        r"(?:cannot|can't|unable to)[^.!?\n]{0,60}knowledge base",
        missing=r"\bmissing|\black|\bno (?:page|evidence|information|document)|\binsufficient|\bcannot|"
        r"(?:\bnot|n't) (?:cover|contain|found|mention|include|provide|describe|available|state)",
        own="knowledge base|evidence",
        labelled="not (?:from|based on|part of) the knowledge base|inferred from the attach",
    ),
    "ja": _wording(
        "ナレッジベースの内容ではこの質問に回答できません。",
        "以下はナレッジベースに基づかない内容です（以下为非知识库结论）",
        cannot=r"(?:ナレッジベース|知識ベース)[^。！？\n]{0,40}(?:できません|できない|ありません|ない|不十分|見つかりません|含まれて)",
        missing="不足|欠け|ありません|見つかりません|含まれて(?:いません|いない)|記載(?:が|は)な|できません",
        own="ナレッジベース|知識ベース|証拠",
        labelled="(?:ナレッジベース|知識ベース)に(?:基づかない|ない)",
    ),
    "ko": _wording(
        "지식 베이스의 내용으로는 이 질문에 답할 수 없습니다.",
        "다음은 지식 베이스에 근거하지 않은 내용입니다 (以下为非知识库结论)",
        cannot=r"지식\s?(?:베이스|기반)[^.!?\n]{0,40}(?:없|않|부족|못)",
        missing="없|부족|않|누락",
        own=r"지식\s?(?:베이스|기반)|근거",
        labelled=r"지식\s?(?:베이스|기반)에 (?:근거하지 않은|없는)",
    ),
    "fr": _wording(
        "La base de connaissances ne permet pas de répondre à cette question.",
        "Ce qui suit ne provient pas de la base de connaissances (以下为非知识库结论)",
        cannot=r"base de connaissances?\b[^.!?\n]{0,60}(?:\bne\b|\bn['’]|insuffisant|aucun)|"
        r"(?:impossible|aucun)[^.!?\n]{0,60}base de connaissances?",
        missing=r"manqu|absent|\baucun|\bne\b|\bn['’]|insuffisant",
        own="base de connaissances?|preuves?",
        labelled="(?:ne provient pas|hors) de la base de connaissances",
    ),
    "de": _wording(
        "Die Wissensdatenbank kann diese Frage nicht beantworten.",
        "Das Folgende stammt nicht aus der Wissensdatenbank (以下为非知识库结论)",
        cannot=r"(?:Wissensdatenbank|Wissensbasis)\b[^.!?\n]{0,60}(?:nicht|kein|unzureichend)|"
        r"(?:nicht|kein)[^.!?\n]{0,60}(?:Wissensdatenbank|Wissensbasis)",
        missing="fehl|nicht|kein|unzureichend",
        own="Wissensdatenbank|Wissensbasis|Beleg",
        labelled="nicht aus der (?:Wissensdatenbank|Wissensbasis)",
    ),
    "es": _wording(
        "La base de conocimientos no puede responder a esta pregunta.",
        "Lo siguiente no procede de la base de conocimientos (以下为非知识库结论)",
        cannot=r"base de conocimientos?\b[^.!?\n]{0,60}(?:\bno\b|insuficiente|ningun)|"
        r"\bno\b[^.!?\n]{0,60}base de conocimientos?",
        missing=r"falta|\bno\b|ningun|insuficiente|carece",
        own="base de conocimientos?|evidencia",
        labelled="no procede de la base de conocimientos?",
    ),
    "ru": _wording(
        "База знаний не содержит ответа на этот вопрос.",
        "Далее — сведения не из базы знаний (以下为非知识库结论)",
        cannot=r"баз[аеуы] знаний[^.!?\n]{0,60}(?:\bне\b|\bнет\b|недостаточно)|"
        r"(?:\bне\b|\bнет\b)[^.!?\n]{0,60}баз[аеуы] знаний",
        missing=r"не хватает|отсутств|\bне\b|\bнет\b|недостаточно",
        own="баз[аеуы] знаний|доказательств",
        labelled="не из базы знаний",
    ),
}


def wording_of(language: str) -> Wording:
    """The table of ``language``; English for one that has none."""
    return WORDINGS.get(language, WORDINGS["en"])
