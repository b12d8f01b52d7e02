"""Reading knowledge and pipeline files and saying what is wrong with them; must not call a source.

A file with an error is not used at all: half a contract would answer questions nobody configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tasks.knowledge.findings import Finding, Level
from tasks.knowledge.lints import remarks
from tasks.knowledge.positions import Positions, UnreadableError, read_yaml
from tasks.knowledge.spec import (
    Columns,
    Config,
    Injection,
    KnowledgeFile,
    KnowledgeSpec,
    NodeMounts,
    PipelinesFile,
    ResponseMap,
    VdbParams,
)
from tasks.knowledge.template import variables_of

Nodes = Mapping[str, Mapping[str, frozenset[str]]]
"""Skill → ``AI_TASK`` node → the variables of its shipped template that a source may take."""

M = TypeVar("M", bound=BaseModel)

_PARTS: dict[str, type[BaseModel]] = {
    "config": Config,
    "vdb_params": VdbParams,
    "columns": Columns,
    "response": ResponseMap,
    "injection": Injection,
}


_CONFIG = {"endpoint": "https://unnamed.invalid", "method": "POST", "timeout": 15}
_INJECTION = {"target_variable": "context_knowledge"}
_PLACEHOLDERS = {
    **_CONFIG,
    **_INJECTION,
    "id": "unnamed",
    "provider_type": "SEMANTIC_API",
    "index_name": "x",
    "top_k": 5,
    "threshold": 0.5,
    "config": _CONFIG,
    "injection": _INJECTION,
}


@dataclass(frozen=True)
class SourceText:
    """A file: its name for findings, and its text."""

    file: str
    text: str


@dataclass
class Checked:
    """Both files as far as they could be read, and everything found. Use them only when no finding is an error."""

    knowledge: KnowledgeFile = field(default_factory=KnowledgeFile)
    pipelines: PipelinesFile = field(default_factory=PipelinesFile)
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """Findings that keep the files from being used."""
        return [finding for finding in self.findings if finding.level == "error"]


def check(
    knowledge: SourceText,
    pipelines: SourceText,
    *,
    nodes: Nodes,
    reserved: frozenset[str] = frozenset(),
    env_allowed: Callable[[str], bool] = lambda _name: True,
    plain_allowed: Callable[[str, int], bool] = lambda _host, _port: False,
) -> Checked:
    """Both files against the contract and each other.

    ``reserved``: variables that no source may take. ``plain_allowed``: hosts and ports that may be called without TLS.
    """
    checked = Checked()
    sources, mounts = _Reader(knowledge, checked), _Reader(pipelines, checked)
    specs = sources.read_sources()
    mounted = mounts.read(PipelinesFile)
    if mounted is not None:
        checked.pipelines = mounted
        _check_nodes(mounts, mounted, nodes)
    if specs is not None:
        checked.knowledge = specs
        for number, spec in enumerate(specs.knowledge):
            for level, code, place, message, cure in remarks(spec, env_allowed, plain_allowed):
                sources.tell(level, code, ("knowledge", number, *place), message, cure, where=spec.id)
        _check_ids(sources, specs)
        _check_fallbacks(sources, specs)
        if mounted is not None:
            _check_variables(sources, mounts, specs, mounted, nodes, reserved)
    order = {knowledge.file: 0, pipelines.file: 1}
    checked.findings.sort(key=lambda found: (order.get(found.file, 2), found.line))
    return checked


class _Reader:
    """One file: its positions, and findings about it."""

    def __init__(self, source: SourceText, checked: Checked) -> None:
        self.file = source.file
        self._text = source.text
        self._checked = checked
        self._positions = Positions()

    def read(self, shape: type[M]) -> M | None:
        """The whole file as one shape; ``None`` when it is none."""
        data = self._mapping(next(iter(shape.model_fields)))
        return None if data is None else self._validated(shape, data, ())

    def read_sources(self) -> KnowledgeFile | None:
        """Source by source, so that a fault of one hides nothing of the others, nor the other faults of itself."""
        data = self._mapping("knowledge")
        if data is None:
            return None
        entries = data.get("knowledge") or []
        if not isinstance(entries, list) or set(data) - {"knowledge"}:
            return self._validated(KnowledgeFile, data, ())
        specs = [self._source(entry, number) for number, entry in enumerate(entries)]
        return KnowledgeFile(knowledge=[spec for spec in specs if spec]) if all(specs) else None

    def _source(self, entry: object, number: int) -> KnowledgeSpec | None:
        path = ("knowledge", number)
        spec = self._validated(KnowledgeSpec, entry, path)
        if spec or not isinstance(entry, dict):
            return spec
        salvaged, late = _salvaged(entry)
        for item in late:
            self._tell_shape(KnowledgeSpec, item, path)
        return salvaged

    def _mapping(self, first: str) -> dict[str, object] | None:
        try:
            self._positions = read_yaml(self._text)
        except UnreadableError as error:
            self._add("error", "NOT_YAML", error.line, "", error.reason, "mend the YAML at this line")
            return None
        for path in self._positions.doubled:
            self.tell("error", "DOUBLE_KEY", path, f"{path[-1]} stands twice", "keep one of them")
        data = {} if self._positions.data is None else self._positions.data
        if not isinstance(data, dict):
            self._add("error", "WRONG_TYPE", 1, "", "the file holds no mapping", f"begin with {first}:")
            return None
        return data

    def _validated(self, shape: type[M], data: object, path: tuple[str | int, ...]) -> M | None:
        try:
            return shape.model_validate(data)
        except ValidationError as error:
            for item in error.errors(include_url=False, include_context=False):
                self._tell_shape(shape, item, path)
            return None

    def tell(
        self, level: Level, code: str, path: Sequence[str | int], message: str, cure: str, *, where: str = ""
    ) -> None:
        self._add(level, code, self._positions.line(path), where or _dotted(path), message, cure)

    def _add(self, level: Level, code: str, line: int, where: str, message: str, cure: str) -> None:
        self._checked.findings.append(Finding(level, code, self.file, line, where, message, cure))

    def _tell_shape(self, shape: type[BaseModel], item: ErrorDetails, before: tuple[str | int, ...]) -> None:
        path = (*before, *item["loc"])
        name = str(path[-1]) if path else ""
        if item["type"] == "extra_forbidden":
            known = _fields_at(shape, path)
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            cure = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
            self.tell("error", "UNKNOWN_FIELD", path, f"no field {name} in the contract", cure)
        elif item["type"] == "missing":
            self.tell("error", "MISSING_FIELD", path, f"{name} is required", f"add {name}:")
        elif "vdb_params is missing" in item["msg"]:
            cure = "add config.vdb_params with index_name, top_k and threshold"
            self.tell("error", "MISSING_FIELD", (*path, "config"), "VDB_DIRECT needs config.vdb_params", cure)
        else:
            message = item["msg"][:1].lower() + item["msg"][1:]
            self.tell("error", "WRONG_VALUE", path, message, "see `kbw schema knowledge`")


def _fields_at(shape: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    parent = next((part for part in reversed(path[:-1]) if isinstance(part, str)), "")
    if parent == "knowledge":
        return list(KnowledgeSpec.model_fields)
    if parent in _PARTS:
        return list(_PARTS[parent].model_fields)
    return list((NodeMounts if path[:1] == ("pipelines",) else shape).model_fields)


def _salvaged(entry: dict[str, object]) -> tuple[KnowledgeSpec | None, list[ErrorDetails]]:
    """A faulty source as far as it can be understood, to find what else is wrong with it; never to be used.

    With it come errors that only show once the first ones are out of the way.
    """
    data, late = deepcopy(entry), list[ErrorDetails]()
    for again in range(4):
        try:
            return KnowledgeSpec.model_validate(data), late
        except ValidationError as error:
            items = error.errors(include_url=False, include_context=False)
            late += items if again else []
            for item in items:
                _patch(data, item["loc"], item["type"])
    return None, late


def _patch(data: dict[str, object], path: Sequence[str | int], kind: str) -> None:
    """Take away what nobody knows, put in what has to be there."""
    if not path:
        data["provider_type"] = "SEMANTIC_API"  # VDB_DIRECT without its parameters: told already
        return
    parent: object = data
    for part in path[:-1]:
        parent = parent.get(part) if isinstance(parent, dict) else None
    if isinstance(parent, dict):
        name = str(path[-1])
        parent.pop(name, None)
        if kind != "extra_forbidden" and name in _PLACEHOLDERS:
            parent[name] = _PLACEHOLDERS[name]


def _check_ids(reader: _Reader, specs: KnowledgeFile) -> None:
    seen: set[str] = set()
    for number, spec in enumerate(specs.knowledge):
        if spec.id in seen:
            path = ("knowledge", number, "id")
            reader.tell("error", "DUPLICATE_ID", path, f"id {spec.id} stands twice", "give each source its own id")
        seen.add(spec.id)


def _check_fallbacks(reader: _Reader, specs: KnowledgeFile) -> None:
    known = {spec.id: spec.config.fallback for spec in specs.knowledge}
    for number, spec in enumerate(specs.knowledge):
        path = ("knowledge", number, "config", "fallback")
        for name in spec.config.fallback:
            if name not in known:
                reader.tell("error", "UNKNOWN_FALLBACK", path, f"no source {name}", _near(name, known), where=spec.id)
        if spec.id in _reachable(spec.config.fallback, known):
            message = f"the fallbacks of {spec.id} lead back to it"
            reader.tell("error", "FALLBACK_LOOP", path, message, "break the circle", where=spec.id)


def _reachable(start: Sequence[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += edges.get(name, [])
    return seen


def _check_nodes(reader: _Reader, mounted: PipelinesFile, nodes: Nodes) -> None:
    for skill, its_nodes in mounted.pipelines.items():
        if skill not in nodes:
            reader.tell("error", "UNKNOWN_PIPELINE", ("pipelines", skill), f"no pipeline {skill}", _near(skill, nodes))
            continue
        for node in its_nodes:
            if node not in nodes[skill]:
                message = f"{skill} has no AI_TASK node {node}"
                reader.tell("error", "UNKNOWN_NODE", ("pipelines", skill, node), message, _near(node, nodes[skill]))


def mounted_nodes(mounted: PipelinesFile) -> Iterator[tuple[str, str, NodeMounts]]:
    """Skill, node and mounts of everything the file names."""
    for skill, nodes in mounted.pipelines.items():
        for node, mounts in nodes.items():
            yield skill, node, mounts or NodeMounts()


def _check_variables(
    sources: _Reader,
    mounts: _Reader,
    specs: KnowledgeFile,
    mounted: PipelinesFile,
    nodes: Nodes,
    reserved: frozenset[str],
) -> None:
    by_id = {spec.id: spec for spec in specs.knowledge}
    mounted_somewhere: set[str] = set()
    usable = {variable for its_nodes in nodes.values() for variables in its_nodes.values() for variable in variables}
    for skill, node, what in mounted_nodes(mounted):
        path = ("pipelines", skill, node, "knowledge_ref")
        template = variables_of(what.knowledge_template)
        usable |= template
        for taken in sorted(template & reserved):
            message = f"{{{{{taken}}}}} is a variable of our own"
            mounts.tell(
                "error", "RESERVED_VARIABLE", (*path[:-1], "knowledge_template"), message, "choose another name"
            )
        for number, name in enumerate(what.knowledge_ref):
            mounted_somewhere.add(name)
            if name not in by_id:
                message = f"no source {name}"
                mounts.tell("error", "UNKNOWN_KNOWLEDGE_REF", (*path, number), message, _near(name, by_id))
            elif name in what.knowledge_ref[:number]:
                mounts.tell("error", "DUPLICATE_REF", (*path, number), f"{name} is mounted twice", "keep one of them")
            elif not _placed(by_id[name], nodes.get(skill, {}).get(node, frozenset()) | template):
                _tell_unused(sources, specs, by_id[name], f"the template of {skill}.{node}", f"{skill}.{node}")
    for spec in specs.knowledge:
        if spec.id not in mounted_somewhere and not _placed(spec, frozenset(usable) - reserved):
            _tell_unused(sources, specs, spec, "any template", "the node's")


def _placed(spec: KnowledgeSpec, variables: frozenset[str]) -> bool:
    return spec.injection.target_variable in variables


def _tell_unused(reader: _Reader, specs: KnowledgeFile, spec: KnowledgeSpec, templates: str, node: str) -> None:
    variable = spec.injection.target_variable
    path = ("knowledge", specs.knowledge.index(spec), "injection", "target_variable")
    message = f"{{{{{variable}}}}} is not used by {templates}"
    cure = f"use context_knowledge, or place it in {node} knowledge_template in pipelines.yaml"
    reader.tell("error", "UNUSED_VARIABLE", path, message, cure, where=spec.id)


def _near(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known)) or 'none'}"


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
    return text
