"""Every setting with its variable, default and meaning, one small model an area; must not read the environment."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class Area(BaseModel):
    """A few settings that belong together. Field aliases are the variable names."""

    model_config = ConfigDict(
        frozen=True,
        populate_by_name=True,
        extra="forbid",
        str_strip_whitespace=True,
        allow_inf_nan=False,
        defer_build=True,  # an area that nobody set costs no command anything
    )


class GiteaSettings(Area):
    """The Gitea server that holds the team's knowledge."""

    url: str = Field(default="", alias="GITEA_URL", description="base URL of Gitea, https (or http when it says so)")
    token: SecretStr = Field(default=SecretStr(""), alias="GITEA_BOT_TOKEN", description="the bot's token, may push")
    username: str = Field(
        default="kbw", alias="GITEA_BOT_USERNAME", description="the bot's user name, author of commits"
    )
    org: str = Field(default="", alias="GITEA_ORG", description="owner of repositories named without one")
    repo: str = Field(default="", alias="TEAM_KB_REPO", description="repository when a payload names none")
    allowed_repos: str = Field(
        default="", alias="KBW_ALLOWED_REPOS", description="comma-separated owner/name; set: only these are served"
    )
    allowed_urls: str = Field(
        default="",
        alias="KBW_ALLOWED_GITEA_URLS",
        description="comma-separated other spellings of GITEA_URL in payloads",
    )


class SharedSettings(Area):
    """The directory shared with the backend."""

    directory: str = Field(default="", alias="OPENCLAW_SHARED_DIR", description="shared directory, as mounted here")
    allowed_roots: str = Field(
        default="",
        alias="KBW_ALLOWED_ROOTS",
        description="colon-separated folders files may lie in; default: shared directory",
    )
    file_mode: str = Field(
        default="",
        pattern=r"^(0o?)?[0-7]{0,4}$",
        alias="KBW_FILE_MODE",
        description="octal mode of files we write; default 0666 & ~umask",
    )
    exclude: str = Field(
        default="attachments,uploads,results,.kbw",
        alias="KBW_INTAKE_EXCLUDE",
        description="comma-separated folder names below which no payload is looked for",
    )
    poll_s: float = Field(
        default=0.5, gt=0, alias="KBW_INTAKE_POLL_S", description="seconds between two looks at the directory"
    )
    settle_s: float = Field(
        default=2.0, ge=0, alias="KBW_INTAKE_SETTLE_S", description="seconds a payload file must stand still"
    )
    give_up_s: float = Field(
        default=60.0, gt=0, alias="KBW_INTAKE_GIVE_UP_S", description="seconds until a file that is no JSON is reported"
    )


class RedisSettings(Area):
    """Job records and wake-up calls."""

    url: str = Field(
        default="",
        alias="KBW_REDIS_URL",
        pattern="^((redis|rediss|unix)://.*)?$",
        description="Redis or Valkey URL; none: embedded Valkey",
    )
    prefix: str = Field(default="kbw:", alias="KBW_REDIS_PREFIX", description="prefix of all keys")
    state_dir: str = Field(
        default="~/.local/state/kbw", alias="KBW_STATE_DIR", description="append-only file of the embedded Valkey"
    )
    visibility_s: int = Field(
        default=3_600,
        ge=5,
        alias="KBW_VISIBILITY_S",
        description="seconds until the broker gives an unacknowledged wake-up call out again; above the longest stage",
    )


class ModelSettings(Area):
    """The model endpoint: OpenClaw's gateway or any OpenAI-compatible server."""

    driver: Literal["", "openclaw", "openai", "recorded"] = Field(
        default="", alias="KBW_MODEL_DRIVER", description="openclaw | openai | recorded; unset: what is configured"
    )
    gateway_url: str = Field(default="", alias="OPENCLAW_GATEWAY_URL", description="OpenClaw gateway, without /v1")
    gateway_token: SecretStr = Field(default=SecretStr(""), alias="OPENCLAW_GATEWAY_TOKEN", description="gateway token")
    agent: str = Field(default="kb", alias="KBW_OPENCLAW_AGENT", description="OpenClaw agent that answers")
    base_url: str = Field(default="", alias="KBW_LLM_BASE_URL", description="OpenAI-compatible base URL, ends in /v1")
    api_key: SecretStr = Field(default=SecretStr(""), alias="KBW_LLM_API_KEY", description="key of that endpoint")
    name: str = Field(default="", alias="KBW_LLM_MODEL", description="model name at that endpoint")
    recorded_file: str = Field(
        default="", alias="KBW_RECORDED_REPLIES", description="replies of the recorded driver (demo and tests only)"
    )
    timeout_s: float = Field(default=300.0, gt=0, alias="KBW_MODEL_TIMEOUT_S", description="seconds for one model call")
    concurrency: int = Field(
        default=4, ge=1, alias="KBW_MODEL_CONCURRENCY", description="calls in flight at one endpoint, over all workers"
    )
    session_mode: Literal["task", "stage", "attempt"] = Field(
        default="task", alias="KBW_SESSION_MODE", description="what a model session key is made of"
    )


class JobSettings(Area):
    """How long and how often a job is tried, and how long it is remembered."""

    lease_s: float = Field(
        default=60.0, ge=1, alias="KBW_LEASE_S", description="seconds a worker holds a stage unrenewed"
    )
    stall_s: float = Field(
        default=5.0,
        gt=0,
        alias="KBW_STALL_S",
        description="seconds an open job may stand still before it is woken again",
    )
    max_attempts: int = Field(default=6, ge=1, alias="KBW_MAX_ATTEMPTS", description="attempts at one stage")
    live_s: float = Field(
        default=120.0,
        gt=0,
        alias="KBW_LIVE_S",
        description="seconds jobs may stand ready, unclaimed, before `kbw health live` and /live say no",
    )
    retention_days: float = Field(
        default=30.0, gt=0, alias="KBW_RETENTION_DAYS", description="days finished jobs are kept"
    )
    lane_block_s: float = Field(
        default=300.0,
        ge=0,
        alias="KBW_CONVERSATION_BLOCK_S",
        description="seconds a waiting job may hold back later ones of its conversation",
    )


class WorkerSettings(Area):
    """Processes of one ``kbw up``."""

    io: int = Field(
        default=2, ge=1, alias="KBW_IO_CONCURRENCY", description="processes for prepare, fetch, apply, publish"
    )
    llm: int = Field(default=4, ge=1, alias="KBW_LLM_CONCURRENCY", description="threads for select and answer")
    commit: int = Field(default=1, ge=1, alias="KBW_COMMIT_CONCURRENCY", description="processes for commit")
    shutdown_s: float = Field(
        default=30.0, ge=0, alias="KBW_SHUTDOWN_S", description="seconds running stages may still take"
    )
    cache_dir: str = Field(
        default="~/.cache/kbw", alias="KBW_CACHE_DIR", description="mirror, index, attachment cache; may be deleted"
    )
    config_dir: str = Field(
        default="", alias="KBW_CONFIG_DIR", description="word lists, pipelines, demo; default: shipped"
    )
    log_format: Literal["json", "text"] = Field(default="json", alias="KBW_LOG_FORMAT", description="json | text")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", alias="KBW_LOG_LEVEL", description="DEBUG | INFO | WARNING | ERROR"
    )


class TraceSettings(Area):
    """Spans for an OpenTelemetry collector; off without an endpoint or without the extra `otel`."""

    endpoint: str = Field(
        default="",
        alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        description="OTLP/HTTP collector, like http://127.0.0.1:4318; none: no spans",
    )
    headers: SecretStr = Field(
        default=SecretStr(""), alias="OTEL_EXPORTER_OTLP_HEADERS", description="its headers: name=value,name=value"
    )
    service: str = Field(default="kbw", alias="OTEL_SERVICE_NAME", description="what traces call this service")


class HttpSettings(Area):
    """The HTTP way in; off without a token."""

    addr: str = Field(
        default="127.0.0.1:8765",
        alias="KBW_HTTP_ADDR",
        pattern=r"^\S*:([0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])$",
        description="host:port of the HTTP way in",
    )
    token: SecretStr = Field(
        default=SecretStr(""), alias="KBW_HTTP_TOKEN", description="bearer token; none: HTTP is off"
    )


class KnowledgeSettings(Area):
    """Sources of knowledge beside the team's own, and serving the team's own to others."""

    file: str = Field(
        default="", alias="KBW_KNOWLEDGE_FILE", description="sources; default: knowledge.yaml in the config folder"
    )
    pipelines_file: str = Field(
        default="", alias="KBW_PIPELINES_FILE", description="mounts; default: pipelines.yaml in the config folder"
    )
    allowed_hosts: str = Field(
        default="",
        alias="KBW_KNOWLEDGE_ALLOWED_HOSTS",
        description="comma-separated host, host:port, *.zone or network that may be private or without TLS",
    )
    env: str = Field(
        default="KB_*",
        alias="KBW_KNOWLEDGE_ENV",
        description="comma-separated variables (or patterns) that {{env.X}} in knowledge.yaml may name",
    )
    embedding_base_url: str = Field(
        default="", alias="KBW_EMBEDDING_BASE_URL", description="OpenAI-compatible embeddings, ends in /v1"
    )
    embedding_api_key: SecretStr = Field(
        default=SecretStr(""), alias="KBW_EMBEDDING_API_KEY", description="key of that endpoint"
    )
    retrieval_token: SecretStr = Field(
        default=SecretStr(""),
        alias="KBW_RETRIEVAL_TOKEN",
        description="bearer token of POST /retrieval (Dify's form) over the team's pages; none: off",
    )


class MaterialSettings(Area):
    """WeKnora and material retrieval."""

    mcp_url: str = Field(
        default="", alias="KBW_WEKNORA_MCP_URL", description="WeKnora's MCP server, streamable HTTP (ends in /mcp)"
    )
    mcp_token: SecretStr = Field(
        default=SecretStr(""), alias="KBW_WEKNORA_MCP_TOKEN", description="bearer token of that MCP server"
    )
    mcp_command: str = Field(
        default="",
        alias="KBW_WEKNORA_MCP_COMMAND",
        description="command of an MCP server on stdio, when there is no URL; it gets KBW_WEKNORA_URL and the key",
    )
    url: str = Field(default="", alias="KBW_WEKNORA_URL", description="WeKnora REST base URL, ends in /api/v1")
    api_key: SecretStr = Field(
        default=SecretStr(""), alias="KBW_WEKNORA_API_KEY", description="REST key that may retrieve"
    )
    ingest_key: SecretStr = Field(
        default=SecretStr(""),
        alias="KBW_WEKNORA_INGEST_KEY",
        description="REST key that may ingest, for `kbw faq` only; default: the one that may retrieve",
    )
    via: Literal["", "mcp", "rest"] = Field(
        default="", alias="KBW_WEKNORA_VIA", description="mcp | rest; unset: MCP if configured, else REST"
    )
    kb_id: str = Field(
        default="MCN极致事件素材库", alias="KBW_WEKNORA_KB", description="base when a payload names none, by name"
    )
    match_count: int = Field(
        default=3, ge=1, le=5, alias="KBW_WEKNORA_MATCH_COUNT", description="cards one search may bring"
    )
    vector_threshold: float = Field(
        default=0.5, ge=0, le=1, alias="KBW_WEKNORA_THRESHOLD", description="least cosine similarity of a card"
    )
    answers: Literal["first", "all"] = Field(
        default="first", alias="KBW_WEKNORA_ANSWERS", description="first | all: what of a card's answers is read"
    )
    timeout_s: float = Field(
        default=15.0, gt=0, alias="KBW_WEKNORA_TIMEOUT_S", description="seconds for one search, probe included"
    )
    max_searches: int = Field(
        default=3, ge=1, le=20, alias="KBW_MATERIAL_MAX_SEARCHES", description="searches of one material task"
    )
    on_zero: Literal["guidance", "local_md"] = Field(
        default="guidance",
        alias="KBW_MATERIAL_ON_ZERO",
        description="guidance | local_md: what stands for a node without a hit",
    )
    local_dir: str = Field(
        default="", alias="KBW_MATERIAL_DIR", description="folder that holds references/素材库/*.md, read only"
    )


class LimitSettings(Area):
    """``analysisLimits`` and the other budgets of the contract."""

    max_selected_pages: int = Field(
        default=6, ge=1, alias="KBW_MAX_SELECTED_PAGES", description="pages one answer may read"
    )
    recommended_selected_pages: str = Field(
        default="1-4", alias="KBW_RECOMMENDED_SELECTED_PAGES", description="what the model is told to aim at"
    )
    max_evidence_page_chars: int = Field(
        default=8_000, ge=1, alias="KBW_MAX_EVIDENCE_PAGE_CHARS", description="characters of one evidence page"
    )
    max_total_evidence_chars: int = Field(
        default=45_000, ge=1, alias="KBW_MAX_TOTAL_EVIDENCE_CHARS", description="characters of all evidence pages"
    )
    max_attachment_chars_per_file: int = Field(
        default=8_000, ge=1, alias="KBW_MAX_ATTACHMENT_CHARS_PER_FILE", description="characters of one attachment"
    )
    max_total_attachment_chars: int = Field(
        default=16_000, ge=1, alias="KBW_MAX_TOTAL_ATTACHMENT_CHARS", description="characters of all attachments"
    )
    max_history_messages: int = Field(
        default=6, ge=0, alias="KBW_MAX_HISTORY_MESSAGES", description="earlier messages the model sees"
    )
    max_history_message_chars: int = Field(
        default=1_500, ge=1, alias="KBW_MAX_HISTORY_MESSAGE_CHARS", description="characters of one earlier message"
    )
    max_catalog_pages: int = Field(
        default=350, ge=0, alias="KBW_MAX_CATALOG_PAGES", description="entries of catalogPages"
    )
    max_ranked_pages: int = Field(
        default=60, ge=0, alias="KBW_MAX_RANKED_PAGES", description="entries of rankedCatalogPages"
    )
    max_starter_cards: int = Field(default=10, ge=0, alias="KBW_MAX_STARTER_CARDS", description="starterPageCards")
    max_starter_card_chars: int = Field(
        default=1_200, ge=1, alias="KBW_MAX_STARTER_CARD_CHARS", description="characters of one card's preview"
    )
    max_index_preview_chars: int = Field(
        default=8_000, ge=0, alias="KBW_MAX_INDEX_PREVIEW_CHARS", description="characters of index.md"
    )
    max_answer_chars: int = Field(
        default=200_000, ge=1, alias="KBW_MAX_ANSWER_CHARS", description="characters of an answer"
    )
    max_source_traces: int = Field(
        default=10, ge=0, alias="KBW_MAX_SOURCE_TRACES", description="source files named for one evidence page"
    )


FORMS: dict[str, str] = {
    "KBW_FILE_MODE": "write an octal mode of up to four digits, like 0640",
    "KBW_HTTP_ADDR": "write host:port, like 127.0.0.1:8765",
    "KBW_REDIS_URL": "begin it with redis://, rediss:// or unix://",
}
"""What a value of a setting with a ``pattern`` must look like, in words."""

AREAS: dict[str, type[Area]] = {
    "gitea": GiteaSettings,
    "shared": SharedSettings,
    "redis": RedisSettings,
    "model": ModelSettings,
    "job": JobSettings,
    "worker": WorkerSettings,
    "trace": TraceSettings,
    "http": HttpSettings,
    "knowledge": KnowledgeSettings,
    "material": MaterialSettings,
    "limits": LimitSettings,
}
