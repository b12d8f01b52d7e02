"""Settings: one name everywhere, the environment wins, secrets are never shown, mistakes are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.document_settings import TARGET as DOCUMENTED
from tests.document_settings import documented
from worker.setting_areas import AREAS, FORMS
from worker.settings import CONFIG_VARIABLE, Settings, SettingsError, unknown_variables


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in Settings.load().rows():
        monkeypatch.delenv(row.name, raising=False)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)


@pytest.fixture
def from_file(tmp_path: Path) -> Iterator[Any]:
    def load(text: str, **environment: str) -> Settings:
        file = tmp_path / "kbw.toml"
        file.write_text(text, "utf-8")
        return Settings.load({CONFIG_VARIABLE: str(file), **environment})

    return load


def row(settings: Settings, name: str) -> tuple[str, str]:
    found = next(row for row in settings.rows() if row.name == name)
    return found.value, found.origin


def test_defaults_are_the_contracts() -> None:
    settings = Settings.load()

    assert settings.limits.max_selected_pages == 6
    assert settings.limits.max_total_evidence_chars == 45_000
    assert settings.shared.exclude == "attachments,uploads,results,.kbw"
    assert (settings.shared.settle_s, settings.shared.give_up_s) == (2.0, 60.0)
    assert settings.job.retention_days == 30
    assert settings.http.token.get_secret_value() == ""


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(from_file: Any) -> None:
    settings = from_file('KBW_LEASE_S = 30\nKBW_STALL_S = 9.5\nGITEA_ORG = "file"\n', KBW_LEASE_S="45")

    assert row(settings, "KBW_LEASE_S") == ("45.0", "environment")
    assert row(settings, "KBW_STALL_S") == ("9.5", "file")
    assert row(settings, "KBW_MAX_ATTEMPTS") == ("6", "default")


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
def test_a_blank_variable_is_not_set(from_file: Any, blank: str) -> None:
    settings = from_file('GITEA_ORG = "file"\nTEAM_KB_REPO = ""\n', GITEA_ORG=blank, KBW_LEASE_S=blank)

    assert row(settings, "GITEA_ORG") == ("file", "file")
    assert row(settings, "TEAM_KB_REPO") == ("", "default")
    assert row(settings, "KBW_LEASE_S") == ("60.0", "default")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("KBW_LEASES = 30\n", "KBW_LEASES"),
        ("lease_s = 30\n", "lease_s"),
        ("[job]\nKBW_LEASE_S = 30\n", "job"),
        ("KBW_LEASE_S = \n", "kbw.toml"),
        ("KBW_LEASE_S = 'x'\n", "KBW_LEASE_S"),
    ],
)
def test_a_mistake_in_the_file_is_named(from_file: Any, text: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        from_file(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file") as caught:
        Settings.load({CONFIG_VARIABLE: str(tmp_path / "gone.toml")})
    assert str(caught.value).count("gone.toml") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KBW_LEASE_S", "soon"),
        ("KBW_LEASE_S", "0"),
        ("KBW_LEASE_S", "inf"),
        ("KBW_LEASE_S", "nan"),
        ("KBW_MAX_ATTEMPTS", "2.5"),
        ("KBW_MODEL_DRIVER", "gpt"),
        ("KBW_SESSION_MODE", "day"),
        ("KBW_LOG_LEVEL", "LOUD"),
        ("KBW_FILE_MODE", "rw-r--r--"),
        ("KBW_FILE_MODE", "0999"),
        ("KBW_HTTP_ADDR", "foo"),
        ("KBW_HTTP_ADDR", "127.0.0.1:65536"),
    ],
)
def test_a_wrong_value_is_told_with_its_name_and_what_was_found(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load({name: value})

    assert name in str(caught.value)
    assert repr(value) in str(caught.value)


def test_a_form_is_told_in_words_for_every_setting_that_has_one() -> None:
    with_pattern = {
        field.alias
        for area in AREAS.values()
        for field in area.model_fields.values()
        if any(getattr(rule, "pattern", None) for rule in field.metadata)
    }
    assert with_pattern == set(FORMS)
    with pytest.raises(SettingsError, match=r"KBW_FILE_MODE: write an octal mode .*0640 \(found 'rw-'\)"):
        Settings.load({"KBW_FILE_MODE": "rw-"})
    with pytest.raises(SettingsError, match=r"KBW_REDIS_URL: begin it with redis://"):
        Settings.load({"KBW_REDIS_URL": "http://redis"})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("KBW_HTTP_SERVICE_HOST", False),
        ("KBW_SERVICE_PORT_HTTP", False),
        ("KBW_REDIS_PORT", False),
        ("KBW_PORT_8765_TCP_ADDR", False),
        ("KBW_REDIS_PORT_6379_TCP", False),
        ("KBW_MAX_ATEMPTS", True),
        ("KBW_REDIS_PORTS", True),
        ("KBW_HTTP_HOST", True),
    ],
)
def test_what_kubernetes_sets_for_a_service_is_no_misspelt_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, told: bool
) -> None:
    monkeypatch.setenv(name, "tcp://10.0.0.1:8765")

    assert (name in unknown_variables()) is told


SECRETS = ("GITEA_BOT_TOKEN", "OPENCLAW_GATEWAY_TOKEN", "KBW_LLM_API_KEY", "KBW_HTTP_TOKEN")


def test_secrets_are_shown_only_as_set_or_not_set() -> None:
    settings = Settings.load({name: f"secret-of-{name}" for name in SECRETS} | {"GITEA_URL": "https://g"})

    assert [row(settings, name)[0] for name in SECRETS] == ["set"] * 4
    assert row(Settings.load(), "KBW_HTTP_TOKEN")[0] == "not set"
    shown = str(settings.rows()) + str(settings) + repr(settings)
    assert not any(f"secret-of-{name}" in shown for name in SECRETS)
    assert {f"secret-of-{name}" for name in SECRETS} == set(settings.secrets())


@pytest.mark.parametrize("name", ["KBW_REDIS_URL", "GITEA_URL", "KBW_LLM_BASE_URL"])
def test_a_password_inside_a_url_is_a_secret_too(name: str) -> None:
    settings = Settings.load({name: "redis://user:p%40ss-word@host:6379/0"})

    assert row(settings, name)[0] == "redis://user:***@host:6379/0"
    assert {"p%40ss-word", "p@ss-word"} <= set(settings.secrets())


def test_a_password_without_a_user_is_one_as_well() -> None:
    assert Settings.load({"KBW_REDIS_URL": "redis://:hush-hush@host"}).secrets() == ["hush-hush"]


def test_a_collectors_header_is_a_secret_as_it_is_written_and_as_it_is_sent() -> None:
    found = Settings.load(
        {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20hush-hush, x-team=blue-team"}
    ).secrets()

    assert {"Bearer%20hush-hush", "Bearer hush-hush", "blue-team"} <= set(found)


def test_every_setting_says_what_it_means() -> None:
    rows = Settings.load().rows()

    assert [r.name for r in rows if len(r.meaning) < 8] == []
    assert len({r.name for r in rows}) == len(rows)
    assert {r.name for r in rows} >= {
        "GITEA_URL", "GITEA_BOT_TOKEN", "GITEA_BOT_USERNAME", "GITEA_ORG", "TEAM_KB_REPO", "OPENCLAW_SHARED_DIR",
        "KBW_REDIS_URL", "KBW_STATE_DIR", "KBW_CACHE_DIR", "OPENCLAW_GATEWAY_URL", "OPENCLAW_GATEWAY_TOKEN",
        "KBW_OPENCLAW_AGENT", "KBW_LLM_BASE_URL", "KBW_LLM_API_KEY", "KBW_LLM_MODEL", "KBW_MODEL_DRIVER",
        "KBW_HTTP_ADDR", "KBW_HTTP_TOKEN", "KBW_ALLOWED_ROOTS", "KBW_RETENTION_DAYS", "KBW_ALLOWED_REPOS",
        "KBW_INTAKE_EXCLUDE", "KBW_FILE_MODE", "KBW_SESSION_MODE",
    }  # fmt: skip


def test_the_documented_file_holds_every_setting_with_its_default_and_meaning() -> None:
    assert DOCUMENTED.read_text("utf-8") == documented(), "run `python -m tests.document_settings`"


def test_the_documented_file_can_be_used_as_it_is() -> None:
    settings = Settings.load({CONFIG_VARIABLE: str(DOCUMENTED)})

    assert [(r.name, r.value) for r in settings.rows()] == [(r.name, r.value) for r in Settings.load().rows()]
