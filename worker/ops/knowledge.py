"""``kbw knowledge``: check the files, ask a source, find a threshold that separates; must not change anything."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import click
import yaml

from tasks.knowledge.found import Found, Hit
from tasks.knowledge.injection import inject
from tasks.knowledge.spec import KnowledgeSpec
from tasks.ports import KnowledgeSource
from worker.bootstrap_knowledge import KnowledgeShop
from worker.clock import SystemClock
from worker.knowledge_config import checked_files
from worker.masking import mask_of
from worker.ops.failure import OperationFailedError
from worker.settings import Settings

PROBE_QUERY = "测试 test"
_SHOWN_CHARS = 160
_THRESHOLDS = {
    "dify": "score_threshold",
    "ragflow": "similarity_threshold",
    "weknora_rest": "vector_threshold",
    "weknora_mcp": "vector_threshold",
}
_MARKS = {"error": "ERROR", "warning": "WARN ", "note": "note "}


@dataclass(frozen=True)
class Question:
    """A sample question. ``expected``: a text that a right hit holds; ``""``: nothing in the base answers it."""

    text: str
    expected: str


def validate(settings: Settings, file: Path | None, *, as_json: bool) -> int:
    """All findings about the knowledge file and the mounts; exit code 1 when one is an error."""
    checked = checked_files(settings, file)
    if as_json:
        shown = {"valid": not checked.errors, "findings": [asdict(finding) for finding in checked.findings]}
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
    else:
        for found in checked.findings:
            click.echo(f"{_MARKS[found.level]} {found.file}:{found.line}  {found.code}  {found.where}: {found.message}")
            click.echo(f"      → {found.cure}")
        count = len(checked.knowledge.knowledge)
        warnings = len(checked.findings) - len(checked.errors)
        click.echo(f"{count} source(s), {len(checked.errors)} error(s), {warnings} warning(s)")
    return 1 if checked.errors else 0


def probe(settings: Settings, ids: Sequence[str], *, as_json: bool) -> int:
    """Ask every source (or the named ones) one harmless question; exit code 1 when one does not answer."""
    shop = _shop(settings)
    known = [spec.id for spec in shop.files.knowledge.knowledge]
    results = {name: _plain(shop, name).search(PROBE_QUERY) for name in (ids or known)}
    if as_json:
        click.echo(_json(settings, {name: _told(found) for name, found in results.items()}))
    else:
        for name, found in results.items():
            click.echo(
                mask_of(settings).text(f"{name:<28} {found.status:<14} {found.ms:>6} ms  {found.detail}".rstrip())
            )
        if not results:
            click.echo("no sources in knowledge.yaml")
    return 0 if all(found.status.answered for found in results.values()) else 1


def search(settings: Settings, source_id: str, text: str, *, as_json: bool) -> int:
    """What a source finds for a text, fallbacks included, and what of it would stand in a prompt."""
    shop = _shop(settings)
    spec = _spec(shop, source_id)
    found = shop.source(source_id).search(text)
    injected = inject(found.hits, spec.injection, source_id, count=shop.token_counter())
    if as_json:
        document = {
            **_told(found),
            "attempts": [asdict(attempt) for attempt in found.attempts],
            "hits": [_told_hit(hit) for hit in found.hits],
            "injected": asdict(injected),
        }
        click.echo(_json(settings, document))
    else:
        lines = [f"{found.status}  {found.ms} ms  by {found.answered_by}  {found.detail}".rstrip()]
        for number, hit in enumerate(found.hits, 1):
            score = "     —" if hit.score is None else f"{hit.score:6.3f}"
            lines.append(f"{number:>3} {score}  {hit.title or '(no title)'}: {_short(hit.content)}")
        lines.append(
            f"in the prompt: {injected.used} record(s), {injected.tokens} token(s){', cut' if injected.cut else ''}"
        )
        click.echo(mask_of(settings).text("\n".join(lines)))
    return 0 if found.status.answered else 1


def calibrate(settings: Settings, source_id: str, questions: Path, *, as_json: bool) -> int:
    """Score distribution of right and wrong hits on sample questions, and a threshold between them."""
    shop = _shop(settings)
    spec = _spec(shop, source_id)
    open_spec = _without_threshold(spec)
    source = shop.shelf_of_specs([open_spec]).source(source_id)
    right: list[float] = []
    wrong: list[float] = []
    unscored, unanswered = 0, list[str]()
    for question in read_questions(questions):
        found = source.search(question.text)
        if not found.status.answered:
            unanswered.append(f"{question.text[:40]}: {found.status} {found.detail}")
        for hit in found.hits:
            if hit.score is None:
                unscored += 1
            else:
                is_right = bool(question.expected) and question.expected in f"{hit.title}\n{hit.content}"
                (right if is_right else wrong).append(hit.score)
    report = calibration(right, wrong) | {"source": source_id, "unscored": unscored, "unanswered": unanswered}
    report["configured"] = spec.vdb.threshold if spec.provider_type == "VDB_DIRECT" else None
    click.echo(_json(settings, report) if as_json else mask_of(settings).text(_as_table(report, right, wrong)))
    return 1 if unanswered or not right else 0


def calibration(right: Sequence[float], wrong: Sequence[float]) -> dict[str, object]:
    """The threshold with the best balanced accuracy, in the middle of the gap around it; both distributions."""
    report: dict[str, object] = {"right": _distribution(right), "wrong": _distribution(wrong), "threshold": None}
    if not right:
        return report
    candidates = sorted({*right, *wrong})
    limits = [candidates[0] - 1e-6, *((low + high) / 2 for low, high in pairwise(candidates))]

    def kept(scores: Sequence[float], limit: float) -> float:
        return sum(score >= limit for score in scores) / len(scores) if scores else 0.0

    best = min(max(max(limits, key=lambda limit: (kept(right, limit) - kept(wrong, limit), -limit)), 0.0), 1.0)
    parted = [score >= best for score in candidates]
    rounded = (round(best, digits) for digits in (3, 4, 5, 6))  # as short as it can be and still part them alike
    told = next((limit for limit in rounded if [score >= limit for score in candidates] == parted), best)
    report |= {
        "threshold": told,
        "keepsRight": round(kept(right, told), 3),
        "keepsWrong": round(kept(wrong, told), 3),
        "separates": min(right) > max(wrong, default=-1.0),
    }
    return report


def read_questions(path: Path) -> list[Question]:
    """YAML, JSON or JSON lines: ``[{question, expected}]``; ``expected`` absent or empty: no right hit exists.

    Raises ``OperationFailedError`` that names the file.
    """
    try:
        text = path.read_text("utf-8-sig")
        if path.suffix == ".jsonl":
            entries: object = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            entries = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise OperationFailedError(f"{path}: cannot be read: {type(error).__name__}") from error
    if isinstance(entries, Mapping):
        entries = entries.get("questions")
    if not isinstance(entries, list) or not entries:
        raise OperationFailedError(f"{path}: holds no list of {{question, expected}}")
    return [_question(entry, number, path) for number, entry in enumerate(entries, 1)]


def _question(entry: object, number: int, path: Path) -> Question:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("question"), str) or not entry["question"].strip():
        raise OperationFailedError(f"{path}: entry {number} has no question")
    expected = entry.get("expected") or ""
    if not isinstance(expected, str):
        raise OperationFailedError(f"{path}: entry {number}: expected is no text")
    return Question(entry["question"], expected.strip())


def _without_threshold(spec: KnowledgeSpec) -> KnowledgeSpec:
    """The same source asked for everything: what the threshold hides has to be seen to place it."""
    if spec.provider_type == "VDB_DIRECT":
        vdb = spec.vdb.model_copy(update={"threshold": 0.0, "top_k": max(spec.vdb.top_k, 10)})
        config = spec.config.model_copy(update={"vdb_params": vdb, "fallback": [], "cache_ttl": 0})
    else:
        request = dict(spec.config.request)
        request |= {key: 0.0 for key in _THRESHOLDS.values() if key in request}
        if spec.config.adapter in _THRESHOLDS:  # what is not asked for has a default of its own, 0.2 or 0.5
            request[_THRESHOLDS[spec.config.adapter]] = 0.0
        config = spec.config.model_copy(update={"request": request, "fallback": [], "cache_ttl": 0})
    return spec.model_copy(update={"config": config})


def _distribution(scores: Sequence[float]) -> dict[str, object]:
    if not scores:
        return {"count": 0}
    return {
        "count": len(scores),
        "min": round(min(scores), 3),
        "median": round(statistics.median(scores), 3),
        "max": round(max(scores), 3),
    }


def _as_table(report: Mapping[str, object], right: Sequence[float], wrong: Sequence[float]) -> str:
    lines = ["score   right  wrong"]
    columns = [Counter(min(max(int(score * 20), 0), 19) for score in scores) for scores in (right, wrong)]
    for row in range(20):
        counts = [column[row] for column in columns]
        if any(counts):
            bar = "█" * min(counts[0], 30) + "░" * min(counts[1], 30)
            lines.append(f"{row / 20:.2f}    {counts[0]:>5}  {counts[1]:>5}  {bar}")
    if report["threshold"] is None:
        lines.append("no right hit was found: does `expected` occur in the records, are the questions in the base?")
    else:
        lines.append(
            f"threshold {report['threshold']}: keeps {report['keepsRight']:.0%} of the right hits and "
            f"{report['keepsWrong']:.0%} of the wrong ones (configured: {report['configured']})"
        )
    if report["unscored"]:
        lines.append(f"{report['unscored']} hit(s) came without a score: this source cannot be calibrated by score")
    unanswered = report["unanswered"]
    lines += [f"unanswered: {line}" for line in unanswered] if isinstance(unanswered, Iterable) else []
    return "\n".join(lines)


def _shop(settings: Settings) -> KnowledgeShop:
    return KnowledgeShop(settings, SystemClock())


def _spec(shop: KnowledgeShop, source_id: str) -> KnowledgeSpec:
    spec = shop.shelf.spec(source_id)
    if spec is None:
        known = ", ".join(spec.id for spec in shop.files.knowledge.knowledge) or "none"
        raise OperationFailedError(f"no source {source_id} in knowledge.yaml; there are: {known}")
    return spec


def _plain(shop: KnowledgeShop, source_id: str) -> KnowledgeSource:
    """The source without its fallbacks: a probe tells about this one."""
    spec = _spec(shop, source_id)
    config = spec.config.model_copy(update={"fallback": [], "cache_ttl": 0, "retry": 0})
    return shop.shelf_of_specs([spec.model_copy(update={"config": config})]).source(source_id)


def _told(found: Found) -> dict[str, object]:
    return {"status": found.status, "ms": found.ms, "answeredBy": found.answered_by, "detail": found.detail}


def _told_hit(hit: Hit) -> dict[str, object]:
    return {
        "title": hit.title,
        "score": hit.score,
        "scoreKind": hit.score_kind,
        "url": hit.url,
        "content": hit.content,
    }


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_CHARS else flat[:_SHOWN_CHARS] + "…"


def _json(settings: Settings, document: object) -> str:
    return json.dumps(mask_of(settings).value(document), ensure_ascii=False, indent=2)
