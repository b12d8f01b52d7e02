"""Where a model is and how its settings are called; the token stays out of every text and ``repr``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

_TOKEN = re.compile(r"[\x21-\x7e]*\Z")
_RESERVED_SESSIONS = ("agent:", "subagent:", "cron:", "acp:", "hook:")
_SESSION = re.compile(r"[\x21-\x7e]{1,256}\Z")

SESSION_HEADER = "x-openclaw-session-key"


@dataclass(frozen=True)
class Endpoint:
    """One chat completions server. ``base_url`` ends in its API version (``…/v1``), without a slash behind.

    ``agent`` is set for OpenClaw only. The ``*_setting`` names are what an operator has to look at.
    """

    name: Literal["openclaw", "openai"]
    base_url: str
    model: str
    token: str = field(default="", repr=False)
    agent: str = ""
    url_setting: str = ""
    token_setting: str = ""

    @property
    def root(self) -> str:
        """The server without the API version: where OpenClaw's health pages are."""
        return self.base_url.removesuffix("/v1")

    @property
    def host(self) -> str:
        """``host:port`` for messages."""
        return urlsplit(self.base_url).netloc

    def headers(self, session: str | None = None) -> dict[str, str]:
        """Headers of one request; ``session`` only reaches OpenClaw.

        Raises ``ValueError`` for a session key that OpenClaw would refuse or take for one of its own.
        """
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if session is not None and self.name == "openclaw":
            if not _SESSION.match(session) or session.startswith(_RESERVED_SESSIONS):
                raise ValueError(f"not a session key for OpenClaw: {session[:80]!r}")
            headers[SESSION_HEADER] = session
        return headers


def problem_with_url(url: str) -> str | None:
    """Why ``url`` cannot be an endpoint (English, without repeating it: it may hold a password), or ``None``."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not parts.hostname or port == 0:
        return "names no host"
    try:
        parts.hostname.encode("idna")  # what a connection would do; an empty or over-long label has no other sign
    except UnicodeError:
        return "names a host that cannot exist"
    if parts.username or parts.password:
        return "must not hold a user name or password"
    if parts.query or parts.fragment or not url.isprintable() or " " in url:
        return "must be a plain address without '?', '#' or spaces"
    return None


def problem_with_token(token: str) -> str | None:
    """Why ``token`` cannot stand in a header, or ``None``. The value itself is never repeated."""
    return None if _TOKEN.match(token) else "must hold only printable ASCII characters without spaces or line breaks"
