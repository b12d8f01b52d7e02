"""Hides configured secrets in everything we write: files, logs, results; must know secrets only by value."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "[secret]"
_SHORTEST = 4  # masking shorter values would tear ordinary text apart


class SecretMask:
    """Replaces each secret, also base64 and URL-encoded, by ``[secret]``.

    Git sends ``Basic base64(user:token)``, so the pairs with ``users`` are secrets too.
    """

    def __init__(self, secrets: Iterable[str], users: Iterable[str] = ()) -> None:
        plain = {secret for secret in secrets if len(secret) >= _SHORTEST}
        pairs = {f"{user}:{secret}" for user in [*users, "x-oauth-basic"] for secret in plain}
        pairs |= {f"{secret}:x-oauth-basic" for secret in plain}
        forms = set(plain)
        for value in plain | pairs:
            encoded = value.encode()
            for code in (base64.b64encode(encoded), base64.urlsafe_b64encode(encoded)):
                forms |= {code.decode(), code.decode().rstrip("=")}
            forms |= {quote(value, safe=""), quote_plus(value)}
        # longest first: a form that contains another one must go as a whole
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, value: str) -> str:
        """``value`` without any secret."""
        for form in self._forms:
            if form in value:
                value = value.replace(form, MASK)
        return value

    def data(self, value: bytes) -> bytes:
        """Bytes without any secret (UTF-8 forms)."""
        for form in self._forms:
            if (encoded := form.encode()) in value:
                value = value.replace(encoded, MASK.encode())
        return value

    def value(self, value: Any) -> Any:
        """A JSON-like value without any secret, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value
