"""The READMEs show the very samples that the acceptance tests run, and a result class that fits the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.java_record import result_record

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "acceptance" / "java"
SHOWN = ["file/KbQueryFiles.java", "file/KbQueryResult.java", "stream/src/main/java/KbQueryStream.java"]


def test_the_result_class_is_the_schema() -> None:
    kept = (SAMPLES / "file" / "KbQueryResult.java").read_text("utf-8")
    assert kept == result_record(), "make it again: python -m tests.java_record"


@pytest.mark.parametrize("name", SHOWN)
def test_the_readme_shows_the_sample_that_is_tested(name: str) -> None:
    blocks = re.findall(r"^```java\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert (SAMPLES / name).read_text("utf-8") in blocks
