"""What the knowledge layer costs a call beside a bare HTTP client, and what reading a card only once saves.

``python -m tests.bench.knowledge [--calls 400]``. One service on loopback in a process of its own answers a fixed
JSON of five records. Compared: httpx with a kept connection (no checks at all), the layer's guarded call, a whole
source (secrets, tries, reading), and a whole source with its hits placed in a prompt within 1,500 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import httpx

from tasks.knowledge.injection import inject
from tasks.knowledge.spec import Injection
from tests.fakes_knowledge import environment, said, service, spec
from worker.adapters.knowledge.semantic import SemanticSource
from worker.adapters.knowledge.tokens import TokenCounter
from worker.adapters.weknora.results import found_in
from worker.clock import SystemClock
from worker.outbound import AllowedHosts, Outbound

TEXT = "租约到期之后，协调器会再次唤醒任务，由另一个工作进程接手。心跳停止六十秒即视为失效，记录的纪元加一。" * 6
ANSWER = {"records": [{"content": TEXT, "title": f"记录 {n}", "score": 0.9 - n / 10} for n in range(5)]}
CARD = (
    "【内容含义】被当场刁难的人，用一连串专业细节把对方顶回去：期待出丑，被专业打破，结果全场安静。"
    "【原话】“这个扭矩你们标错了，第三页第二行。”【微反应】对方翻页的手停住。【铺垫】三句，约八秒。【镜头】手部特写切全景。"
) * 6
QUESTIONS = ["被当场刁难的人用专业细节顶回去", "谁能把刁难变成打脸", "当众被质疑怎么反转"]


def row() -> dict[str, object]:
    """One hit as WeKnora sends it: the card three times, and the questions that lead to it (seed 000 §1.2)."""
    content = f"Q: {QUESTIONS[0]}\nSimilar Questions:\n" + "\n".join(QUESTIONS) + f"\nAnswers:\n{CARD}"
    metadata = {"standard_question": QUESTIONS[0], "similar_questions": QUESTIONS, "answers": [CARD]}
    return {"id": "c1", "content": content, "matched_content": content, "chunk_metadata": metadata, "score": 0.6}


def serve() -> None:
    """The service, until standard input ends."""
    with service(said(ANSWER)) as there:
        print(there.url, flush=True)
        sys.stdin.read()


def measured(call: Callable[[], object], calls: int) -> tuple[float, float, float]:
    """Milliseconds, after ten calls to warm up: median wall clock, 95th percentile, and mean CPU of this process."""
    for _ in range(10):
        call()
    taken, cpu = [], time.process_time()
    for _ in range(calls):
        started = time.perf_counter()
        call()
        taken.append((time.perf_counter() - started) * 1000)
    spent = (time.process_time() - cpu) * 1000 / calls
    return statistics.median(taken), statistics.quantiles(taken, n=20)[-1], spent


def compare(url: str, calls: int) -> None:
    """One line a way of calling, and what the layer adds to the bare client."""
    clock = SystemClock()
    outbound = Outbound(AllowedHosts(("127.0.0.1",)), clock.monotonic)
    its_spec = spec(endpoint=url, headers={"Authorization": "Bearer {{env.KB_T}}"})
    source = SemanticSource(its_spec, outbound, environment(KB_T="s3cr3t-value"), clock)
    counter, injection = TokenCounter(), Injection(target_variable="x", max_tokens=1500, format="markdown")
    body = json.dumps({"query": "租约"}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer s3cr3t-value"}
    started = time.perf_counter()
    counter.warm()
    print(f"token table: loaded in {(time.perf_counter() - started) * 1000:.0f} ms, once a process")
    with httpx.Client(trust_env=False) as client:
        ways: dict[str, Callable[[], object]] = {
            "bare httpx, reading JSON": lambda: client.post(url, content=body, headers=headers).json(),
            "guarded call": lambda: outbound.send("POST", url, headers, body, clock.monotonic() + 10),
            "whole source": lambda: source.search("租约"),
            "source and injection": lambda: inject(source.search("租约").hits, injection, "kb", count=counter),
        }
        bare = 0.0
        for name, way in ways.items():
            median, late, cpu = measured(way, calls)
            bare = bare or cpu
            print(f"{name:<28} median {median:6.2f} ms   p95 {late:6.2f} ms   CPU {cpu:5.2f} ms ({cpu - bare:+.2f})")
    outbound.close()


def cards() -> None:
    """Tokens of a card as it comes, and as it reaches a prompt."""
    counter = TokenCounter()
    raw = json.dumps({"data": [row()], "success": True}, ensure_ascii=False)
    found = found_in(json.loads(raw), "first")
    before, after = counter(raw), counter(found.hits[0].content)
    print(f"a card: {len(raw.encode()):,} bytes and {before:,} tokens as it comes, {after:,} tokens as it is used")
    print(f"kept: {after / before:.0%} (seed 000 expects about one third)")


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.bench.knowledge", "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as server:
        assert server.stdout is not None
        try:
            compare(server.stdout.readline().strip(), options.calls)
        finally:
            server.terminate()
    cards()


if __name__ == "__main__":
    main()
