"""A stand-in of WeKnora's REST on loopback, as its source says it behaves (v0.7.2), its traps switchable.

Search is the cosine of character bigrams between the query and an entry's questions: no embedding, but thresholds,
ranks and zero hits are real. ``with WeknoraServer() as server: …server.url…`` (ends in ``/api/v1``).
"""

from __future__ import annotations

import http.server
import json
import math
import re
import threading
import time
import unicodedata
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

RETRIEVE_KEY, INGEST_KEY = "sk-retrieve-51f0", "sk-ingest-9c2d"
CAPABILITIES = {RETRIEVE_KEY: {"retrieve"}, INGEST_KEY: {"retrieve", "ingest"}}


@dataclass
class Traps:
    """What may go wrong. Times in seconds."""

    status: int = 0
    """Answer everything with this status and its error shape."""
    html: bool = False
    hang_s: float = 0.0
    huge_bytes: int = 0
    redirect: str = ""
    old_search: bool = False
    """Before 0.6.3: ``POST hybrid-search`` is 404, ``GET`` with a body works."""
    search_fails: bool = False
    """The base is there, its search answers 500."""
    entry_s: float = 0.0
    """How long one entry of an import takes."""
    lock_ttl_s: float = 3 * 3600.0
    progress_ttl_s: float = 3 * 3600.0
    overwrite_counts: bool = True
    """A completed progress shows the base's last real import's counts, dry run or not (trap A1-4)."""
    duplicate_on_repeat: bool = False
    """Before 0.7.2: an entry imported again is there twice, instead of merged."""
    terse: bool = False
    """A busy base does not name its import, and an unknown import is a bare 404."""
    fail_import: bool = False
    max_entries: int = 200


@dataclass
class Base:
    """A knowledge base of the stand-in."""

    name: str
    kind: str = "faq"
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    shared: bool = False
    entries: list[dict[str, Any]] = field(default_factory=list)
    lock: tuple[str, float] | None = None
    last_counts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Call:
    """One request as it came."""

    method: str
    path: str
    key: str
    document: dict[str, Any]


class WeknoraServer:
    """The server; ``calls`` are its requests, ``traps`` may be changed while it runs."""

    def __init__(self, bases: Sequence[Base] = ()) -> None:
        self.bases = {base.id: base for base in bases}
        self.traps = Traps()
        self.calls: list[Call] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self._born: dict[str, float] = {}
        self._seq = 0
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._server = _Http(("127.0.0.1", 0), _Handler)
        self._server.weknora = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/api/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def add(self, base: Base, *cards: Mapping[str, Any]) -> Base:
        """A base with these entries (``standard_question``, ``answers`` …)."""
        self.bases[base.id] = base
        for card in cards:
            self._store(base, dict(card), replace_same=True)
        return base

    def searches(self) -> list[Call]:
        return [call for call in self.calls if call.path.endswith(("/hybrid-search", "/faq/search"))]

    @contextmanager
    def trapped(self, **traps: Any) -> Iterator[None]:
        """These traps for a while."""
        before, self.traps = self.traps, Traps(**traps)
        try:
            yield
        finally:
            self.traps = before

    @contextmanager
    def occupied(self, base: Base, task_id: str) -> Iterator[None]:
        """Somebody's import works on the base for a while."""
        with self._lock:
            base.lock = (task_id, math.inf)
            self._born[task_id] = time.monotonic()
            self.tasks[task_id] = {"task_id": task_id, "status": "processing", "processed": 1, "total": 2}
        try:
            yield
        finally:
            with self._lock:
                self.tasks[task_id]["status"] = "completed"
                base.lock = None

    # ---------------------------------------------------------------- answering

    def answer(self, call: Call, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        traps = self.traps
        if traps.hang_s:
            self._closing.wait(traps.hang_s)
        if traps.status:
            return traps.status, _app_error(1007, "internal error")
        if call.key not in CAPABILITIES:
            return 401, {"error": "Unauthorized: invalid API key"}
        with self._lock:
            return self._route(call, query)

    def _route(self, call: Call, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        path = call.path
        if path == "/knowledge-bases" and call.method == "GET":
            return 200, _ok([_listed(base) for base in self.bases.values() if not base.shared])
        if path == "/shared-knowledge-bases":
            if "ingest" not in CAPABILITIES[call.key]:
                return 403, {"error": "Forbidden: API key scope does not allow this operation"}
            shared = [base for base in self.bases.values() if base.shared]
            return 200, _ok([{"knowledge_base": _listed(base), "share_id": "s1"} for base in shared])
        if match := re.fullmatch(r"/faq/import/progress/([^/]+)", path):
            return self._progress(unquote(match.group(1)))
        match = re.fullmatch(r"/knowledge-bases/([^/]+)(/.*)?", path)
        base = self.bases.get(unquote(match.group(1))) if match else None
        if match is None:
            return 404, "404 page not found"
        if base is None:
            return 404, _app_error(1003, "knowledge base not found")
        return self._in_base(base, match.group(2) or "", call, query)

    def _in_base(self, base: Base, path: str, call: Call, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        writes = path == "/faq/entries" and call.method == "POST"
        if writes and "ingest" not in CAPABILITIES[call.key]:
            return 403, {"error": "Forbidden: API key scope does not allow this operation"}
        if path == "/hybrid-search":
            if self.traps.old_search and call.method == "POST":
                return 404, "404 page not found"
            if self.traps.search_fails:
                return 500, _app_error(1007, "vector store is down")
            return self._hybrid(base, call.document)
        if path == "/faq/search":
            return self._faq_search(base, call.document)
        if path == "/faq/entries/export":
            if query.get("format") != ["json"]:
                return 200, "﻿standard_question,answers\n"
            return 200, [_exported(entry) for entry in base.entries]
        if writes:
            return self._import(base, call.document)
        if path == "" and call.method == "GET":
            return 200, _ok(_listed(base))
        return 404, "404 page not found"

    # ---------------------------------------------------------------- search

    def _hybrid(self, base: Base, request: Mapping[str, Any]) -> tuple[int, Any]:
        text = request.get("query_text")
        if not isinstance(text, str) or not text:
            return 400, _app_error(1010, "query_text is required")
        threshold = float(request.get("vector_threshold") or 0.0)
        count = int(request.get("match_count") or 0)
        found = self._ranked(base, text, threshold)[: count if count > 0 else 10]
        row = _passage if base.kind == "document" else _search_result
        return 200, _ok([row(entry, score, matched) for entry, score, matched in found] or None)

    def _faq_search(self, base: Base, request: Mapping[str, Any]) -> tuple[int, Any]:
        threshold = float(request.get("vector_threshold") or 0.0)
        count = min(int(request.get("match_count") or 10), 50)
        found = self._ranked(base, str(request.get("query_text")), threshold if threshold > 0 else 0.7)[:count]
        return 200, _ok(
            [{**entry, "score": score, "match_type": "vector", "matched_question": m} for entry, score, m in found]
        )

    def _ranked(self, base: Base, text: str, threshold: float) -> list[tuple[dict[str, Any], float, str]]:
        found = []
        for entry in base.entries:
            questions = [entry["standard_question"], *entry["similar_questions"]]
            if any(text.casefold() == question.casefold() for question in entry["negative_questions"]):
                continue
            score, matched = max((similarity(text, question), question) for question in questions)
            if score >= threshold:
                found.append((entry, score, matched))
        return sorted(found, key=lambda row: (-row[1], row[0]["id"]))

    # ---------------------------------------------------------------- import

    def _import(self, base: Base, request: Mapping[str, Any]) -> tuple[int, Any]:
        entries = request.get("entries")
        if not isinstance(entries, list) or not entries or len(entries) > self.traps.max_entries:
            return 400, _app_error(1010, "entries are required")
        if base.lock and time.monotonic() < base.lock[1]:
            running = "" if self.traps.terse else f"（任务ID: {base.lock[0]}）"
            return 400, _app_error(1000, f"该知识库已有导入任务正在进行中{running}，请等待完成后再试")
        task_id = str(request.get("task_id") or uuid.uuid4())
        dry_run = bool(request.get("dry_run"))
        base.lock = (task_id, time.monotonic() + self.traps.lock_ttl_s)
        self._born[task_id] = time.monotonic()
        self.tasks[task_id] = {
            "task_id": task_id,
            "kb_id": base.id,
            "status": "pending",
            "progress": 0,
            "total": len(entries),
            "processed": 0,
            "failed_entries": [],
            "success_entries": [],
            "message": "",
            "error": "",
            "dry_run": dry_run,
            "import_mode": request.get("mode", "append"),
        }
        work = threading.Thread(target=self._work, args=(base, task_id, entries, dry_run), daemon=True)
        work.start()
        return 200, _ok({"task_id": task_id})

    def _work(self, base: Base, task_id: str, entries: list[dict[str, Any]], dry_run: bool) -> None:
        task, counts = self.tasks[task_id], Counter[str]()
        with self._lock:
            task["status"] = "processing"
            replaces = task["import_mode"] == "replace"
            if replaces and not dry_run:
                base.entries.clear()
            owners = {} if replaces else _owners(base.entries)
        for index, entry in enumerate(entries):
            if self._closing.wait(self.traps.entry_s):
                return
            with self._lock:
                if self.traps.fail_import and index == len(entries) // 2:
                    task.update(status="failed", error="embedding service is down")
                    base.lock = None
                    return
                problem = _entry_problem(entry)
                if problem:
                    counts["failed_count"] += 1
                    task["failed_entries"].append({"index": index, "reason": problem, "failure_type": "validation"})
                else:
                    kept, removed = _without_conflicts(entry, owners)
                    if removed:
                        partly = {
                            "index": index,
                            "reason": f"部分成功：{removed}条相似问被移除",
                            "is_partial_failure": True,
                        }
                        task["failed_entries"].append(partly)
                    if not dry_run:
                        stored = self._store(base, kept, replace_same=not self.traps.duplicate_on_repeat)
                        counts[stored] += 1
                        counts["success_count"] += 1
                    task["success_entries"].append({"index": index, "standard_question": entry["standard_question"]})
                task["processed"] = index + 1
                task["progress"] = round(100 * (index + 1) / len(entries))
        with self._lock:
            names = ("success_count", "failed_count", "merged_count", "added_count")
            if not dry_run:
                base.last_counts = {name: counts[name] for name in names}
            task.update({name: counts[name] for name in names})
            if self.traps.overwrite_counts:
                task.update(base.last_counts)
            task["status"] = "completed"
            base.lock = None

    def _store(self, base: Base, card: Mapping[str, Any], *, replace_same: bool) -> str:
        same = [entry for entry in base.entries if entry["standard_question"] == card["standard_question"]]
        if same and replace_same:
            known = same[0]
            known["similar_questions"] = list(
                dict.fromkeys([*known["similar_questions"], *card.get("similar_questions", [])])
            )
            known["answers"] = list(dict.fromkeys([*known["answers"], *card.get("answers", [])]))
            return "merged_count"
        self._seq += 1
        base.entries.append(
            {
                "id": self._seq,
                "chunk_id": str(uuid.uuid4()),
                "standard_question": card["standard_question"],
                "similar_questions": list(card.get("similar_questions", [])),
                "negative_questions": list(card.get("negative_questions", [])),
                "answers": list(card.get("answers", [])),
                "answer_strategy": card.get("answer_strategy", "all"),
                "tag_name": card.get("tag_name", ""),
                "is_enabled": True,
            }
        )
        return "added_count"

    def _progress(self, task_id: str) -> tuple[int, Any]:
        born = self._born.get(task_id)
        if born is None or time.monotonic() - born > self.traps.progress_ttl_s:
            return 404, "404 page not found" if self.traps.terse else _app_error(1003, "import task not found")
        return 200, _ok(dict(self.tasks[task_id]))


def similarity(left: str, right: str) -> float:
    """Cosine of character bigrams."""
    a, b = _bigrams(left), _bigrams(right)
    dot = sum(count * b[gram] for gram, count in a.items())
    norm = math.sqrt(sum(c * c for c in a.values()) * sum(c * c for c in b.values()))
    return dot / norm if norm else 0.0


def _bigrams(text: str) -> Counter[str]:
    plain = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text)))
    return Counter(plain[at : at + 2] for at in range(len(plain) - 1)) or Counter([plain])


def _ok(data: Any) -> dict[str, Any]:
    return {"success": True, "data": data}


def _app_error(code: int, message: str) -> dict[str, Any]:
    return {"success": False, "error": {"code": code, "message": message, "details": None}}


def _listed(base: Base) -> dict[str, Any]:
    return {"id": base.id, "name": base.name, "type": base.kind, "chunk_count": len(base.entries)}


def _owners(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The standard question that each question of a base leads to."""
    return {
        q: one["standard_question"] for one in entries for q in (one["standard_question"], *one["similar_questions"])
    }


def _without_conflicts(entry: Mapping[str, Any], owners: Mapping[str, str]) -> tuple[dict[str, Any], int]:
    """The entry without similar questions that lead elsewhere already, or are its own, and how many those were."""
    own = entry["standard_question"]
    similar = entry.get("similar_questions") or []
    kept = [question for question in similar if question != own and owners.get(question, own) == own]
    return {**entry, "similar_questions": kept}, len(similar) - len(kept)


def _entry_problem(entry: Mapping[str, Any]) -> str:
    if not str(entry.get("standard_question") or "").strip():
        return "标准问不能为空"
    return "" if entry.get("answers") else "答案不能为空"


def _exported(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = ("standard_question", "similar_questions", "negative_questions", "answers", "answer_strategy", "tag_name")
    return {name: entry[name] for name in names}


def _search_result(entry: Mapping[str, Any], score: float, matched: str) -> dict[str, Any]:
    answers = "\n".join(entry["answers"])
    content = f"Q: {entry['standard_question']}\nSimilar Questions: {entry['similar_questions']}\nAnswers: {answers}"
    metadata = {
        name: entry[name]
        for name in ("standard_question", "similar_questions", "negative_questions", "answers", "answer_strategy")
    }
    return {
        "id": entry["chunk_id"],
        "content": content,
        "score": score,
        "match_type": 0,
        "chunk_type": "faq",
        "chunk_metadata": metadata,
        "matched_content": content,
        "knowledge_title": "FAQ",
        "matched_question": matched,
    }


def _passage(entry: Mapping[str, Any], score: float, _matched: str) -> dict[str, Any]:
    """A hit in a base of documents, whose entry stands for a piece of one: no ``chunk_metadata``."""
    text = "\n".join(entry["answers"])
    told = {"id": entry["chunk_id"], "content": text, "score": score, "match_type": 0, "chunk_type": "text"}
    return {**told, "knowledge_title": entry["standard_question"], "matched_content": text}


class _Http(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    weknora: WeknoraServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of some stories."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: 40 ms of waiting otherwise
    server: _Http

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        """Tests read ``calls``."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = urlsplit(self.path)
        document: Any = {}
        with suppress(ValueError):
            document = json.loads(body or b"{}")
        call = Call(
            self.command,
            target.path.removeprefix("/api/v1"),
            self.headers.get("X-API-Key", ""),
            document if isinstance(document, dict) else {},
        )
        weknora = self.server.weknora
        weknora.calls.append(call)
        if weknora.traps.redirect:
            self._send(302, b"", "text/plain", ("Location", weknora.traps.redirect))
            return
        if weknora.traps.html:
            self._send(200, b"<html><body>Welcome to nginx</body></html>", "text/html")
            return
        if weknora.traps.huge_bytes:
            self._send(200, b'{"data":"' + b"x" * weknora.traps.huge_bytes + b'"}', "application/json")
            return
        status, answer = weknora.answer(call, parse_qs(target.query))
        plain = isinstance(answer, str)
        self._send(
            status,
            answer.encode() if plain else json.dumps(answer, ensure_ascii=False).encode(),
            "text/plain" if plain else "application/json",
        )

    def _send(self, status: int, body: bytes, kind: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)
