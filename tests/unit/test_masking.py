"""No configured secret leaves us in any form that can be turned back into it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from worker.masking import MASK, SecretMask

TOKEN = "tok/3f9a+17c2=e8b4 ünï"
mask = SecretMask([TOKEN], ["kbw-bot"])


@pytest.mark.parametrize(
    "form",
    [
        TOKEN,
        quote(TOKEN),
        quote(TOKEN, safe=""),
        quote_plus(TOKEN),
        quote(TOKEN, safe="").lower().replace("ü", "%c3%bc"),
        base64.b64encode(TOKEN.encode()).decode(),
        base64.b64encode(TOKEN.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(TOKEN.encode()).decode(),
        base64.b64encode(f"kbw-bot:{TOKEN}".encode()).decode(),
        base64.b64encode(f"{TOKEN}:x-oauth-basic".encode()).decode(),
        json.dumps(TOKEN)[1:-1],
    ],
    ids=range(11),
)
def test_every_usual_form_is_hidden(form: str) -> None:
    for text in (form, f"before {form} after", f"https://u:{form}@host/", f'{{"a": "{form}"}}'):
        hidden = mask.text(text)

        assert form not in hidden
        assert MASK in hidden
        assert mask.data(text.encode()) == hidden.encode()


@pytest.mark.parametrize("before", ["", "u", "us", "use", "anybody:", "someone else:"])
@pytest.mark.parametrize("after", ["", "x", "xy", "xyz and more"])
def test_base64_of_a_longer_text_gives_nothing_away(before: str, after: str) -> None:
    hidden = mask.text(base64.b64encode(f"{before}{TOKEN}{after}".encode()).decode())

    assert MASK in hidden
    for piece in hidden.split(MASK):
        for cut in range(4):
            digits = piece.rstrip("=")[cut:]
            read = base64.b64decode(digits[: len(digits) // 4 * 4])
            assert not any(part.encode() in read for part in ("tok/3f", "+17c2", "e8b4"))


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=4), st.text(), st.text())
@example('quote"back\\slash', "", "")
def test_no_secret_survives_in_any_value(secret: str, before: str, after: str) -> None:
    one = SecretMask([secret])
    if secret in MASK:
        return

    assert secret not in one.text(before + secret + after).replace(MASK, "\0")
    assert one.is_in(json.dumps({"a": before + secret}).encode())
    assert one.is_in(json.dumps({"a": before + secret}, ensure_ascii=False).encode())


def test_keys_lists_and_nested_values_are_hidden() -> None:
    value = {f"key {TOKEN}": [{"deep": (TOKEN, 7, None, True)}]}

    assert mask.value(value) == {f"key {MASK}": [{"deep": [MASK, 7, None, True]}]}


def test_a_secret_that_holds_another_goes_as_a_whole() -> None:
    assert SecretMask(["abcd", "abcd-efgh"]).text("x abcd-efgh y abcd") == f"x {MASK} y {MASK}"


@pytest.mark.parametrize("secret", ["", "a", "abc"])
def test_values_too_short_to_be_secrets_do_not_tear_text_apart(secret: str) -> None:
    assert SecretMask([secret], ["user"]).text("abc abba cab") == "abc abba cab"


def test_text_without_a_secret_stays_as_it_is() -> None:
    text = "提问：令牌在哪里配置？ GITEA_BOT_TOKEN=…"

    assert mask.text(text) == text
    assert not mask.is_in(text.encode())
