"""Reads all settings, from the environment and a file; the only reader of the environment; constructs no adapter.

One name everywhere: the environment variable's name is also the key in the optional TOML file (``KBW_CONFIG``);
the environment wins. Blank values count as not set.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import unquote

from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo

from tasks.knowledge.secrets import SECRET_NAME, allow_list
from worker.setting_areas import (
    AREAS,
    FORMS,
    GiteaSettings,
    HttpSettings,
    JobSettings,
    KnowledgeSettings,
    LimitSettings,
    MaterialSettings,
    ModelSettings,
    RedisSettings,
    SharedSettings,
    TraceSettings,
    WorkerSettings,
)

CONFIG_VARIABLE = "KBW_CONFIG"
_LEAST_SECRET = 8
_OF_KUBERNETES = re.compile(r"KBW_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""What Kubernetes sets in each pod for a service ``kbw-…``: nobody's spelling mistake."""
_URL_PASSWORD = re.compile(r"(?P<before>\w+://[^/@:\s]*:)(?P<password>[^/@\s]+)@")


class SettingsError(Exception):
    """A setting is wrong; the text names it, what was found (never a secret's value) and what is allowed."""


@dataclass(frozen=True)
class SettingRow:
    """One line of ``kbw doctor --settings``; a secret's value is shown as ``set`` or ``not set``."""

    name: str
    value: str
    origin: Literal["environment", "file", "default"]
    meaning: str


@dataclass(frozen=True)
class Settings:
    """All areas. Build it with :meth:`load`."""

    gitea: GiteaSettings
    shared: SharedSettings
    redis: RedisSettings
    model: ModelSettings
    job: JobSettings
    worker: WorkerSettings
    trace: TraceSettings
    http: HttpSettings
    knowledge: KnowledgeSettings
    material: MaterialSettings
    limits: LimitSettings
    origins: dict[str, Literal["environment", "file"]]

    @classmethod
    def load(cls, overrides: dict[str, str] | None = None) -> Self:
        """From the environment, then the file of ``KBW_CONFIG``, then the defaults.

        ``overrides`` (tests, command options) win over all. Raises :class:`SettingsError`.
        """
        env = {**os.environ, **(overrides or {})}
        document = _read_file(env.get(CONFIG_VARIABLE, ""))
        values: dict[str, Any] = {}
        origins: dict[str, Literal["environment", "file"]] = {}
        for area, name in _names():
            if env.get(name, "").strip():
                values.setdefault(area, {})[name], origins[name] = env[name], "environment"
            elif name in document and document[name] != "":
                values.setdefault(area, {})[name], origins[name] = document[name], "file"
        try:
            areas = {
                name: area.model_validate(values[name]) if name in values else area.model_construct()
                for name, area in AREAS.items()
            }
        except ValidationError as error:
            raise SettingsError(_describe(error)) from error
        return cls(origins=origins, **areas)  # type: ignore[arg-type]  # AREAS names each with its own type

    def rows(self) -> list[SettingRow]:
        """Every setting with value, origin and meaning."""
        rows = []
        for area, name, field_name, field in _fields():
            value = getattr(getattr(self, area), field_name)
            shown = (
                ("set" if value.get_secret_value() else "not set") if isinstance(value, SecretStr) else _shown(value)
            )
            rows.append(SettingRow(name, shown, self.origins.get(name, "default"), field.description or ""))
        return rows

    def secrets(self) -> list[str]:
        """Every configured secret, for the mask; a password inside a URL is one too."""
        values = [getattr(getattr(self, area), field_name) for area, _, field_name, _ in _fields()]
        secrets = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
        secrets += [part for value in values if isinstance(value, str) for part in _passwords(value)]
        headers = [part.partition("=")[2].strip() for part in listed(self.trace.headers.get_secret_value())]
        secrets += [form for value in headers for form in (value, unquote(value))]
        secrets += _secrets_of_sources(self.knowledge)
        return [secret for secret in dict.fromkeys(secrets) if secret]


def _fields() -> Iterator[tuple[str, str, str, FieldInfo]]:
    for area, model in AREAS.items():
        for field_name, field in model.model_fields.items():
            yield area, field.alias or field_name, field_name, field


def _names() -> Iterator[tuple[str, str]]:
    return ((area, name) for area, name, _, _ in _fields())


def _read_file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        document = tomllib.loads(Path(path).expanduser().read_text("utf-8"))
    except OSError as error:  # its own text names the path once more
        raise SettingsError(f"{CONFIG_VARIABLE}={path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{CONFIG_VARIABLE}={path}: {error}") from error
    unknown = sorted(set(document) - {name for _, name in _names()})
    if unknown:
        raise SettingsError(f"{path}: no such setting: {', '.join(unknown)}; see `kbw doctor --settings`")
    return document


def _passwords(text: str) -> set[str]:
    """The password in a URL, as it stands there and decoded."""
    found = _URL_PASSWORD.search(text)
    return {found["password"], unquote(found["password"])} if found else set()


def _shown(value: object) -> str:
    return _URL_PASSWORD.sub(lambda found: f"{found['before']}***@", str(value))


def _describe(error: ValidationError) -> str:
    secret = {name for _, name, _, field in _fields() if field.annotation is SecretStr}
    told = []
    for item in error.errors(include_url=False):
        name = ".".join(map(str, item["loc"]))
        found = "" if name in secret else f" (found {_shown(item['input'])!r})"
        allowed = FORMS.get(name) if item["type"] == "string_pattern_mismatch" else None
        told.append(f"{name}: {allowed or item['msg']}{found}")
    return "; ".join(told)


def unknown_variables() -> dict[str, str]:
    """Variables that look like a setting of ours and are none, each with the name that was probably meant, or ``""``.

    They may belong to somebody else (a knowledge source's variable may begin with KBW_ too), so they are no error.
    """
    known = {name for _, name in _names()}
    found = {}
    for name in sorted(set(os.environ) - known - {CONFIG_VARIABLE, "KBW_PYTHON"}):  # the last is the start script's
        if _OF_KUBERNETES.fullmatch(name):
            continue
        near = next(iter(get_close_matches(name, known, n=1, cutoff=0.85)), "")
        if name.startswith("KBW_") or near:
            found[name] = near
    return found


def environment_for_children(changes: dict[str, str] | None = None) -> dict[str, str]:
    """The environment handed to our own processes, so that they read the same settings, with ``changes``."""
    return {**os.environ, **(changes or {})}


def source_variable(name: str) -> str | None:
    """A variable that a knowledge source names, as it is now. The allow-list is the caller's business."""
    return os.environ.get(name)


def _secrets_of_sources(knowledge: KnowledgeSettings) -> list[str]:
    """What sources may take from the environment, to be masked; plain addresses and short words stay readable."""
    allowed = allow_list(listed(knowledge.env))
    found = []
    for name, value in os.environ.items():
        if not allowed(name) or not value.strip():
            continue
        if SECRET_NAME.search(name) or (len(value) >= _LEAST_SECRET and "://" not in value):
            found.append(value.strip())
        found += _passwords(value)
    return found


def listed(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated setting."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def config_dir(settings: Settings) -> Path:
    """Word lists, pipelines, the demo: the configured folder, else the checkout's, else the installed one."""
    if settings.worker.config_dir:
        return Path(settings.worker.config_dir).expanduser()
    checkout = Path(__file__).resolve().parents[1] / "config"
    return checkout if checkout.is_dir() else Path(sys.prefix) / "share" / "kbw" / "config"
