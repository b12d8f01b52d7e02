"""Makes knowledge bases of any size for benches: Chinese pages, each text in several versions that hardly differ."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from tasks.kb import index_page
from tasks.kb.catalog import entry_facts

VERSIONS = ["v5.4", "v6.1", "v6.5", "v7.1", "v7.5", "v8.1", "v8.5"]
TYPES = ["concept", "tech-note", "resource", "note", "overview"]
THINGS = [
    "连接池", "缓存", "队列", "索引", "快照", "日志", "监控", "告警", "备份", "集群",
    "节点", "分区", "副本", "事务", "会话", "令牌", "证书", "网关", "路由", "组件",
    "模板", "插槽", "指令", "渲染", "编译", "部署", "升级", "回滚", "迁移", "压缩",
]  # fmt: skip
ACTS = ["配置", "排查", "优化", "限制", "安装", "导入", "导出", "扩容", "校验", "恢复", "调试", "隔离"]
WORDS = ["timeout", "max_connections", "raft", "checkpoint", "worker", "batch_size", "retry", "snapshot", "watermark"]
SAID = "可以应当通常如果系统参数默认数值调整之后服务内存磁盘请求数据表中行列读写时间大小数量增加减少开启关闭检查确认"


def content(pages: int) -> dict[str, bytes]:
    """A repository of ``pages`` pages with catalog and index."""
    files: dict[str, bytes] = {}
    entries = []
    for number in range(pages):
        entry, text = page(number)
        entries.append(entry)
        files[entry["path"]] = text.encode()
    entries.sort(key=lambda entry: str(entry["path"]))
    catalog = {"version": 1, "updatedAt": "2026-01-01T00:00:00Z", "pages": entries}
    files["catalog.json"] = json.dumps(catalog, ensure_ascii=False, indent=2).encode()
    files["index.md"] = index_page.create(map(_index_entry, entries), "2026-01-01T00:00:00Z").encode()
    return files


def page(number: int) -> tuple[dict[str, Any], str]:
    """One page: every text stands in all versions before the next text begins."""
    subject, version = divmod(number, len(VERSIONS))
    chance = random.Random(subject)
    thing, act = THINGS[subject % len(THINGS)], ACTS[subject // len(THINGS) % len(ACTS)]
    kind = TYPES[subject % len(TYPES)]
    title = f"{thing}{act}（{subject}）"
    path = f"{kind}s/{VERSIONS[version]}/{subject % 40:02d}/{thing}-{act}-{subject}.md"
    entry = {
        "path": path,
        "title": title,
        "type": kind,
        "kbType": kind,
        "sourceIds": [number],
        "updatedAt": "2026-01-01T00:00:00Z",
        "keywords": [thing, act, *chance.sample(THINGS, 3), chance.choice(WORDS)],
        "projectIds": ["demo"],
        "relatedConcepts": [],
        "relatedResources": [],
        "relatedCodePages": [],
        "relatedPages": [],
        "contentHash": f"{chance.getrandbits(256):064x}",
        "sourceStatus": "active",
    }
    head = f"---\ntitle: {title}\ntype: {kind}\nkeywords: [{thing}, {act}]\n---\n# {title}\n\n"
    body = "\n\n".join(_paragraphs(chance, thing, act))
    return entry, f"{head}本页适用于 {VERSIONS[version]}。\n\n{body}\n"


def _paragraphs(chance: random.Random, thing: str, act: str) -> Iterator[str]:
    for part in range(6):
        yield f"## {thing}的{chance.choice(THINGS)}{act if part % 2 else chance.choice(ACTS)}"
        yield "".join(
            f"{thing}{''.join(chance.choices(SAID, k=16))}{chance.choice(THINGS)}`{chance.choice(WORDS)}`，"
            for _ in range(4)
        )


def _index_entry(entry: dict[str, Any]) -> index_page.IndexEntry:
    facts = entry_facts(entry["path"], entry)
    return index_page.IndexEntry(facts.path, facts.title, facts.type, facts.keywords)


def changes(pages: int, rounds: int, count: int = 10) -> Iterator[dict[str, bytes]]:
    """One commit after the other on top of :func:`content`: ``count`` more pages, with the catalog that lists them."""
    catalog = json.loads(content(pages)["catalog.json"])
    for turn in range(rounds):
        more: dict[str, bytes] = {}
        for number in range(count):
            title = f"新问答 {turn}-{number}"
            entry = {**catalog["pages"][0], "path": f"qa/new-{turn}-{number}.md", "title": title, "type": "qa"}
            catalog["pages"].append(entry)
            more[str(entry["path"])] = f"# {title}\n\n这里回答关于水位线与检查点的问题。\n".encode()
        catalog["updatedAt"] = f"2026-01-02T00:00:{turn:02}Z"
        catalog["pages"].sort(key=lambda entry: entry["path"])
        yield {**more, "catalog.json": json.dumps(catalog, ensure_ascii=False, indent=2).encode()}
