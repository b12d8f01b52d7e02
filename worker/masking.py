"""Hides configured secrets in everything we write: files, logs, results; must know secrets only by value."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from worker.settings import Settings

MASK = "[secret]"
_SHORTEST = 4  # masking shorter values would tear ordinary text apart
_SHORTEST_BASE64 = 8


class SecretMask:
    """Replaces each secret, also base64 and URL-encoded, by ``[secret]``.

    Git sends ``Basic base64(user:token)``, so the pairs with ``users`` are secrets too. In base64 of a longer text a
    secret can stand at three places within a group of four digits; what is the same for every text around it is masked.
    """

    def __init__(self, secrets: Iterable[str], users: Iterable[str] = ()) -> None:
        plain = {secret for secret in secrets if len(secret) >= _SHORTEST}
        pairs = {f"{user}:{secret}" for user in [*users, "x-oauth-basic"] for secret in plain}
        pairs |= {f"{secret}:x-oauth-basic" for secret in plain}
        forms = set(plain)
        for value in plain | pairs:
            forms |= _base64_forms(value.encode())
            forms |= _url_forms(value)
        forms |= {json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in forms for ascii_only in (True, False)}
        # longest first: a form that contains another one must go as a whole
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._encoded = [form.encode() for form in self._forms]

    def text(self, value: str) -> str:
        """``value`` without any secret."""
        for form in self._forms:
            if form in value:
                value = value.replace(form, MASK)
        return value

    def data(self, value: bytes) -> bytes:
        """Bytes without any secret (UTF-8 forms)."""
        for form in self._encoded:
            if form in value:
                value = value.replace(form, MASK.encode())
        return value

    def is_in(self, value: bytes) -> bool:
        """Whether bytes hold a secret, also inside JSON text."""
        return any(form in value for form in self._encoded)

    def value(self, value: Any) -> Any:
        """A JSON-like value without any secret, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


def mask_of(settings: Settings) -> SecretMask:
    """What hides every secret of these settings."""
    return SecretMask(settings.secrets(), [settings.gitea.username])


def _base64_forms(value: bytes) -> set[str]:
    forms: set[str] = set()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(value).decode()
        forms |= {whole, whole.rstrip("=")}
        for before in range(3):
            digits = encode(bytes(before) + value).decode().rstrip("=")
            first = (before * 8 + 5) // 6  # the first digit that no bit of the text before reaches
            last = (before + len(value)) * 8 // 6  # the last digit may share its bits with the text after
            if last - first >= _SHORTEST_BASE64:
                forms.add(digits[first:last])
    return forms


def _url_forms(value: str) -> set[str]:
    forms = set()
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        forms |= {encoded, _lower_hex(encoded)}
    return forms


def _lower_hex(encoded: str) -> str:
    """``%2F`` and ``%2f`` mean the same (RFC 3986 §2.1)."""
    first, *rest = encoded.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])
