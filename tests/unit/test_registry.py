"""The table of queues names the queue of every stage; counting jobs loads no stage."""

from __future__ import annotations

import subprocess
import sys

from tasks.queues import QUEUES
from tasks.registry import PIPELINES


def test_the_table_of_queues_is_that_of_the_pipelines() -> None:
    assert dict(QUEUES) == {step.name: step.queue for pipeline in PIPELINES.values() for step in pipeline.steps}


def test_a_health_check_loads_neither_stages_nor_celery_nor_git() -> None:
    told = "import sys, worker.cli, worker.ops.figures; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"celery", "kombu", "git", "httpx", "tantivy", "markdown_it", "tasks.query", "tasks.stages.job"}
    assert heavy.isdisjoint(loaded)


def test_help_loads_no_settings() -> None:
    told = "import sys, worker.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    assert {"pydantic", "redis", "worker.settings"}.isdisjoint(loaded)
