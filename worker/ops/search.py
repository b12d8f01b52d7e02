"""``kbw search``: what the index finds for a question, and why; must not change anything."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tasks.errors import Code, PermanentError
from tasks.ports import RepoRef
from worker.bootstrap import Workshop
from worker.settings import Settings

FIELD_NAMES = {"place": "path"}


def search(settings: Settings, text: str, limit: int, *, as_json: bool) -> int:
    """Print the best pages with what each field gave them; exit code 1 when nothing is found."""
    shop = knowledge_workshop(settings)
    repo = configured_repo(settings)
    snapshot = shop.kb.latest(repo, fresh=True)
    found = snapshot.explain(text, limit)
    hits = [
        {
            "path": hit.facts.path,
            "title": hit.facts.title,
            "type": hit.facts.type,
            "score": hit.score,
            "places": dict(hit.places),
            "fields": {FIELD_NAMES.get(name, name): gain for name, gain in hit.fields.items()},
        }
        for hit in found.hits
    ]
    shop.kb.close()
    if as_json:
        facts = {"repo": str(repo), "commit": snapshot.commit, "pages": snapshot.page_count}
        asked = {"terms": {term: round(worth, 3) for term, worth in found.terms.items()}, "versions": found.versions}
        legs = {"legs": found.legs, "vectors": found.vectors}
        click.echo(json.dumps({**facts, **asked, **legs, "hits": hits}, ensure_ascii=False, indent=2))
        return 0 if hits else 1
    click.echo(f"{repo} at {snapshot.commit[:12]}, {snapshot.page_count} pages")
    click.echo("asked for: " + "  ".join(f"{term} {worth:.1f}" for term, worth in list(found.terms.items())[:20]))
    if found.versions:
        click.echo("versions:  " + ", ".join(found.versions))
    made = "" if found.vectors is None else f"  (vectors of {found.vectors} page files)"
    click.echo("legs:      " + "  ".join(f"{leg} {count}" for leg, count in found.legs.items()) + made)
    for number, reason in enumerate(found.hits, start=1):
        click.echo(f"{number:3}  {reason.score:8.2f}  {reason.facts.path}  {reason.facts.title}")
        places = "  ".join(f"{leg} #{place}" for leg, place in reason.places.items())
        gains = "  ".join(f"{FIELD_NAMES.get(name, name)} {gain}" for name, gain in reason.fields.items())
        click.echo(f"{' ' * 15}{places}" + (f"  ({gains})" if gains else ""))
    return 0 if hits else 1


def knowledge_workshop(settings: Settings) -> Workshop:
    """For commands that look at the knowledge base only and need no shared directory."""
    return Workshop(settings, Path(settings.shared.directory or ".").expanduser().absolute())


def configured_repo(settings: Settings) -> RepoRef:
    """The repository of ``TEAM_KB_REPO``. Raises ``KB_NOT_FOUND``."""
    gitea = settings.gitea
    owner, _, name = gitea.repo.rpartition("/")
    if not gitea.url or not name or not (owner or gitea.org or gitea.username):
        raise PermanentError(
            Code.KB_NOT_FOUND,
            en="no repository: set GITEA_URL, TEAM_KB_REPO and GITEA_ORG",
            zh="没有指定知识库：请设置 GITEA_URL、TEAM_KB_REPO 和 GITEA_ORG",
        )
    return RepoRef(owner or gitea.org or gitea.username, name)
