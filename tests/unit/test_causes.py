"""A sentence for a team member holds no scrap of a library's English."""

from __future__ import annotations

import errno
import json
import re

import pytest

from tasks.causes import os_cause
from tasks.contract import strict_json
from tasks.errors import PermanentError
from worker.adapters.kb_git.remote import Remote
from worker.intake.document import read_document

PROSE = re.compile(r"[A-Za-z]{2,}[ ,:][A-Za-z]{2,}")
"""Two English words in a row; names, codes and settings stand alone."""


@pytest.mark.parametrize(
    "number", [errno.ENOENT, errno.EACCES, errno.ENOSPC, errno.EROFS, errno.ESTALE, errno.EXDEV, 0]
)
def test_what_the_system_says_is_told_in_chinese(number: int) -> None:
    told = os_cause(OSError(number, "No such device or address"))

    assert not PROSE.search(told)
    assert re.search("[一-鿿]", told)


@pytest.mark.parametrize("content", [b"", b"{", b"[1,]", b'{"a": NaN}', b"\xff", b"[" * 200 + b"]" * 200, b"[" * 9_999])
def test_what_is_wrong_with_a_document_is_told_in_chinese(content: bytes) -> None:
    with pytest.raises(PermanentError) as refused:
        read_document(content)
    assert not PROSE.search(refused.value.zh)
    assert refused.value.en != refused.value.zh

    with pytest.raises((ValueError, RecursionError)) as fault:
        strict_json.loads(content)
    assert not PROSE.search(strict_json.json_cause(fault.value))


def test_line_and_column_of_a_slip_are_told() -> None:
    with pytest.raises(json.JSONDecodeError) as fault:
        json.loads('{"a": 1,\n "b" 2}')
    assert strict_json.json_cause(fault.value) == "第 2 行第 6 列有语法错误"


@pytest.mark.parametrize(
    "stderr",
    [
        "fatal: unable to access 'http://h/o/r.git/': Could not resolve host: h",
        "fatal: unable to access 'http://h/o/r.git/': Failed to connect to h port 1 after 0 ms: Connection refused",
        "fatal: unable to access 'http://h/o/r.git/': The requested URL returned error: 503",
        "fatal: something that nobody has seen yet",
        "",
    ],
)
def test_what_git_says_of_the_network_is_told_in_chinese(stderr: str) -> None:
    error = Remote("http://h/o/r.git", "bot", "token").error(stderr)

    assert not PROSE.search(error.zh)
    assert "o/r（h）" in error.zh
