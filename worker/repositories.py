"""Which repository a payload means, and whether it may be used (CONTRACT §2); must not open it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from tasks.contract.payload import Payload
from tasks.errors import Code, PermanentError
from tasks.ports import RepoRef

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class RepositoryRules:
    """The configured side. ``allowed_repos`` empty: every repository the token can reach."""

    gitea_url: str
    default_owner: str
    default_repo: str
    allowed_repos: Collection[str] = ()
    allowed_urls: Collection[str] = ()

    def resolve(self, payload: Payload) -> RepoRef:
        """``owner/name``. Raises ``GITEA_NOT_ALLOWED``, or ``KB_NOT_FOUND`` when nothing names a repository."""
        self._check_url(payload.platform.gitea_url)
        named = payload.team.kb_repo or self.default_repo
        if not named:
            raise PermanentError(
                Code.KB_NOT_FOUND,
                en="no repository: set TEAM_KB_REPO, or team.kbRepo in the payload",
                zh="没有指定知识库仓库：请设置 TEAM_KB_REPO，或在任务中给出 team.kbRepo",
            )
        owner, _, name = named.rpartition("/")
        repo = RepoRef(owner or payload.platform.gitea_owner or self.default_owner, name)
        if not repo.owner:
            raise PermanentError(
                Code.KB_NOT_FOUND,
                en=f"no owner for repository {named!r}: set GITEA_ORG, or write owner/name",
                zh=f"仓库 {named} 没有所有者：请设置 GITEA_ORG，或写成 owner/name",
            )
        if self.allowed_repos and str(repo).casefold() not in {self._full(name) for name in self.allowed_repos}:
            raise PermanentError(
                Code.GITEA_NOT_ALLOWED,
                en=f"team.kbRepo: {repo} is not in KBW_ALLOWED_REPOS",
                zh=f"仓库 {repo} 不在允许的范围（KBW_ALLOWED_REPOS）之内",
            )
        return repo

    def _full(self, allowed: str) -> str:
        """An entry of the allow-list; one without an owner means ours."""
        return (allowed if "/" in allowed else f"{self.default_owner}/{allowed}").casefold()

    def _check_url(self, named: str | None) -> None:
        """Our token goes to the configured Gitea only."""
        if not self.gitea_url:
            raise PermanentError(
                Code.KB_UNREACHABLE, en="GITEA_URL is not set", zh="没有配置 Gitea 地址（GITEA_URL），请联系管理员"
            )
        if named and _normal(named) not in {_normal(url) for url in (self.gitea_url, *self.allowed_urls)}:
            raise PermanentError(
                Code.GITEA_NOT_ALLOWED,
                en=f"platform.giteaUrl names {_host(named)}, configured is {_host(self.gitea_url)}; "
                "add another spelling of ours to KBW_ALLOWED_GITEA_URLS",
                zh=f"任务指定的 Gitea（{_host(named)}）不是本服务配置的 Gitea，已拒绝",
            )


def _normal(url: str) -> tuple[str, str, int | None, str]:
    """What makes two spellings the same server; nothing equals what is no URL."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", url, -1, ""
    user = parts.username or parts.password or ""
    return parts.scheme, f"{user}@{(parts.hostname or '').rstrip('.')}", port, parts.path.rstrip("/")


def _host(url: str) -> str:
    try:
        return urlsplit(url.strip()).hostname or "?"
    except ValueError:
        return "?"
