"""Which repository a payload means, and that our token goes to our own Gitea only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.contract.payload import Payload, read_payload
from tasks.errors import PermanentError
from worker.repositories import RepositoryRules

rules = RepositoryRules("https://gitea.example.com/git/", default_owner="team", default_repo="kb")


def asked(repo: str | None = None, owner: str | None = None, url: str | None = None) -> Payload:
    return read_payload(
        {
            "taskId": "query-1-2",
            "conversationId": 1,
            "messageId": 2,
            "skill": "kb_query",
            "question": "?",
            "team": {"kbRepo": repo},
            "platform": {"giteaOwner": owner, "giteaUrl": url},
        }
    )


def refusal(payload: Payload, with_rules: RepositoryRules = rules) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        with_rules.resolve(payload)
    return caught.value


@pytest.mark.parametrize(
    ("named", "means"),
    [
        ({}, "team/kb"),
        ({"repo": "other"}, "team/other"),
        ({"repo": "people/other"}, "people/other"),
        ({"owner": "people"}, "people/kb"),
        ({"repo": "people/other", "owner": "ignored"}, "people/other"),
    ],
    ids=range(5),
)
def test_repository_and_owner(named: dict[str, Any], means: str) -> None:
    assert str(rules.resolve(asked(**named))) == means


@pytest.mark.parametrize(
    "url",
    [
        "https://gitea.example.com/git",
        "https://gitea.example.com/git/",
        "HTTPS://Gitea.Example.COM:443/git",
        "https://gitea.example.com./git",
        " https://gitea.example.com/git ",
    ],
)
def test_other_spellings_of_our_own_url_are_ours(url: str) -> None:
    assert rules.resolve(asked(url=url))


@pytest.mark.parametrize(
    "url",
    [
        "http://gitea.example.com/git",
        "https://gitea.example.com/",
        "https://gitea.example.com:8443/git",
        "https://evil.example.com/git",
        "https://gitea.example.com.evil.com/git",
        "https://gitea.example.com@evil.com/git",
        "https://user:pw@gitea.example.com/git",
        "https://gitea.example.com:99999/git",
        "http://[::1",
        "https://[bad]/git",
        "not a url",
        "file:///etc/passwd",
        "ssh://gitea.example.com/git",
    ],
)
def test_another_server_is_refused(url: str) -> None:
    error = refusal(asked(url=url))

    assert error.code == "GITEA_NOT_ALLOWED"
    assert "giteaUrl" in error.en
    assert "pw" not in error.en


def test_an_allowed_other_url_is_served_by_ours() -> None:
    allowing = replace(rules, allowed_urls=("http://gitea:3000",))

    assert allowing.resolve(asked(url="http://gitea:3000/"))


@pytest.mark.parametrize("allowed", [("team/kb",), ("Team/KB",), ("kb",), ("x/y", "team/kb")])
def test_only_allowed_repositories_are_served(allowed: tuple[str, ...]) -> None:
    limited = replace(rules, allowed_repos=allowed)

    assert limited.resolve(asked())
    assert refusal(asked(repo="people/kb"), limited).code == "GITEA_NOT_ALLOWED"
    assert refusal(asked(repo="secret"), limited).code == "GITEA_NOT_ALLOWED"


def test_what_is_not_configured_is_named() -> None:
    assert "GITEA_URL" in refusal(asked(), replace(rules, gitea_url="")).en
    assert "TEAM_KB_REPO" in refusal(asked(), replace(rules, default_repo="")).en
    assert "GITEA_ORG" in refusal(asked(), replace(rules, default_owner="")).en
