"""The Java samples of the README, compiled and run against a whole system: what we show is what works."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.system import PATIENCE_S, System, running_system

pytestmark = pytest.mark.acceptance
SAMPLES = Path(__file__).with_name("java")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running_system(tmp_path_factory.mktemp("java")) as system:
        system.up()
        yield system


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} on this machine: the Java samples are not tried (apt-get install maven)")
    return found


def compiled(sources: list[Path], out: Path, *options: str) -> None:
    done = subprocess.run(
        [tool("javac"), "-encoding", "UTF-8", "--release", "17", "-d", str(out), *options, *map(str, sources)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def ran(command: list[str], **environment: str) -> dict[str, object]:
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, env=environment or None)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, object] = json.loads(done.stdout.decode("utf-8"))
    return found


def test_the_file_sample_asks_and_gets_its_answer(running: System, tmp_path: Path) -> None:
    compiled(sorted((SAMPLES / "file").glob("*.java")), tmp_path / "classes", "-Xlint:all", "-Werror")
    payload = running.payload("java-file")
    written = tmp_path / "payload.json"
    written.write_text(json.dumps(payload, ensure_ascii=False), "utf-8")
    java = [tool("java"), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", str(tmp_path / "classes")]
    result = ran([*java, "FileSample", str(running.shared), payload["taskId"], str(written)])
    assert result["success"], result
    assert result == running.result(payload["taskId"])
    assert running.commits_of(payload["taskId"]) == [result["commitId"]]


def test_the_stream_sample_asks_and_gets_its_answer(running: System, tmp_path: Path) -> None:
    project = tmp_path / "stream"
    shutil.copytree(SAMPLES / "stream", project)
    maven = [tool("mvn"), "-q", "-B", "-ntp", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    try:
        resolved = subprocess.run(maven, cwd=project, capture_output=True, text=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("Maven did not resolve Jedis within 180 s: the stream sample is not tried")
    if resolved.returncode:
        pytest.skip(f"Maven cannot resolve Jedis here: the stream sample is not tried: {resolved.stdout[:300]}")
    libraries = f"{project}/lib/*"
    compiled(sorted((project / "src/main/java").glob("*.java")), project / "classes", "-cp", libraries)
    payload = running.payload("java-stream")
    del payload["resultFile"]
    written = tmp_path / "payload.json"
    written.write_text(json.dumps(payload, ensure_ascii=False), "utf-8")
    java = [tool("java"), "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", f"{project}/classes:{libraries}"]
    result = ran([*java, "StreamSample", payload["taskId"], str(written)], REDIS_URL=running.server.url)
    assert result["success"], result
    kept = running.shared / ".kbw" / "jobs" / payload["taskId"] / "result.json"
    assert result == json.loads(kept.read_bytes())
