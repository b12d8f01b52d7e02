"""``kbw material eval FILE``: does retrieval work for real questions? Asks the base, never the model."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from tasks.contract import strict_json
from tasks.contract.material import MaterialNode
from tasks.contract.refusal import describe
from tasks.contract.shape import JsonObject
from tasks.knowledge.evaluation import LEAST_QUESTIONS, Ranked, Sample, evaluate, picture, table
from tasks.knowledge.material import MaterialRules, card_number
from tasks.knowledge.question import mirror_question
from tasks.ports import MaterialSource
from worker.bootstrap import Workshop
from worker.ops.failure import OperationFailedError
from worker.ops.material import read_nodes
from worker.paths import write_atomic
from worker.settings import Settings

LONGER = 10
NO_KIND = "未标注"


def evaluate_file(path: Path, settings: Settings, *, out: Path, as_json: bool) -> int:
    """Ask every question of the file; print the report, write it and its picture to ``out``.

    A question is text (``question``) or a node's slots; ``kind`` and ``expected`` say what ought to be found.
    """
    document = read_nodes(path)
    shop = Workshop(settings, Path.cwd())
    rules = shop.material.rules
    source = shop.weknora(match_count=LONGER)
    if source is None:
        raise OperationFailedError("no WeKnora is configured: set KBW_WEKNORA_MCP_URL or KBW_WEKNORA_URL")
    rows = document.get("questions", document.get("nodes"))
    if not isinstance(rows, list) or len(rows) < LEAST_QUESTIONS:
        raise OperationFailedError(f"{path}: needs at least {LEAST_QUESTIONS} questions (a list under 'questions')")
    kb_id = str(document.get("kbId") or rules.kb_id)
    samples = [_sample(row, f"{path}#{number}", source, kb_id, rules) for number, row in enumerate(rows, 1)]
    report = evaluate(samples, count=rules.match_count, longer=LONGER)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(shop.clock.now()))
    out.mkdir(parents=True, exist_ok=True)
    told = {"kbId": kb_id, **asdict(report), "zero_rate": report.zero_rate, "samples": [asdict(s) for s in samples]}
    write_atomic(out / f"material-eval-{stamp}.json", strict_json.dumps(told))
    image = picture(samples, count=rules.match_count, threshold=rules.vector_threshold)
    write_atomic(out / f"material-eval-{stamp}.svg", image.encode())
    click.echo(json.dumps(told, ensure_ascii=False, indent=2) if as_json else "\n".join(table(samples, report)))
    click.echo(f"report and picture: {out / f'material-eval-{stamp}'}.json, .svg", err=True)
    return 0 if report.answered == report.asked else 1


def _sample(row: Any, place: str, source: MaterialSource, kb_id: str, rules: MaterialRules) -> Sample:
    fields: JsonObject = row if isinstance(row, dict) else {"question": row}
    question = fields.get("question") or _mirrored(fields, place, rules)
    if not isinstance(question, str) or not question.strip():
        raise OperationFailedError(f"{place}: needs a question, or a node's slots")
    found = source.find(kb_id, question, timeout=rules.timeout_s)
    expected = fields.get("expected") or []
    return Sample(
        question=question,
        status=str(found.status),
        found=tuple(_ranked(hit.content, hit.score, rules) for hit in found.hits[:LONGER]),
        kind=str(fields.get("kind") or ""),
        expected=tuple(
            map(str, expected if isinstance(expected, Sequence) and not isinstance(expected, str) else [expected])
        ),
    )


def _mirrored(fields: JsonObject, place: str, rules: MaterialRules) -> str:
    try:
        node = MaterialNode.model_validate({"id": place, **fields})
    except ValidationError as error:
        raise OperationFailedError(f"{place}: {describe(error)[0]}") from error
    question = mirror_question(node, rules.words)
    if question.refusal:
        raise OperationFailedError(f"{place}: the question would be refused: {question.refusal}")
    return question.text


def _ranked(card: str, score: float | None, rules: MaterialRules) -> Ranked:
    number = card_number(card, rules.labels, "卡" + hashlib.sha256(card.encode()).hexdigest()[:8])
    kinds = rules.labels.values(card, "kind")
    return Ranked(number, kinds[0][:20] if kinds else NO_KIND, score)
