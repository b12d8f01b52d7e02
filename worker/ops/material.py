"""``kbw material FILE``: the material of an outline's nodes, here and now; must not need Redis or workers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click
import yaml

from tasks.contract import strict_json
from tasks.contract.shape import JsonObject
from tasks.errors import Code, PermanentError
from tasks.material import SKILL, material
from tasks.pipeline import run_inline
from tasks.stages.job import PAYLOAD, RESULT, Job
from worker.bootstrap import workshop
from worker.ops.local import open_payload, read_file, run
from worker.settings import Settings

DEADLINE_S = 900.0


def run_material(path: Path, settings: Settings, *, as_json: bool) -> int:
    """Print ``{material_content}`` (or the whole result as JSON); what became of each node goes to standard error."""
    document = read_nodes(path)
    result = _as_job(path, settings) if "taskId" in document else result_of(document, settings)
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        if result.get("success"):
            click.echo(result["materialContent"])
        for node in result.get("nodes", []):
            click.echo(f"{node['id']}  {node['status']}  {node['source'] or '-'}  {node['reason']}", err=True)
        if not result.get("success"):
            click.echo(f"{result.get('errorCode')}: {'；'.join(result.get('errors', []))}", err=True)
    return 0 if result.get("success") else 1


def read_nodes(path: Path) -> JsonObject:
    """The payload or bare request (``{nodes: […]}``) in a JSON or YAML file. Raises ``BAD_PAYLOAD``."""
    content = read_file(path, "nodes")
    try:
        document = yaml.safe_load(content) if path.suffix.lower() in (".yaml", ".yml") else strict_json.loads(content)
    except (ValueError, yaml.YAMLError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise PermanentError(
            Code.BAD_PAYLOAD, en=f"{path}: {reason}", zh=f"文件 {path.name} 不是合法的 JSON 或 YAML"
        ) from error
    if isinstance(document, list):
        document = {"nodes": document}
    if not isinstance(document, dict):
        raise PermanentError(
            Code.BAD_PAYLOAD, en=f"{path}: needs an object with nodes", zh=f"文件 {path.name} 应为含 nodes 的对象"
        )
    return strict_json.clean(document)  # type: ignore[no-any-return]  # an object stays one


def result_of(request: JsonObject, settings: Settings) -> dict[str, Any]:
    """The result for nodes without a job: same stages, in a folder that is gone afterwards."""
    number = strict_json.digest(request)[:12]
    identity = {"taskId": f"material-cli-{number}", "conversationId": "cli", "messageId": number, "skill": SKILL}
    payload = {**request, **identity}
    payload.pop("resultFile", None)
    with tempfile.TemporaryDirectory(prefix="kbw-material-") as place:
        shop = workshop(settings, Path(place))
        folder = shop.folders.open(str(payload["taskId"]))
        folder.write(PAYLOAD, strict_json.dumps(shop.mask.value(payload)))
        ports = shop.ports(fresh_kb=False)
        job = Job(str(payload["taskId"]), folder, ports, deadline=ports.clock.monotonic() + DEADLINE_S)
        run_inline(material, job, max_attempts=settings.job.max_attempts)
        return _read_result(Path(folder.path) / RESULT)


def _as_job(path: Path, settings: Settings) -> dict[str, Any]:
    """A whole payload runs as ``kbw run`` does it: its files are kept, its result goes where it says."""
    opened = open_payload(path, settings)
    run(path, settings)
    return _read_result(Path(opened.shop.folders.path_of(opened.payload.task_id)) / RESULT)


def _read_result(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = strict_json.loads(read_file(path, "result"))
    return found
