"""Where a repository lives, how we get in, and what its refusals mean; must not start a process."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urlsplit

from tasks.errors import Code, JobError, PermanentError, TransientError

_MAX_REASON = 300
_CREDENTIALS = re.compile(r"(?i)(authorization:\s*\w+\s+\S+|(?<=://)[^/@\s]+@)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")

_AUTH = (
    "could not read username",
    "could not read password",
    "authentication failed",
    "invalid username or password",
    "returned error: 401",
    "returned error: 403",
    "terminal prompts disabled",
)
_NETWORK = {
    "could not resolve host": "无法解析主机名",
    "connection refused": "连接被拒绝",
    "timed out": "连接超时",
    "certificate": "TLS 证书不受信任",
    "ssl": "无法建立 TLS 连接",
    "failed to connect": "无法连接",
    "couldn't connect": "无法连接",
    "connection reset": "连接被中断",
    "error: 5": "服务器内部错误",
    "error: 429": "服务器限流",
}
"""How curl and git word what the network did, lower case."""
_MISSING = ("not found", "returned error: 404", "does not appear to be a git repository", "does not exist")
_REDIRECT = ("unable to update url base from redirection", "returned error: 30")
_STALE = ("fetch first", "non-fast-forward", "stale info", "cannot lock ref", "failed to update ref", "failed to lock")
_REFUSED = ("pre-receive hook declined", "update hook declined", "hook declined", "protected branch", "not allowed to")

PushStatus = Literal["accepted", "stale", "refused", "unknown"]


@dataclass(frozen=True)
class PushReport:
    """What became of a push; ``reason`` is the server's own text without secrets.

    ``accepted``: the branch is at our commit · ``stale``: it moved, fetch and try again · ``refused``: protected branch
    or hook, for good · ``unknown``: no answer, only a fetch can tell.
    """

    status: PushStatus
    reason: str = ""


@dataclass(frozen=True)
class Remote:
    """A repository's URL without credentials, and the credentials.

    https, or http when the configured URL says so. ``allow_file`` is for tests and local tools only. Raises
    ``KB_NOT_FOUND`` for any other URL (``ext::``, ``ssh``, options, embedded credentials).
    """

    url: str
    username: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    allow_file: bool = False

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise PermanentError(
                Code.KB_NOT_FOUND,
                en=f"the repository URL {problem}; correct GITEA_URL",
                zh="知识库地址不可用，请检查 GITEA_URL。",
            )

    @property
    def host(self) -> str:
        """Host and port, for messages."""
        return urlsplit(self.url).netloc or "local"

    @property
    def name(self) -> str:
        """``owner/name``, for messages."""
        return "/".join(urlsplit(self.url).path.removesuffix(".git").split("/")[-2:])

    @property
    def protocol(self) -> str:
        """The only protocol that git may use for this remote."""
        return urlsplit(self.url).scheme

    def config(self) -> dict[str, str]:
        """Git settings for the child's environment: Basic auth for this URL alone."""
        if not self.token or self.protocol == "file":
            return {}
        return {f"http.{self.url}.extraHeader": f"Authorization: Basic {self._basic()}"}

    def redact(self, text: str) -> str:
        """``text`` on one line, shortened, without the token in any of its forms."""
        for secret in (self._basic(), self.token, quote(self.token, safe="")):
            if secret:
                text = text.replace(secret, "***")
        text = _CREDENTIALS.sub("***", text)
        return _CONTROL.sub(" ", text).strip()[:_MAX_REASON]

    def unreachable(self, reason: str, zh: str) -> TransientError:
        """``KB_UNREACHABLE`` that names host and reason; ``zh``: the reason for the team member."""
        return TransientError(
            Code.KB_UNREACHABLE,
            en=f"cannot reach {self.name} at {self.host}: {reason}",
            zh=f"暂时无法访问知识库 {self.name}（{self.host}）：{zh}",
        )

    def error(self, stderr: str) -> JobError:
        """What git's complaint about the remote means for a job."""
        said, reason = stderr.lower(), self.redact(_last_line(stderr))
        if any(sign in said for sign in _REDIRECT):
            return PermanentError(
                Code.KB_NOT_FOUND,
                en=f"{self.host} answers with a redirect, which is not followed; set GITEA_URL to the final address",
                zh=f"{self.host} 返回了重定向，系统不会跟随；请把 GITEA_URL 改为最终地址。",
            )
        if any(sign in said for sign in _AUTH):
            return PermanentError(
                Code.KB_AUTH,
                en=f"{self.host} refuses our credentials for {self.name} ({reason}): "
                "check GITEA_BOT_USERNAME, GITEA_BOT_TOKEN and the bot's rights",
                zh=f"{self.host} 拒绝了机器人账号对知识库 {self.name} 的访问，请检查 GITEA_BOT_TOKEN 及其权限。",
            )
        if any(sign in said for sign in _MISSING):
            return PermanentError(
                Code.KB_NOT_FOUND,
                en=f"{self.host} has no repository {self.name}, or the bot may not see it ({reason}): "
                "check TEAM_KB_REPO and GITEA_ORG",
                zh=f"在 {self.host} 找不到知识库 {self.name}（或机器人无权查看），请检查 TEAM_KB_REPO 与 GITEA_ORG。",
            )
        zh = next((zh for sign, zh in _NETWORK.items() if sign in said), "网络或服务器故障")
        return self.unreachable(reason or "git gave no reason", zh)

    def push_report(self, status: int, stdout: str, stderr: str) -> PushReport:
        """Read ``git push --porcelain``. Raises ``KB_AUTH`` and ``KB_NOT_FOUND``: those will not mend by waiting."""
        said = f"{stdout}\n{stderr}".lower()
        reason = self.redact("\n".join(line for line in stderr.splitlines() if line.startswith("remote:")) or said)
        if status == 0:
            return PushReport("accepted")
        if any(sign in said for sign in _REFUSED):
            return PushReport("refused", reason)
        if any(sign in said for sign in _STALE):
            return PushReport("stale", reason)
        if "[remote rejected]" in said:
            return PushReport("refused", reason)
        error = self.error(stderr)
        if error.code is not Code.KB_UNREACHABLE:
            raise error
        return PushReport("unknown", reason)

    def _basic(self) -> str:
        return base64.b64encode(f"{self.username}:{self.token}".encode()).decode() if self.token else ""

    def _problem(self) -> str | None:
        if not self.url.isprintable() or " " in self.url:
            return "holds blanks or control characters"
        try:
            parts = urlsplit(self.url)
            port_is_fine = parts.port is None or parts.port > 0
        except ValueError:
            return "cannot be read"
        if parts.scheme == "file" and self.allow_file:
            return None
        if parts.scheme not in ("https", "http") or not parts.hostname or not port_is_fine:
            return "must begin with https:// or http:// and a host"
        if parts.username is not None or parts.password is not None:
            return "must not hold credentials"
        return "must not hold ? or #" if parts.query or parts.fragment else None


def _last_line(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
    return " | ".join((fatal or lines)[-2:])
