"""The figures of the fleet: names, units, backlog, histograms, and that no text can break the format."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tasks.ports import EndpointView, OpenJob
from worker.metrics import Snapshot, as_document, backlog, metrics_of, render

NOW = 1_000.0
QUEUES = {"prepare": "kbw.io", "select": "kbw.llm", "commit": "kbw.commit", "publish": "kbw.io"}
EMPTY = Snapshot(NOW, {}, [], {}, [], [], 0, 0, QUEUES, frozenset({"kb_query"}), "1.2.3")


def job(stage: str = "select", **more: Any) -> OpenJob:
    return replace(OpenJob(stage, "queued", "", created=900.0, ready_at=950.0, lease_until=0.0), **more)


def samples(snapshot: Snapshot) -> dict[str, float]:
    lines = [line for line in render(metrics_of(snapshot)).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_names_and_units_follow_the_conventions_and_every_family_is_explained() -> None:
    text = render(metrics_of(EMPTY))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert set(kinds) == set(re.findall(r"^# HELP (\S+) \S", text, re.MULTILINE))
    for name, kind in kinds.items():
        assert name.startswith("kbw_")
        assert name.endswith("_total") == (kind == "counter"), name
        assert name.endswith("_seconds") == (kind == "histogram" or name.endswith("age_seconds")), name


def test_backlog_counts_what_more_workers_could_shorten() -> None:
    jobs = [
        job(),
        job(state="running"),
        job(blocked="cap"),
        job(blocked="order"),
        job(state="parked", ready_at=NOW + 5),
        job(state="parked", ready_at=NOW - 1),
        job("prepare"),
        job("commit"),
    ]
    assert backlog(jobs, QUEUES, NOW) == {"io": 1, "llm": 3, "commit": 1}


def test_open_jobs_by_stage_state_and_reason_and_the_oldest_age() -> None:
    found = samples(replace(EMPTY, open_jobs=[job(), job(blocked="paused", created=400.0), job("publish")]))
    assert found['kbw_open_jobs{stage="select",state="queued"}'] == 2
    assert found['kbw_open_jobs{stage="publish",state="queued"}'] == 1
    assert found['kbw_open_jobs{stage="prepare",state="running"}'] == 0
    assert found['kbw_blocked_jobs{reason="paused"}'] == 1
    assert found["kbw_oldest_open_job_age_seconds"] == 600


def test_histograms_are_cumulative_and_in_seconds() -> None:
    figures = {
        "stage_ms/select/sum": 4_650,
        "stage_ms/select/count": 4,
        "stage_ms/select/le/100": 1,
        "stage_ms/select/le/50": 2,
        "stage_ms/select/le/inf": 1,
    }
    found = samples(replace(EMPTY, figures=figures))
    assert found['kbw_stage_duration_seconds_bucket{stage="select",le="0.05"}'] == 2
    assert found['kbw_stage_duration_seconds_bucket{stage="select",le="0.1"}'] == 3
    assert found['kbw_stage_duration_seconds_bucket{stage="select",le="+Inf"}'] == 4
    assert found['kbw_stage_duration_seconds_sum{stage="select"}'] == 4.65
    assert found['kbw_stage_duration_seconds_count{stage="select"}'] == 4


def test_skills_that_payloads_make_up_are_one_series() -> None:
    figures = {f"job_ms/{skill}/{part}": 1 for skill in ("kb_query", "a/b", "x") for part in ("sum", "count", "le/50")}
    found = samples(replace(EMPTY, figures=figures))
    assert found['kbw_job_duration_seconds_count{skill="kb_query"}'] == 1
    assert found['kbw_job_duration_seconds_count{skill="other"}'] == 2
    assert not [name for name in found if "a/b" in name]


def test_model_figures_carry_the_endpoint_whatever_stands_in_it() -> None:
    endpoint = 'http://h/v1"\n\\'
    figures = {f"tokens/prompt/{endpoint}": 30, f"model_calls/MODEL_AUTH/{endpoint}": 2}
    view = EndpointView(endpoint, in_flight=3, cap=4, waiting=5, faults=1, open_until=NOW + 9, paused=False)
    found = samples(replace(EMPTY, figures=figures, endpoints=[view]))
    shown = 'http://h/v1\\"\\n\\\\'
    assert found[f'kbw_model_in_flight{{endpoint="{shown}"}}'] == 3
    assert found[f'kbw_model_cap{{endpoint="{shown}"}}'] == 4
    assert found[f'kbw_model_breaker_open{{endpoint="{shown}"}}'] == 1
    assert found[f'kbw_model_tokens_total{{kind="prompt",endpoint="{shown}"}}'] == 30
    assert found[f'kbw_model_calls_total{{outcome="MODEL_AUTH",endpoint="{shown}"}}'] == 2


def test_counters_of_the_record_are_shown_under_their_names() -> None:
    figures = {
        "accepted": 7,
        "fenced": 2,
        "duplicates": 3,
        "finished/done": 5,
        "refused/cap": 4,
        "pages": 9,
        "commits": 2,
    }
    found = samples(replace(EMPTY, figures=figures, dead_jobs=1, dead_entries=2))
    assert found["kbw_jobs_accepted_total"] == 7
    assert found["kbw_suppressed_effects_total"] == 2
    assert found["kbw_duplicate_submissions_total"] == 3
    assert found['kbw_jobs_finished_total{state="done"}'] == 5
    assert found['kbw_claims_refused_total{reason="cap"}'] == 4
    assert (found["kbw_pages_committed_total"], found["kbw_commits_total"]) == (9, 2)
    assert (found['kbw_dead_letters{kind="job"}'], found['kbw_dead_letters{kind="entry"}']) == (1, 2)
    assert found['kbw_build_info{version="1.2.3"}'] == 1


def test_big_counters_keep_their_last_digit() -> None:
    assert "kbw_jobs_accepted_total 123456789012\n" in render(
        metrics_of(replace(EMPTY, figures={"accepted": 123456789012}))
    )


def test_the_same_figures_as_a_document() -> None:
    document = as_document(metrics_of(replace(EMPTY, counts={"done": 4})))
    assert {"labels": {"state": "done"}, "value": 4} in document["kbw_jobs"]  # type: ignore[operator]


def test_knowledge_is_counted_by_what_came_of_it_and_material_by_row_of_the_matrix() -> None:
    figures = {
        "knowledge_ms/HIT/kb.a": 1_500,
        "mounts/cut/answer/kb.a": 2,
        "degraded/TIMEOUT/select/kb.a": 3,
        "material/NOT_MOUNTED/weknora": 4,
    }
    found = samples(replace(EMPTY, figures=figures))
    assert found['kbw_knowledge_search_seconds_total{status="HIT",source="kb.a"}'] == 1.5
    assert found['kbw_knowledge_mounts_total{outcome="cut",node="answer",source="kb.a"}'] == 2
    assert found['kbw_knowledge_degraded_total{status="TIMEOUT",node="select",source="kb.a"}'] == 3
    assert found['kbw_material_searches_total{status="NOT_MOUNTED",source="weknora"}'] == 4
