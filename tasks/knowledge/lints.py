"""Judging one source beyond its shape: secrets, endpoint, threshold, times; must not know other sources or nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit

from tasks.knowledge.findings import Level
from tasks.knowledge.secrets import ENV, PLACEHOLDER, SECRET_NAME, holds_literal_secret, variables_in
from tasks.knowledge.spec import KnowledgeSpec

Place = tuple[str | int, ...]
Remark = tuple[Level, str, Place, str, str]
"""Level, code, place inside the source, what is found, what to do."""

USUAL_TIMEOUT = range(10, 31)
MANY_RECORDS = 20
USUAL_SCORES: tuple[tuple[str, float, float], ...] = (
    # cosine of good hits; e5 and the offline encoder were measured here, the others are what their users report
    ("e5", 0.80, 0.95),
    ("text-embedding-3", 0.20, 0.60),
    ("ada-002", 0.70, 0.90),
    ("bge", 0.40, 0.80),
    ("offline", 0.25, 0.75),
    ("universal-sentence-encoder", 0.25, 0.75),
)
_SCHEMES = {
    "SEMANTIC_API": ("https", "http"),
    "VDB_DIRECT": ("https", "http", "postgresql", "postgres", "file", "sqlite"),
}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def remarks(
    spec: KnowledgeSpec, env_allowed: Callable[[str], bool], plain_allowed: Callable[[str, int], bool]
) -> Iterator[Remark]:
    """All remarks about one source. ``plain_allowed``: may this host and port be called without TLS?"""
    yield from _secrets(spec)
    yield from _placeholders(spec, env_allowed)
    yield from _endpoint(spec, plain_allowed)
    yield from _times(spec)
    yield from _dialect(spec)
    if spec.provider_type == "VDB_DIRECT":
        yield from _retrieval(spec)


def _secrets(spec: KnowledgeSpec) -> Iterator[Remark]:
    cure = "write {{env.NAME}} and set NAME in the environment of the workers"
    for name, value in spec.config.headers.items():
        place: Place = ("config", "headers", name)
        if holds_literal_secret(name, value):
            yield "error", "LITERAL_SECRET", place, f"header {name} holds a literal value", cure
        if not _HEADER_NAME.fullmatch(name) or any(character in value for character in "\r\n\0"):
            yield "error", "BAD_HEADER", place, f"header {name!r} cannot be sent", "use a plain name and one line"
    for field, value in _texts(spec.config.request):
        if holds_literal_secret(field, value):
            place = ("config", "request", field)
            yield (
                "error",
                "LITERAL_SECRET",
                place,
                f"field {field} holds a literal value",
                f"move it to a header; {cure}",
            )
    parts = _split(spec.config.endpoint)
    if parts is None:
        return
    password = parts.password or (parts.username if parts.scheme in ("http", "https") else "")
    named = [name for name, value in parse_qsl(parts.query) if SECRET_NAME.search(name) and not ENV.search(value)]
    if (password and not ENV.fullmatch(password)) or named:
        yield "error", "LITERAL_SECRET", ("config", "endpoint"), "the endpoint holds a literal secret", cure


def _placeholders(spec: KnowledgeSpec, env_allowed: Callable[[str], bool]) -> Iterator[Remark]:
    texts = [(("config", "endpoint"), spec.config.endpoint)]
    texts += [(("config", "headers", name), value) for name, value in spec.config.headers.items()]  # type: ignore[misc]  # longer places
    for place, text in texts:
        for inner in PLACEHOLDER.findall(ENV.sub("", text)):
            message = f"{{{{{inner}}}}} is no placeholder of the contract"
            yield "error", "UNKNOWN_PLACEHOLDER", place, message, "write {{env.NAME}}"
        for name in variables_in(text):
            if not env_allowed(name):
                message = f"{name} is not on the allow-list of environment variables"
                yield "error", "ENV_NOT_ALLOWED", place, message, f"add {name} to KBW_KNOWLEDGE_ENV"
    elsewhere: list[tuple[Place, str]] = [
        (("config", "request", field), value) for field, value in _texts(spec.config.request)
    ]
    if spec.provider_type == "VDB_DIRECT":
        elsewhere.append((("config", "vdb_params", "index_name"), spec.vdb.index_name))
    for where, text in elsewhere:
        if variables_in(text):
            message = f"{{{{env.X}}}} is not filled in at {where[-1]}: it would be sent as it stands"
            yield "error", "ENV_NOT_HERE", where, message, "use it in a header or the endpoint, or write the value"


def _endpoint(spec: KnowledgeSpec, plain_allowed: Callable[[str, int], bool]) -> Iterator[Remark]:
    place: Place = ("config", "endpoint")
    if spec.config.endpoint.lstrip().startswith("{{"):
        return  # the whole address comes from the environment
    parts = _split(spec.config.endpoint)
    allowed = _SCHEMES[spec.provider_type]
    if parts is None or parts.scheme not in allowed or not (parts.netloc or parts.path):
        message = "the endpoint is no address this mode can call"
        yield "error", "BAD_ENDPOINT", place, message, f"start it with {', '.join(f'{one}://' for one in allowed)}"
    elif parts.scheme == "http" and not (parts.hostname and plain_allowed(parts.hostname, _port(parts))):
        message = f"{parts.hostname} has no TLS: not called unless listed; hits and headers can be read on the way"
        yield "warning", "PLAIN_HTTP", place, message, "use https, or list the host in KBW_KNOWLEDGE_ALLOWED_HOSTS"


def _times(spec: KnowledgeSpec) -> Iterator[Remark]:
    config = spec.config
    if config.timeout not in USUAL_TIMEOUT:
        message = f"{config.timeout} s is outside the usual 10–30 s"
        yield "warning", "TIMEOUT_UNUSUAL", ("config", "timeout"), message, "choose 10 to 30 seconds"
    if config.method == "GET" and config.adapter in ("dify", "ragflow"):
        message = f"{config.adapter} is asked with POST"
        yield "warning", "METHOD_UNUSUAL", ("config", "method"), message, "write POST"


def _dialect(spec: KnowledgeSpec) -> Iterator[Remark]:
    config = spec.config
    needed = {"dify": "knowledge_id", "ragflow": "dataset_ids", "weknora_rest": "kb_id", "weknora_mcp": "kb_id"}
    field = needed.get(config.adapter)
    if spec.provider_type == "SEMANTIC_API" and field and field not in config.request:
        message = f"adapter {config.adapter} needs request.{field}"
        yield "error", "MISSING_REQUEST_FIELD", ("config", "adapter"), message, f"add request: {{{field}: …}}"
    if spec.provider_type == "VDB_DIRECT" and config.adapter != "generic":
        message = "adapter has no meaning with VDB_DIRECT"
        yield "warning", "IGNORED_FIELD", ("config", "adapter"), message, "remove it, or use SEMANTIC_API"
    if config.on_zero in ("guidance", "local_md"):
        message = f"on_zero: {config.on_zero} is for material retrieval: for a mounted source it means empty"
        yield "warning", "IGNORED_FIELD", ("config", "on_zero"), message, "set KBW_MATERIAL_ON_ZERO, or write empty"
    if config.on_zero == "fallback" and not config.fallback:
        message = "on_zero: fallback without a fallback"
        yield "error", "NO_FALLBACK", ("config", "on_zero"), message, "name one in fallback: [id]"


def _retrieval(spec: KnowledgeSpec) -> Iterator[Remark]:
    vdb = spec.vdb
    place: Place = ("config", "vdb_params", "threshold")
    calibrate = f"measure it: kbw knowledge calibrate {spec.id} --questions FILE"
    band = usual_scores(vdb.embedding_model or "")
    if band and not band[0] <= vdb.threshold <= band[1]:
        message = (
            f"good hits of {vdb.embedding_model} usually score {band[0]:.2f} to {band[1]:.2f}, not {vdb.threshold:g}"
        )
        yield "warning", "THRESHOLD_UNUSUAL", place, message, calibrate
    elif not band and (vdb.threshold == 0 or vdb.threshold > 0.9):
        message = f"{vdb.threshold:g} lets {'everything' if vdb.threshold == 0 else 'hardly anything'} through"
        yield "warning", "THRESHOLD_UNUSUAL", place, message, calibrate
    if vdb.top_k > MANY_RECORDS:
        message = f"{vdb.top_k} records are many for one prompt"
        yield "warning", "TOP_K_LARGE", ("config", "vdb_params", "top_k"), message, f"choose at most {MANY_RECORDS}"


def usual_scores(model: str) -> tuple[float, float] | None:
    """The band in which good hits of an embedding model usually lie, if we know it."""
    for name, low, high in USUAL_SCORES:
        if name in model.lower():
            return low, high
    return None


def _split(endpoint: str) -> SplitResult | None:
    try:
        parts = urlsplit(endpoint)
        if not ENV.search(parts.netloc):
            _ = parts.port  # a port that is no number is told here
    except ValueError:
        return None
    return parts


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or 80
    except ValueError:
        return 0  # it comes from the environment: only a rule for the whole host can list it


def _texts(value: Mapping[str, object], depth: int = 0) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        for one in item if isinstance(item, list) else [item]:
            if isinstance(one, str):
                yield str(key), one
            elif isinstance(one, Mapping) and depth < 10:
                yield from _texts(one, depth + 1)
