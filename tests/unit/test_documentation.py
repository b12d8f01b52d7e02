"""The documentation names only commands, settings, codes and paths that exist, and says the same in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.errors import Code
from worker.adapters.attachments.faults import CODES as ATTACHMENT_CODES
from worker.app import build_app
from worker.cli import main
from worker.settings import CONFIG_VARIABLE, Settings

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh.md")
PAGES = (*READMES, "ARCHITECTURE.md", "CHANGELOG.md")
NOT_SETTINGS = {"KBW_PYTHON"}
ENGLISH_ONLY_CODE = re.compile(r"\s*(//|/\*\*|#).*")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(name: str) -> list[str]:
    """Code without comments, which are in the page's own language."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text(name), flags=re.MULTILINE | re.DOTALL)
    return ["\n".join(ENGLISH_ONLY_CODE.sub("", line).rstrip() for line in block.splitlines()) for block in blocks]


def inline_code(name: str) -> list[str]:
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text(name))


@pytest.mark.parametrize("name", PAGES)
def test_relative_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+?)\)", text(name))

    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_setting_named_exists(name: str) -> None:
    known = {row.name for row in Settings.load().rows()} | {CONFIG_VARIABLE} | NOT_SETTINGS
    named = set(re.findall(r"\b(?:KBW|GITEA|OPENCLAW|TEAM)_[A-Z_]*[A-Z]\b", text(name)))

    assert named - known - set(Code) == set()


@pytest.mark.parametrize("name", READMES)
def test_the_numbers_told_are_the_defaults(name: str) -> None:
    defaults = {row.name: row.value for row in Settings.load().rows() if row.origin == "default"}
    rows = re.findall(r"^\| (`KBW_[^|]*`) \|[^|]*\| ([\d、,；; ]+) \|$", text(name), flags=re.MULTILINE)
    told = [
        (variable, float(number))
        for cell, numbers in rows
        for variable, number in zip(re.findall(r"KBW_[A-Z_]+", cell), re.findall(r"\d+", numbers), strict=True)
    ]

    assert len(told) == 9
    assert told == [(variable, float(defaults[variable])) for variable, _ in told]


@pytest.mark.parametrize("name", READMES)
def test_every_command_shown_exists(name: str) -> None:
    shown = set(re.findall(r"\./kbw ([a-z]+)", text(name)))

    assert shown - set(main.commands) == set()
    assert set(main.commands) - shown == set()


@pytest.mark.parametrize("name", READMES)
def test_every_option_shown_exists(name: str) -> None:
    for command, rest in re.findall(r"\./kbw ([a-z]+)([^`\n#|]*)", text(name)):
        found = main.commands[command]
        commands = [found, *getattr(found, "commands", {}).values()]  # a group's options are those of its commands
        options = {option for one in commands for parameter in one.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options | {"--help"}


def test_both_readmes_show_the_same_code() -> None:
    assert code_blocks("README.md") == code_blocks("README.zh.md")


def test_both_readmes_name_the_same_things() -> None:
    english, chinese = (
        {code.replace("<shared>", "<共享目录>") for code in inline_code(name) if "…" not in code} for name in READMES
    )

    assert english == chinese


def test_error_codes_told_to_operators_exist() -> None:
    told = {code for name in READMES for code in inline_code(name) if re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code)}
    settings = {row.name for row in Settings.load().rows()} | {CONFIG_VARIABLE}

    assert told - settings - set(Code) - ATTACHMENT_CODES <= {"DEBUG", "INFO", "ERROR"}


def test_the_architecture_names_only_what_is_there() -> None:
    named = re.findall(r"`((?:tasks|worker|config|tests)/[\w./-]+)`", text("ARCHITECTURE.md"))

    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", READMES)
def test_a_celery_sender_is_told_the_prefix_that_our_workers_listen_under(name: str) -> None:
    settings = Settings.load({})
    options = build_app("redis://127.0.0.1:1/0", settings.redis.prefix).conf.broker_transport_options

    assert f'broker_transport_options={{"global_keyprefix": "{options["global_keyprefix"]}"}}' in text(name)
