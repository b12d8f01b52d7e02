"""``kbw kb check | repair | stale``: the knowledge base looked at as a whole, and mended in one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict

import click

from tasks.errors import Code, PermanentError
from tasks.kb import soundness
from tasks.kb.catalog import CatalogError
from tasks.kb.page import decode, read_page
from tasks.kb.paths import problem_with_page_path
from tasks.ports import RepoRef
from worker.adapters.kb_git.commit_history import TaskTable
from worker.adapters.kb_git.commit_objects import GitHead
from worker.adapters.kb_git.git import BareRepo
from worker.adapters.kb_git.snapshot import GitSnapshot
from worker.bootstrap import Workshop
from worker.ops.search import configured_repo, knowledge_workshop
from worker.settings import Settings

CATALOG, INDEX = "catalog.json", "index.md"
MARKS = {"error": "ERROR", "warning": "warn "}


def check_kb(settings: Settings, *, as_json: bool) -> int:
    """Print every finding at the remote's head; exit code 1 when one is an error."""
    shop, repo = knowledge_workshop(settings), configured_repo(settings)
    mirror = shop.mirrors.of(repo)
    commit = mirror.latest(fresh=True).commit
    findings = soundness.check(mirror.run(lambda git: repository_at(GitHead(git, commit))))
    shop.kb.close()
    if as_json:
        facts = {"repo": str(repo), "commit": commit, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(facts, ensure_ascii=False, indent=2))
    else:
        _print_findings(repo, commit, findings)
    return 1 if any(finding.kind == "error" for finding in findings) else 0


def repair_kb(settings: Settings, *, dry_run: bool, as_json: bool) -> int:
    """Mend what can be mended; exit code 1 when the server refuses or the catalog is no JSON."""
    shop, repo = knowledge_workshop(settings), configured_repo(settings)
    done = soundness.Mended()

    def work(head: GitHead, now: str) -> Mapping[str, bytes]:
        nonlocal done
        try:
            done = soundness.mended(repository_at(head), now)
        except CatalogError as error:
            raise PermanentError(
                Code.KB_NOT_FOUND,
                en=f"{CATALOG} cannot be read ({error.en}): restore it from the history, then repair again",
                zh=f"{CATALOG} 无法读取（{error.zh}），请先从历史中恢复。",
            ) from error
        return done.files

    commit, errors = "", tuple[str, ...]()
    if dry_run:
        mirror = shop.mirrors.of(repo)
        newest = mirror.latest(fresh=True).commit
        mirror.run(lambda git: work(GitHead(git, newest), "1970-01-01T00:00:00Z"))
    else:
        receipt = shop.writer.mend(repo, work, "kbw: repair catalog and index")
        commit, errors = receipt.commit_id, receipt.errors
    shop.kb.close()
    _print_repair(repo, commit, done, errors, dry_run=dry_run, as_json=as_json)
    return 1 if errors else 0


def stale_pages(settings: Settings, *, as_json: bool) -> int:
    """Print the QA pages that rest on older evidence; exit code 1 when there are any."""
    shop, repo = knowledge_workshop(settings), configured_repo(settings)
    found = list(_stale(shop, repo, shop.kb.latest(repo, fresh=True)))
    shop.kb.close()
    if as_json:
        click.echo(json.dumps([asdict(page) for page in found], ensure_ascii=False, indent=2))
    else:
        for page in found:
            click.echo(f"{page.path}  {page.title}")
            for path in page.changed:
                click.echo(f"    changed  {path}")
            for path in page.gone:
                click.echo(f"    gone     {path}")
        click.echo(f"{len(found)} QA page(s) rest on older evidence")
    return 1 if found else 0


# ---------------------------------------------------------------- looking


def repository_at(head: GitHead) -> soundness.Repository:
    """Everything that the check needs, read at one commit."""
    pages = {path: read_page(decode(data).text) for path, data in head.pages()}
    names = [entry.path for entry in head.repo.tree(head.commit)] if head.commit else []
    unsafe = tuple(path for path in names if path.endswith(".md") and problem_with_page_path(path))
    catalog = head.read(CATALOG) if head.kind(CATALOG) == "file" else None
    index = head.read(INDEX).decode("utf-8", "surrogateescape") if head.kind(INDEX) == "file" else None
    return soundness.Repository(pages, catalog, index, unsafe)


def _stale(shop: Workshop, repo: RepoRef, snapshot: GitSnapshot) -> Iterable[soundness.Stale]:
    """Evidence is compared by content at the commit that wrote the page; without that commit, by its date."""
    mirror = shop.mirrors.of(repo)
    table = TaskTable(mirror.path.with_name(f"{mirror.path.name}.tasks.sqlite3"))
    if snapshot.page_count:
        mirror.run(lambda git: table.catch_up(git, snapshot.commit))
    for facts in snapshot.listing(snapshot.page_count, []):
        if not facts.path.startswith("qa/"):
            continue
        page = read_page(snapshot.read(facts.path) or "")
        task = str(page.metadata.get("taskId") or "")
        written = table.find([task]).get(task, "") if task else ""
        cited = soundness.cited_pages(page)
        gone = tuple(path for path in cited if snapshot.lookup(path) is None)
        left = [path for path in cited if path not in gone]
        if written:
            changed = tuple(path for path in left if mirror.run(_differs(path, written, snapshot.commit)))
        else:
            since = str(page.metadata.get("updatedAt") or facts.updated_at)
            changed = tuple(path for path in left if since and _date_of(snapshot, path) > since)
        if changed or gone:
            yield soundness.Stale(facts.path, facts.title, changed, gone)


def _differs(path: str, old: str, new: str) -> Callable[[BareRepo], bool]:
    """Whether a file that was there at ``old`` is another one at ``new``."""
    return lambda git: git.blob_id(old, path) not in ("", git.blob_id(new, path))


def _date_of(snapshot: GitSnapshot, path: str) -> str:
    facts = snapshot.lookup(path)
    return facts.updated_at if facts else ""


def _print_findings(repo: RepoRef, commit: str, findings: list[soundness.Finding]) -> None:
    for finding in findings:
        mends = "  (kbw kb repair mends it)" if finding.mends else ""
        click.echo(f"{MARKS[finding.kind]}  {finding.code:<20} {finding.path}: {finding.message}{mends}")
    errors = sum(1 for finding in findings if finding.kind == "error")
    click.echo(f"{repo} at {commit[:12] or 'no commit'}: {errors} error(s), {len(findings) - errors} warning(s)")


def _print_repair(
    repo: RepoRef, commit: str, done: soundness.Mended, errors: tuple[str, ...], *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        facts = {"repo": str(repo), "commit": commit, "dryRun": dry_run, "errors": list(errors)}
        files = {"files": sorted(done.files), "added": list(done.added), "dropped": list(done.dropped)}
        click.echo(json.dumps({**facts, **files}, ensure_ascii=False, indent=2))
        return
    for path in done.added:
        click.echo(f"+ {path}")
    for path in done.dropped:
        click.echo(f"- {path}")
    for error in errors:
        click.echo(f"refused: {error}")
    if not done.files:
        click.echo(f"{repo}: nothing to mend")
    elif dry_run:
        click.echo(f"{repo}: would write {', '.join(sorted(done.files))}")
    elif commit:
        click.echo(f"{repo}: mended in {commit[:12]} ({', '.join(sorted(done.files))})")
