"""``compose/`` names only commands, settings, metrics and files that exist, and keeps its own promises.

Docker itself is not needed: the files are read, and what they say is held against the code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tasks.queues import QUEUES
from worker.cli import main
from worker.metrics import BACKLOG_CLASSES, Snapshot, metrics_of
from worker.settings import CONFIG_VARIABLE, Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose"
MONITORING = COMPOSE / "monitoring"
IMAGE_HOME = "/opt/kbw/"
OF_THE_IMAGE = {"PATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
OF_COMPOSE = {
    "BIND_ADDRESS", "GITEA_ROOT_URL", "GRAFANA_ADMIN_PASSWORD", "IMAGE_TAG", "REDIS_PASSWORD", "RUN_AS", "SHARED_DIR",
}  # fmt: skip
UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}


def text(name: str) -> str:
    return (COMPOSE / name).read_text("utf-8")


def services(name: str) -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text(name))
    return document["services"]


def fleet() -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services("compose.yaml").items() if "build" in service}


def known_settings() -> set[str]:
    return {row.name for row in Settings.load().rows()} | {CONFIG_VARIABLE}


def dockerfile() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, continuation lines joined."""
    lines = "\n".join(line for line in text("Dockerfile").splitlines() if not line.startswith("#"))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in re.sub(r"\\\n\s*", "", lines).splitlines() if line]


def manifests() -> list[dict[str, Any]]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text("kubernetes.md"), re.DOTALL)]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(text("monitoring/alerts.yml"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    shown = json.loads(text("monitoring/grafana/dashboards/kbw.json"))["panels"]
    return [panel for panel in shown if panel["type"] != "row"]


def parse_command(arguments: list[str]) -> click.Context:
    """As ``kbw`` itself would read it, without running it; wrong usage raises."""
    context: click.Context = click.Context(main)
    command: click.Command = main
    rest = list(arguments)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = click.Context(command, parent=context, info_name=name)
    command.parse_args(context, rest)
    return context


# ---------------------------------------------------------------- commands


@pytest.mark.parametrize("name", ["intake", "io", "llm", "commit"])
def test_every_container_runs_a_command_that_exists(name: str) -> None:
    context = parse_command(fleet()[name]["command"])

    assert context.info_name == ("intake" if name == "intake" else "worker")
    assert context.params.get("kind", "intake") == name


def test_every_class_of_workers_has_its_service_and_there_is_no_other() -> None:
    assert set(fleet()) == {"intake", *BACKLOG_CLASSES.values()}


def test_health_checks_are_commands_that_exist() -> None:
    instructions = dict(dockerfile())
    image_check = json.loads(instructions["HEALTHCHECK"].partition("CMD ")[2])
    overridden = [service["healthcheck"]["test"][1:] for service in fleet().values() if "healthcheck" in service]
    probes = [
        container[probe]["exec"]["command"]
        for manifest in manifests()
        if manifest["kind"] == "Deployment"
        for container in manifest["spec"]["template"]["spec"]["containers"]
        for probe in ("readinessProbe", "livenessProbe")
    ]

    for check in [image_check, *overridden, *probes]:
        assert check[0] == "kbw"
        assert parse_command(check[1:]).info_name == "health"


def test_the_image_starts_the_installed_command_and_as_what_it_says() -> None:
    instructions = dict(dockerfile())

    assert json.loads(instructions["ENTRYPOINT"]) == ["tini", "--", "kbw"]
    assert parse_command(json.loads(instructions["CMD"])).info_name == "up"
    assert f"{IMAGE_HOME}bin:" in instructions["ENV"]


def prose_commands() -> Iterator[tuple[str, str]]:
    for name in ("README.md", "kubernetes.md", ".env.example"):
        for quoted in re.findall(r"`(?:docker compose exec intake )?kbw ([a-z][^`\n]*)`", text(name)):
            yield name, quoted
    for line in re.findall(r"exec intake kbw ([^#\n`]*)", text("README.md")):
        yield "README.md", line
    for rule in alerts():
        for told in re.findall(r"kbw ((?:list|show|dlq|replay|recover|prune|health|doctor)\b[^;:,.(]*)", str(rule)):
            yield rule["alert"], told


@pytest.mark.parametrize(("place", "told"), sorted(set(prose_commands())))
def test_commands_told_to_operators_exist(place: str, told: str) -> None:
    words = told.split()
    command: click.Command = main
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]

    assert command is not main, f"{place}: kbw {told}"
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options, f"{place}: kbw {told}"


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize("name", ["compose.yaml", "compose.dev.yaml"])
def test_every_variable_given_to_our_containers_is_a_setting(name: str) -> None:
    given = {
        variable
        for service_name in fleet()
        for variable in services(name).get(service_name, {}).get("environment") or {}
    }

    assert len(given) > 5
    assert given - known_settings() == set()


@pytest.mark.parametrize("name", ["compose.yaml", "compose.dev.yaml"])
def test_every_variable_asked_of_the_operator_is_explained(name: str) -> None:
    asked = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", text(name)))
    example = set(re.findall(r"^#?([A-Z_]+)=", text(".env.example"), re.MULTILINE))

    assert asked - known_settings() <= OF_COMPOSE
    assert asked - example - {"IMAGE_TAG", "GITEA_ROOT_URL"} == set()


def test_the_example_names_only_settings_and_holds_no_secret() -> None:
    lines = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", text(".env.example"), re.MULTILINE))

    assert set(lines) - known_settings() <= OF_COMPOSE
    assert {name: value for name, value in lines.items() if value and re.search("TOKEN|PASSWORD|KEY", name)} == {}


def test_the_image_sets_only_settings() -> None:
    set_by_image = {
        name for kind, rest in dockerfile()[5:] if kind == "ENV" for name in re.findall(r"([A-Z_]+)=", rest)
    }

    assert set_by_image - OF_THE_IMAGE - {"PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_CACHE_DIR"} <= known_settings()


@pytest.mark.parametrize("name", ["README.md", "kubernetes.md"])
def test_the_pages_name_only_settings_that_exist(name: str) -> None:
    named = set(re.findall(r"\b(?:KBW|OPENCLAW|GITEA|TEAM)_[A-Z_]*[A-Z]\b", text(name)))

    assert named - known_settings() == set()


def test_kubernetes_gives_only_settings() -> None:
    given = {
        variable["name"]
        for manifest in manifests()
        if manifest["kind"] == "Deployment"
        for container in manifest["spec"]["template"]["spec"]["containers"]
        for variable in container["env"]
    }

    assert given
    assert given <= known_settings()


# ---------------------------------------------------------------- promises of the containers


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def test_a_container_is_killed_only_after_its_workers_had_their_time() -> None:
    for name, service in fleet().items():
        assert seconds(service["stop_grace_period"]) > service["environment"]["KBW_SHUTDOWN_S"], name
    for manifest in manifests():
        if manifest["kind"] == "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            given = {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"]}
            assert pod["terminationGracePeriodSeconds"] > float(given["KBW_SHUTDOWN_S"])


def test_our_containers_can_be_scaled_and_write_only_where_they_should() -> None:
    for name, service in fleet().items():
        assert "container_name" not in service
        assert ("ports" in service) == (name == "intake")
        assert service["read_only"]
        assert service["tmpfs"] == ["/tmp"]
        assert [volume.rpartition(":")[2] for volume in service["volumes"]] == ["/srv/kb-shared", "/var/cache/kbw"]
        assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}


@pytest.mark.parametrize("name", sorted(services("compose.yaml")))
def test_every_service_is_restarted_limited_watched_and_without_privileges(name: str) -> None:
    service = services("compose.yaml")[name]

    assert service["restart"] == "unless-stopped"
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "healthcheck" in service or name in fleet()  # ours have the image's
    assert all(port.startswith("${BIND_ADDRESS:-127.0.0.1}:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", ["compose.yaml", "compose.dev.yaml"])
def test_images_are_pinned(name: str) -> None:
    images = {service["image"] for service in services(name).values() if "image" in service}

    assert len(images) > 1
    assert [
        image for image in images if not re.fullmatch(r"[\w./-]+:(\$\{\w+:-)?v?\d+\.\d+\.\d+[\w.-]*\}?", image)
    ] == []


def test_our_image_carries_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)

    assert version
    assert {service["image"] for service in fleet().values()} == {f"kb-query-worker:${{IMAGE_TAG:-{version[1]}}}"}


def test_the_password_of_redis_stands_in_no_argument_list() -> None:
    for service in services("compose.yaml").values():
        assert "REDIS_PASSWORD" not in str(service.get("command")), service
        assert "REDIS_PASSWORD" not in str(service.get("healthcheck")), service


def test_redis_keeps_records_and_refuses_before_it_is_killed() -> None:
    lines = [line.split() for line in text("redis/valkey.conf").splitlines() if line and not line.startswith("#")]
    given = {line[0]: line[1] for line in lines}
    limit = services("compose.yaml")["redis"]["deploy"]["resources"]["limits"]["memory"]

    assert given["appendonly"] == "yes"
    assert given["maxmemory-policy"] == "noeviction"
    assert int(given["maxmemory"].removesuffix("mb")) * 2**20 < int(limit[:-1]) * UNITS[limit[-1]]


def test_only_the_fleet_and_its_exporter_reach_redis() -> None:
    document = yaml.safe_load(text("compose.yaml"))

    assert document["networks"]["records"]["internal"]
    assert {name for name, service in document["services"].items() if "records" in service["networks"]} == {
        "redis", "redis-exporter", *fleet(),
    }  # fmt: skip


def test_files_mounted_from_the_checkout_are_there() -> None:
    mounted = [
        volume.split(":")[0]
        for name in ("compose.yaml", "compose.dev.yaml")
        for service in services(name).values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    ]

    assert len(mounted) > 5
    assert [path for path in mounted if not (COMPOSE / path).exists()] == []


def test_monitoring_is_asked_for() -> None:
    optional = {name for name, service in services("compose.yaml").items() if service.get("profiles")}

    assert optional == {"prometheus", "grafana", "redis-exporter"}


# ---------------------------------------------------------------- the demo's override


def test_the_override_answers_from_recorded_replies_that_the_image_has() -> None:
    for name in fleet():
        given = services("compose.dev.yaml")[name]["environment"]
        assert given["KBW_MODEL_DRIVER"] == "recorded"
        inside = given["KBW_RECORDED_REPLIES"].removeprefix(f"{IMAGE_HOME}share/kbw/")
        assert (ROOT / inside).is_file()


def test_the_override_changes_no_service_that_is_not_there() -> None:
    assert set(services("compose.dev.yaml")) - set(services("compose.yaml")) == {"seed", "ask"}


def test_the_production_file_never_uses_recorded_replies() -> None:
    assert "recorded" not in text("compose.yaml") + text("Dockerfile") + text(".env.example")


# ---------------------------------------------------------------- the image


def test_the_image_is_built_from_locks_without_a_compiler_and_runs_without_root() -> None:
    instructions = dockerfile()
    installs = [rest for kind, rest in instructions if kind == "RUN" and "install" in rest]
    last = len(instructions) - 1 - [kind for kind, _ in instructions][::-1].index("FROM")
    final = instructions[last:]

    assert all("--require-hashes" in rest for rest in installs if "requirements" in rest)
    assert all("--only-binary :all:" in rest for rest in installs if "requirements" in rest)
    assert [rest for kind, rest in final if kind == "USER"] == ["10001:10001"]
    packages = re.findall(r"install -y --no-install-recommends ([\w -]+)", str(final))
    assert [package.split() for package in packages] == [["git", "tini"]]
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-bookworm", dict(instructions[:1])["ARG"])
    assert [rest.split()[0] for kind, rest in instructions if kind == "FROM"] == ["${PYTHON_IMAGE}"] * 2


def test_the_folder_it_starts_in_is_empty_and_nobody_can_write_there() -> None:
    final = dockerfile()

    assert [rest for kind, rest in final if kind == "WORKDIR"][-1] == "/opt/empty"
    assert any("install -d /opt/empty" in rest for kind, rest in final if kind == "RUN")
    assert any("PYTHONSAFEPATH=1" in rest for kind, rest in final if kind == "ENV")


def test_what_is_copied_is_there_and_let_through_by_dockerignore() -> None:
    rules = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = [
        source
        for kind, rest in dockerfile()
        if kind == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]

    assert "*" in rules
    assert {path for path in copied if not (ROOT / path).exists()} == set()
    assert set(copied) == allowed - {"compose"}


def lock_entries(path: Path) -> dict[str, str]:
    found = re.split(r"^(?=[A-Za-z0-9])", path.read_text("utf-8"), flags=re.MULTILINE)
    return {entry.split("==")[0]: entry.split("\n#")[0].strip() for entry in found if "==" in entry}


def test_what_builds_the_wheel_is_what_the_tests_were_run_with() -> None:
    building, developing = (
        lock_entries(COMPOSE / "requirements-build.lock"),
        lock_entries(ROOT / "requirements-dev.lock"),
    )

    assert "hatchling" in building
    assert {name: entry for name, entry in building.items() if developing.get(name) != entry} == {}


# ---------------------------------------------------------------- monitoring


def metric_names() -> set[str]:
    """All sample names that ``/metrics`` can show."""
    seen = Snapshot(
        now=0.0, counts={}, open_jobs=[], figures={}, endpoints=[], paused=[], dead_jobs=0, dead_entries=0,
        queues=QUEUES, skills=frozenset(), version="0",
    )  # fmt: skip
    names = set()
    for metric in metrics_of(seen):
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {metric.name + suffix for suffix in suffixes}
    return names


def used_metrics(expression: str) -> set[str]:
    return set(re.findall(r"\bkbw_\w+", expression))


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in alerts())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    for manifest in manifests():
        if manifest["kind"] == "ScaledObject":
            yield from (trigger["metadata"]["query"] for trigger in manifest["spec"]["triggers"])


def test_alerts_dashboard_and_scaling_use_only_metrics_that_exist() -> None:
    used = set().union(*(used_metrics(expression) for expression in expressions()))

    assert len(used) > 25
    assert used - metric_names() == set()


def test_the_pages_and_the_alerts_tests_use_only_metrics_that_exist() -> None:
    used = used_metrics(text("README.md") + text("kubernetes.md") + text("monitoring/alerts.test.yml") + str(alerts()))

    assert used - metric_names() == set()


def test_the_alert_for_a_missing_class_knows_the_stages_of_each_class() -> None:
    expression = next(rule["expr"] for rule in alerts() if rule["alert"] == "KbwNoWorkerOfClass")
    parts = re.findall(
        r'kbw_backlog\{class="(\w+)"\}.*?stage=~?"([\w|]+)".*?gate="queue:([\w.]+)"', expression, re.DOTALL
    )

    assert {kind: queue for kind, _, queue in parts} == {kind: queue for queue, kind in BACKLOG_CLASSES.items()}
    for _, stages, queue in parts:
        assert set(stages.split("|")) == {stage for stage, its in QUEUES.items() if its == queue}


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    rows = dict(re.findall(r"^\| `(Kbw\w+)` \| (.+) \|$", text("README.md"), re.MULTILINE))

    assert {rule["alert"] for rule in alerts()} == set(rows)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "runbook"}
        assert len(rule["annotations"]["runbook"]) > 60


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    fired = set(re.findall(r'exp_samples: \[\{labels: \'\{alertname="(\w+)"', text("monitoring/alerts.test.yml")))

    assert fired == {rule["alert"] for rule in alerts()}


def test_prometheus_scrapes_services_and_ports_that_are_there() -> None:
    given = yaml.safe_load(text("monitoring/prometheus.yml"))
    targets = [
        target for job in given["scrape_configs"] for entry in job["static_configs"] for target in entry["targets"]
    ]
    address = fleet()["intake"]["environment"]["KBW_HTTP_ADDR"]

    assert f"intake:{address.rpartition(':')[2]}" in targets
    assert {target.split(":")[0] for target in targets} - {"localhost"} <= set(services("compose.yaml"))
    assert all((MONITORING / name).is_file() for name in given["rule_files"])


def test_the_dashboard_asks_the_data_source_that_is_provisioned() -> None:
    sources = yaml.safe_load(text("monitoring/grafana/provisioning/datasources/prometheus.yml"))["datasources"]

    assert {panel["datasource"]["uid"] for panel in panels()} == {source["uid"] for source in sources}
    assert len({panel["id"] for panel in panels()}) == len(panels()) > 15
