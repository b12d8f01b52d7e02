"""What may stand in knowledge.yaml and pipelines.yaml, and what is said about what may not: file, line, cure."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tasks.knowledge.findings import Finding
from tasks.knowledge.spec import KnowledgeSpec, json_schema
from tasks.knowledge.validate import Checked, SourceText, check
from tests.unit.knowledge.sample import NOTHING_MOUNTED, SEED_SAMPLE
from worker.outbound import AllowedHosts

NODES = {"kb_query": dict.fromkeys(("select", "answer"), frozenset({"context_knowledge"}))}
VECTORS = SEED_SAMPLE.replace('provider_type: "SEMANTIC_API"', 'provider_type: "VDB_DIRECT"')
TWO = """\
knowledge:
  - &first
    id: one
    provider_type: SEMANTIC_API
    config: {endpoint: https://kb.example.com, method: POST, timeout: 15}
    injection: {target_variable: context_knowledge}
  - <<: *first
    id: two
"""


def checked(knowledge: str = SEED_SAMPLE, pipelines: str = NOTHING_MOUNTED) -> Checked:
    return check(
        SourceText("knowledge.yaml", knowledge),
        SourceText("pipelines.yaml", pipelines),
        nodes=NODES,
        reserved=frozenset({"data"}),
        env_allowed=lambda name: name.startswith("KB_"),
    )


def only(found: Checked, code: str) -> Finding:
    findings = [finding for finding in found.findings if finding.code == code]
    assert len(findings) == 1, found.findings
    assert findings[0].cure
    return findings[0]


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_the_seeds_sample_is_valid_unchanged() -> None:
    found = checked()

    assert found.findings == []
    spec: KnowledgeSpec = found.knowledge.knowledge[0]
    assert (spec.id, spec.config.timeout, spec.injection.max_tokens) == ("market_trends_kb", 15, 1500)


def test_parameters_of_a_store_mean_nothing_to_a_service() -> None:
    found = checked(SEED_SAMPLE.replace("top_k: 5", "top_k: -1").replace("threshold: 0.85", "threshold: high"))

    assert found.findings == []
    assert found.knowledge.knowledge[0].config.vdb_params is None


def test_a_threshold_that_the_model_never_reaches_is_a_warning_not_an_error() -> None:
    finding = only(checked(VECTORS), "THRESHOLD_UNUSUAL")

    assert (finding.level, finding.file, finding.line) == ("warning", "knowledge.yaml", line_of(VECTORS, "threshold:"))
    assert "calibrate market_trends_kb" in finding.cure


@pytest.mark.parametrize(
    ("listed", "told"),
    [((), True), (("other.corp",), True), (("kb.corp:80",), True), (("kb.corp",), False), (("*.corp:8080",), False)],
)
def test_plain_http_to_a_listed_host_is_what_somebody_wanted(listed: tuple[str, ...], told: bool) -> None:
    plain = re.sub(r"https://[^/]+/", "http://kb.corp:8080/", SEED_SAMPLE)
    found = check(
        SourceText("knowledge.yaml", plain),
        SourceText("pipelines.yaml", NOTHING_MOUNTED),
        nodes=NODES,
        plain_allowed=AllowedHosts(listed).names,
    )

    assert ("PLAIN_HTTP" in [finding.code for finding in found.findings]) is told


@pytest.mark.parametrize(
    ("old", "new", "code", "level", "place"),
    [
        ("Bearer {{env.KB_SERVICE_TOKEN}}", "Bearer sk-live-123456", "LITERAL_SECRET", "error", "Authorization:"),
        ("Bearer {{env.KB_SERVICE_TOKEN}}", "Bearer x{{env.KB_SERVICE_TOKEN}}", "LITERAL_SECRET", "error", "Authoriz"),
        ("Authorization: ", "X-Api-Key: sk ", "LITERAL_SECRET", "error", "X-Api-Key:"),
        ("Authorization: ", "x-auth-token: sk ", "LITERAL_SECRET", "error", "x-auth-token:"),
        ("https://kb", "https://me:pass@kb", "LITERAL_SECRET", "error", "endpoint:"),
        ("/search", "/search?api_key=abc", "LITERAL_SECRET", "error", "endpoint:"),
        ("{{env.KB_SERVICE_TOKEN}}", "{{env.HOME}}", "ENV_NOT_ALLOWED", "error", "Authorization:"),
        ("{{env.KB_SERVICE_TOKEN}}", "{{env.KB_X}}{{secret}}", "UNKNOWN_PLACEHOLDER", "error", "Authorization:"),
        ("      method:", "      request: {k: '{{env.KB_X}}'}\n      method:", "ENV_NOT_HERE", "error", "request:"),
        (
            "      method:",
            "      request: {a: [{k: '{{env.KB_X}}'}]}\n      method:",
            "ENV_NOT_HERE",
            "error",
            "request:",
        ),
        ("      method:", "      request: {a: [{token: sk-1}]}\n      method:", "LITERAL_SECRET", "error", "request:"),
        ("https://", "http://", "PLAIN_HTTP", "warning", "endpoint:"),
        ("https://", "ftp://", "BAD_ENDPOINT", "error", "endpoint:"),
        ("timeout: 15", "timeout: 9", "TIMEOUT_UNUSUAL", "warning", "timeout:"),
        ("timeout: 15", "timeout: 31", "TIMEOUT_UNUSUAL", "warning", "timeout:"),
        ("timeout: 15", "timeout: 15.5", "WRONG_VALUE", "error", "timeout:"),
        ("timeout: 15", "timeout: 0", "WRONG_VALUE", "error", "timeout:"),
        ("timeout: 15", "timout: 15", "UNKNOWN_FIELD", "error", "timout:"),
        ("timeout: 15", "timeout: 15\n      timeout: 16", "DOUBLE_KEY", "error", "timeout: 16"),
        ('method: "POST"', "method: PUT", "WRONG_VALUE", "error", "method:"),
        ('format: "markdown"', "format: html", "WRONG_VALUE", "error", "format:"),
        ("max_tokens: 1500", "max_tokens: 0", "WRONG_VALUE", "error", "max_tokens:"),
        ('"context_knowledge"', '"market_notes"', "UNUSED_VARIABLE", "error", "target_variable:"),
        ('      method: "POST"\n', "", "MISSING_FIELD", "error", "config:"),
        ("      method:", "      adapter: dify\n      method:", "MISSING_REQUEST_FIELD", "error", "adapter:"),
        ("      method:", "      fallback: [none]\n      method:", "UNKNOWN_FALLBACK", "error", "fallback:"),
        ("      method:", "      fallback: [market_trends_kb]\n      method:", "FALLBACK_LOOP", "error", "fallback:"),
        ("      method:", "      on_zero: fallback\n      method:", "NO_FALLBACK", "error", "on_zero:"),
        ("      method:", "      on_zero: local_md\n      method:", "IGNORED_FIELD", "warning", "on_zero:"),
        ("knowledge:\n", "knowledge: [\n", "NOT_YAML", "error", None),
    ],
)
def test_what_is_wrong_is_told_with_line_and_cure(old: str, new: str, code: str, level: str, place: str | None) -> None:
    text = SEED_SAMPLE.replace(old, new, 1)

    finding = only(checked(text), code)

    assert finding.level == level
    assert finding.file == "knowledge.yaml"
    if place:
        assert finding.line == line_of(text, place)


def test_no_finding_repeats_a_secret() -> None:
    text = SEED_SAMPLE.replace("{{env.KB_SERVICE_TOKEN}}", "sk-live-123456").replace("https://kb", "https://u:pw77@kb")

    told = "".join(map(str, checked(text).findings))

    assert "LITERAL_SECRET" in told
    assert "sk-live" not in told
    assert "pw77" not in told


def test_an_unknown_field_gets_the_name_that_was_meant() -> None:
    text = SEED_SAMPLE.replace("endpoint:", "endpont:")

    assert only(checked(text), "UNKNOWN_FIELD").cure == "did you mean endpoint?"


def test_all_faults_of_a_source_are_told_at_once() -> None:
    text = VECTORS[: VECTORS.index("      # has a meaning")] + VECTORS[VECTORS.index("    injection:") :]
    text = text.replace("method:", "methud:").replace("{{env.KB_SERVICE_TOKEN}}", "sk").replace("context_kno", "kno")

    codes = {finding.code for finding in checked(text).errors}

    assert codes == {"UNKNOWN_FIELD", "MISSING_FIELD", "LITERAL_SECRET", "UNUSED_VARIABLE"}
    assert any("vdb_params" in finding.message for finding in checked(text).errors)


@pytest.mark.parametrize("field", ["endpoint", "method", "timeout"])
def test_what_stands_in_for_a_missing_field_is_not_judged(field: str) -> None:
    text = "\n".join(line for line in SEED_SAMPLE.splitlines() if f"{field}:" not in line)

    assert [finding.code for finding in checked(text).findings] == ["MISSING_FIELD"]


def test_a_wrong_value_hides_no_other_fault_and_is_told_once() -> None:
    text = SEED_SAMPLE.replace('"context_knowledge"', '"no name"').replace("timeout: 15", "timeout: 5")
    text = text.replace("Bearer {{env.KB_SERVICE_TOKEN}}", "Bearer sk-1")

    found = [(finding.level, finding.code) for finding in checked(text).findings]

    assert sorted(found) == [("error", "LITERAL_SECRET"), ("error", "WRONG_VALUE"), ("warning", "TIMEOUT_UNUSUAL")]


@pytest.mark.parametrize("field", ["index_name", "top_k", "threshold"])
def test_a_store_needs_its_parameters(field: str) -> None:
    text = "\n".join(line for line in VECTORS.splitlines() if field not in line)

    assert only(checked(text), "MISSING_FIELD").where.endswith(f"vdb_params.{field}")


@pytest.mark.parametrize(
    ("value", "fine"),
    [("0", True), ("1", True), ("1.01", False), ("-0.1", False), (".nan", False), ("true", False), ("'0.5'", False)],
)
def test_a_threshold_lies_between_0_and_1(value: str, fine: bool) -> None:
    assert bool(checked(VECTORS.replace("0.85", value)).errors) is not fine


def test_two_sources_of_one_id_are_one_too_many() -> None:
    assert only(checked(TWO.replace("id: two", "id: one")), "DUPLICATE_ID").level == "error"
    assert checked(TWO).errors == []


def test_fallbacks_that_lead_in_a_circle_are_told() -> None:
    text = TWO.replace("timeout: 15}", "timeout: 15, fallback: [two]}")

    assert [finding.code for finding in checked(text).errors] == ["FALLBACK_LOOP"]


@pytest.mark.parametrize(
    ("pipelines", "code"),
    [
        ("pipelines: {kb_query: {answer: {knowledge_ref: [market_trends]}}}", "UNKNOWN_KNOWLEDGE_REF"),
        ("pipelines: {kb_query: {answr: {knowledge_ref: []}}}", "UNKNOWN_NODE"),
        ("pipelines: {kb_qury: {answer: {knowledge_ref: []}}}", "UNKNOWN_PIPELINE"),
        ("pipelines: {kb_query: {answer: {refs: []}}}", "UNKNOWN_FIELD"),
        ("pipelines: {kb_query: {answer: {knowledge_template: '{{data}}'}}}", "RESERVED_VARIABLE"),
        (
            "pipelines: {kb_query: {answer: {knowledge_ref: [market_trends_kb, market_trends_kb]}}}",
            "DUPLICATE_REF",
        ),
    ],
)
def test_a_mount_that_cannot_work_is_told_where_it_stands(pipelines: str, code: str) -> None:
    finding = only(checked(pipelines=pipelines), code)

    assert (finding.level, finding.file) == ("error", "pipelines.yaml")


def test_a_nodes_own_template_gives_a_variable_its_place() -> None:
    text = SEED_SAMPLE.replace('"context_knowledge"', '"market_notes"')
    mounts = "pipelines: {kb_query: {answer: {knowledge_ref: [market_trends_kb]%s}}}"

    assert only(checked(text, mounts % ""), "UNUSED_VARIABLE").level == "error"
    assert checked(text, mounts % ", knowledge_template: '行业：{{market_notes}}'").errors == []


def test_a_bomb_of_aliases_is_refused_before_it_unfolds() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))

    found = checked(f"l0: &l0 [x, x]\n{levels}\n")

    assert [finding.code for finding in found.errors] == ["NOT_YAML"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "knowledge: []\n", "knowledge:\n"])
def test_no_source_is_fine(text: str) -> None:
    assert checked(text).findings == []


def test_the_schema_is_json_and_names_every_field_of_the_seed() -> None:
    schema = json.dumps(json_schema())

    for field in ("provider_type", "endpoint", "timeout", "headers", "index_name", "embedding_model", "max_tokens"):
        assert f'"{field}"' in schema


def test_the_schema_takes_the_seeds_sample_and_wants_a_stores_parameters() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json_schema())
    document = yaml.safe_load(SEED_SAMPLE)
    assert validator.is_valid(document)
    [source] = document["knowledge"]
    del source["config"]["vdb_params"]
    assert validator.is_valid(document)
    source["provider_type"] = "VDB_DIRECT"
    assert not validator.is_valid(document)
