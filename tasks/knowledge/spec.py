"""The knowledge contract as YAML holds it: seed 002's fields unchanged, ours optional; must not judge or resolve them.

Unknown fields are refused here; what else may be wrong or unwise is in ``tasks.knowledge.validate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic.config import JsonDict

from tasks.contract.shape import JsonObject

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
SourceId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}$")]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]

ProviderType = Literal["SEMANTIC_API", "VDB_DIRECT"]
Adapter = Literal["generic", "dify", "ragflow", "weknora_rest", "weknora_mcp"]
Engine = Literal["qdrant", "pgvector", "sqlite_vec"]
Metric = Literal["cosine", "l2", "dot"]
Format = Literal["text", "markdown", "json"]


class _Part(BaseModel):
    """A frozen piece of the contract; a field nobody knows is an error, not a silent no-op."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ResponseMap(_Part):
    """Where a ``generic`` service's answer holds what: dotted paths (``data.items``), ``""``: the whole answer."""

    records: str = Field(default="", description="dotted path of the list of records, or of the one text")
    content: str = Field(default="", description="path of the text inside a record")
    title: str = Field(default="", description="path of the title inside a record")
    score: str = Field(default="", description="path of the score inside a record")
    url: str = Field(default="", description="path of the link inside a record")
    metadata: str = Field(default="", description="path of further facts inside a record")


class Columns(_Part):
    """Column (or payload field) names of a vector store."""

    content: Identifier = "content"
    embedding: Identifier = "embedding"
    title: Identifier | None = None
    url: Identifier | None = None
    metadata: Identifier | None = None


class VdbParams(_Part):
    """How a vector store is asked. ``threshold`` is cosine similarity ≥ t, whatever the store returns."""

    index_name: StrictStr = Field(min_length=1, max_length=255, description="collection or table")
    top_k: StrictInt = Field(ge=1, le=1000, description="how many records at most")
    threshold: StrictFloat = Field(ge=0.0, le=1.0, description="least cosine similarity of a hit")
    embedding_model: str | None = Field(
        default=None, description="model that made the index; `offline`: the encoder that needs no service"
    )
    engine: Engine | None = Field(default=None, description="kind of store; default: by the endpoint's scheme")
    metric: Metric | None = Field(default=None, description="what the index was built for; default: what it says")
    columns: Columns = Field(default=Columns(), description="names inside the store")
    filter: dict[str, Scalar | list[Scalar]] = Field(
        default_factory=dict, description="field: value, or field: [values]; all must hold"
    )


class Config(_Part):
    """Where a source is and how it is asked."""

    endpoint: StrictStr = Field(min_length=1, description="URL, or the store's address; {{env.X}} is filled in")
    method: Literal["POST", "GET"] = Field(description="POST or GET")
    timeout: StrictInt = Field(ge=1, le=600, description="seconds for one search, all tries together")
    headers: dict[str, StrictStr] = Field(default_factory=dict, description="secrets only as {{env.X}}")
    vdb_params: VdbParams | None = Field(default=None, description="required with VDB_DIRECT, else ignored")
    adapter: Adapter = Field(default="generic", description="the service's dialect (SEMANTIC_API)")
    request: dict[str, object] = Field(
        default_factory=dict, description="generic: the body, with {{query}}; others: the dialect's parameters"
    )
    response: ResponseMap = Field(default=ResponseMap(), description="generic: where the answer holds what")
    retry: StrictInt = Field(default=1, ge=0, le=5, description="further tries within the timeout")
    cache_ttl: StrictInt = Field(default=0, ge=0, le=86_400, description="seconds an answer may be used again")
    fallback: list[SourceId] = Field(default_factory=list, description="sources to ask instead, in order")
    on_zero: Literal["empty", "fallback", "guidance", "local_md"] = Field(
        default="empty", description="no hit: stay empty, or ask the fallback"
    )
    on_error: Literal["empty", "fallback"] = Field(
        default="fallback", description="a fault: stay empty, or ask the fallback"
    )


class Injection(_Part):
    """How hits get into the prompt."""

    target_variable: Name = Field(description="variable of the node's prompt template: {{name}}")
    max_tokens: StrictInt | None = Field(default=None, ge=1, description="tokens at most, wrapper included")
    format: Format = Field(default="text", description="text | markdown | json")


_STORES_NEED_PARAMETERS: JsonDict = {
    "if": {"properties": {"provider_type": {"const": "VDB_DIRECT"}}},
    "then": {"properties": {"config": {"required": ["vdb_params"], "properties": {"vdb_params": {"type": "object"}}}}},
}


class KnowledgeSpec(_Part):
    """One source."""

    model_config = ConfigDict(json_schema_extra=_STORES_NEED_PARAMETERS)

    id: SourceId = Field(description="what knowledge_ref names")
    description: str = Field(default="", description="for people")
    provider_type: ProviderType = Field(description="SEMANTIC_API or VDB_DIRECT")
    config: Config
    injection: Injection

    @model_validator(mode="before")
    @classmethod
    def _without_ignored(cls, value: object) -> object:
        """``vdb_params`` says nothing with ``SEMANTIC_API``: the seed's own sample carries it there."""
        if not isinstance(value, Mapping) or value.get("provider_type") != "SEMANTIC_API":
            return value
        config = value.get("config")
        if not isinstance(config, Mapping) or "vdb_params" not in config:
            return value
        return {**value, "config": {key: item for key, item in config.items() if key != "vdb_params"}}

    @model_validator(mode="after")
    def _complete(self) -> KnowledgeSpec:
        if self.provider_type == "VDB_DIRECT" and self.config.vdb_params is None:
            raise ValueError("config.vdb_params is missing: VDB_DIRECT needs index_name, top_k and threshold")
        return self

    @property
    def vdb(self) -> VdbParams:
        """The store's parameters of a ``VDB_DIRECT`` source."""
        if self.config.vdb_params is None:
            raise ValueError(f"{self.id} is no VDB_DIRECT source")
        return self.config.vdb_params


class KnowledgeFile(_Part):
    """The whole of ``config/knowledge.yaml``."""

    knowledge: list[KnowledgeSpec] = Field(default_factory=list)


class NodeMounts(_Part):
    """What one ``AI_TASK`` node mounts. ``knowledge_template`` adds variables beside those of the shipped template."""

    knowledge_ref: list[SourceId] = Field(default_factory=list, description="ids of config/knowledge.yaml, in order")
    knowledge_template: str = Field(
        default="", max_length=4_000, description="words around further variables: {{name}} becomes the hits"
    )


class PipelinesFile(_Part):
    """The whole of ``config/pipelines.yaml``: skill → node → mounts."""

    pipelines: dict[str, dict[str, NodeMounts | None]] = Field(default_factory=dict)


def json_schema() -> JsonObject:
    """The JSON Schema (2020-12) of a knowledge file."""
    return KnowledgeFile.model_json_schema()
