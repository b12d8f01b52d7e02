"""Nothing a model writes can run, load or lead away in the reader's browser; everything else stays as it was."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tasks.rules.links import NO_LINKS, Links
from tasks.rules.safe_markdown import make_safe, safe_line

SEEN_URL = "https://docs.example.com/guide_(v2)?a=1&b=2"
LINKS = Links(
    is_page=lambda path: path in {"tech-notes/a.md", "说明 书/b c.md", "qa/old.md"},
    seen=(f"详见 {SEEN_URL}，以及 https://good.com.evil.org/x。", "http://wiki.example.com/页面"),
)


def safe(text: str) -> str:
    return make_safe(text, LINKS).text


@pytest.mark.parametrize(
    "text",
    [
        "## 结论\n\n`AUTO_RANDOM`\n\n| 方案 | 说 |\n|---|---|\n| A | `Map<a \\| b>` 与 [页](tech-notes/a.md) |\n",
        "```html\n<script>alert(1)</script>\n[x](http://evil)\n![i](http://evil)\n\u200b\n```\n",
        "~~~\n```\n<b>\n~~~\n\n    <b>indented</b>\n\n结尾",
        "- 一\n  ```sql\n  select a<b\n  ```\n- 二\n> ```\n> <b>\n> ```\n",
        f"[文档]({SEEN_URL}) 与 <{SEEN_URL}> 与 {SEEN_URL}",
        "[a](/tech-notes/a.md#节) [b](./tech-notes/a.md) [c](../tech-notes/a.md) [d](old.md)",
        "[文][a] [a][] [a]\n\n[a]: tech-notes/a.md\n",
        "a < b，a <= b，3<4，x<-1，1 > 0，&lt;b&gt;，`<b>`，``a`<i>``，\\[不是链接\\]，[ ] 办，[[维|名]]，[^1]",
        "行一\r\n行二  \r\n\r\n* 项\r\n",
        "❤\ufe0f 葛\U000e0100",
    ],
)
def test_harmless_text_stays_byte_for_byte(text: str) -> None:
    assert safe(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("\\<script>", "&lt;script>"),
        ("<!-- 藏起来\n\n## 后文", "&lt;!-- 藏起来\n\n## 后文"),
        ("段落\n    <img src=x onerror=alert(1)>", "段落\n    &lt;img src=x onerror=alert(1)>"),
        ("<div>\n```\n<b>\n```\n</div>", "&lt;div>\n```\n<b>\n```\n&lt;/div>"),
        ("`未闭合 <b>", "`未闭合 &lt;b>"),
        ("a`\n\n<b>`", "a`\n\n&lt;b>`"),
        ("`x <http://evil>\n<!-- y`", "`x http://evil\n&lt;!-- y`"),
        ("| a |\n|---|\n    <b>x</b>", "| a |\n|---|\n    &lt;b>x&lt;/b>"),
        ("![图](http://evil/p.png?q=1)", "图"),
        ("![图][r]\n\n[r]: tech-notes/a.md\n", "图\n\n[r]: tech-notes/a.md\n"),
        ("[![图](http://evil/a)](http://evil/b)", "图"),
        ("[点我](http://evil.com)", "点我"),
        ("[点我](javascript:alert(1))", "点我"),
        ("[点我](JaVaScRiPt&colon;alert(1))", "点我"),
        ("[点我](java\\\nscript:alert(1))", "[点我]\\(java\\\nscript:alert(1))"),
        ("[点我](data:text/html;base64,PHM+ 'x')", "点我"),
        ("[点我](//evil.com/a)", "点我"),
        ("[点我](tech-notes/none.md)", "点我"),
        ("[点我](https://good.com)", "点我"),
        ("[点我](<http://evil.com/a b>)", "点我"),
        ("[外 [内](http://evil) 外](http://evil2)", "外 内 外"),
        ("[外 [内](tech-notes/a.md) 外](http://evil2)", "[外 [内](tech-notes/a.md) 外]\\(http://evil2)"),
        ("\\[x](http://evil)", "\\[x]\\(http://evil)"),
        ("<http://evil.com/a>", "http://evil.com/a"),
        ("<me@evil.com>", "me@evil.com"),
        ("[点我][r] [r][] [R]\n\n[r]: http://evil\n\n后文", "点我 r R\n\n\n\n后文"),
        ("> [r]: javascript:alert(1)\n> 't'\n\n[r]", "> \n\n\nr"),
        ('[r]: https://docs.example.com/x "<b>"\n', "\n"),
        ("[^1]: 脚注正文不是链接定义。\n", "[^1]\\: 脚注正文不是链接定义。\n"),
        ("[注意]: 先备份\n\n见[注意]。", "[注意]\\: 先备份\n\n见[注意]。"),
        ("前文\n[r]: http://evil\n", "前文\n[r]\\: http://evil\n"),
        ('[书](<说明 书/b c.md> "题")', "[书](说明%20书/b%20c.md)"),
        ("[<](x)script>", "&lt;script>"),
        ("<\u200bscript>", "&lt;script>"),
        ("支付\u202e宝\u200b\u2066\U000e0041\ufeff，\x1b[31m红\x00", "支付宝，[31m红"),
        ("a\ufe0f\ufe01\ufe02", "a\ufe0f"),
        ("| a | b |\n|---|---|\n| ` | <b>` |", "| a | b |\n|---|---|\n| ` | &lt;b>` |"),
    ],
)
def test_what_could_harm_is_shown_as_text(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```\n<b>", "```\n<b>\n```\n"),
        ("正文\n\n~~~~py\nx\n~~~\n", "正文\n\n~~~~py\nx\n~~~\n~~~~\n"),
        ("> ```\n> x\n", "> ```\n> x\n> ```\n"),
        (">- ~~~", ">- ~~~\n>   ~~~\n"),
        ("1. ```\n   x", "1. ```\n   x\n   ```\n"),
    ],
)
def test_an_open_fence_is_closed_where_it_ends(text: str, shown: str) -> None:
    assert safe(text) == shown
    assert safe(shown) == shown


def test_what_was_dropped_is_counted() -> None:
    result = make_safe("[a](http://x) ![b](http://y) <http://z>\n\n[r]: http://w\n", LINKS)
    assert (result.dropped_links, result.dropped_images) == (3, 1)


def test_links_of_a_page_in_qa_lead_from_there() -> None:
    in_qa = replace(LINKS, in_qa=True)
    text = "[a](tech-notes/a.md) [b](/tech-notes/a.md#x) [c](../tech-notes/a.md) [d](old.md) [e](qa/old.md)"
    shown = make_safe(text, in_qa).text
    assert shown == text.replace("(tech", "(../tech").replace("(/tech", "(../tech").replace("(qa/", "(../qa/")
    assert make_safe(shown, in_qa).text == shown


def test_a_line_knows_no_blocks_and_keeps_no_line_breaks() -> None:
    assert safe_line("```\n# 标题 <b>\n\n[x](http://evil)", NO_LINKS).text == "``` # 标题 &lt;b> x"


# fmt: off
PIECES = st.sampled_from([
    "[", "]", "(", ")", "](", "![", "<", ">", "`", "``", "```", "~~~", "\n", "\n\n", "\r\n", "    ", "  ", "\t",
    "> ", "- ", "1. ", "|", "\n|-|-|\n", "\\", "#", "# ", "!", '"', "'", "&lt;", "&#91;", "&colon;", ":", "]: ",
    "[r]", "[r]: ", "a", "中文", "b c", "http://evil.com", "tech-notes/a.md", SEEN_URL, "javascript:alert(1)",
    "<script>", "</b>", "<!--", "-->", "<a href=x>", "<http://evil.com>", "\u200b", "\ufe0f", "\x00", "---",
    "===", "*", "**", "_", "参考来源", "=", ".",
])
# fmt: on
# ---------------------------------------------------------------- whatever is written

MARKDOWN = st.lists(PIECES, max_size=40).map("".join)
RENDERERS = [
    MarkdownIt("commonmark", {"html": True}),
    MarkdownIt("commonmark", {"html": True}).enable("table"),
    MarkdownIt("commonmark", {"html": True}).disable("table").disable(["html_block"]),
]
for _renderer in RENDERERS:
    _renderer.validateLink = lambda url: True  # type: ignore[method-assign]


def all_tokens(tokens: list[Token]) -> list[Token]:
    return [found for token in tokens for found in [token, *all_tokens(token.children or [])]]


@settings(max_examples=600, deadline=None)
@given(MARKDOWN)
def test_no_renderer_finds_html_an_image_or_a_foreign_link(text: str) -> None:
    shown = safe(text)
    for renderer in RENDERERS:
        for token in all_tokens(renderer.parse(shown)):
            assert token.type not in {"html_block", "html_inline", "image"}
            if token.type == "link_open":
                assert LINKS.allows(str(token.attrs["href"]).replace("%20", " ")), shown


@settings(max_examples=600, deadline=None)
@given(MARKDOWN)
def test_a_safe_text_stays_as_it_is(text: str) -> None:
    once = safe(text)
    assert safe(once) == once
    line = safe_line(text, LINKS).text
    assert safe_line(line, LINKS).text == line


@settings(max_examples=300, deadline=None)
@given(MARKDOWN, MARKDOWN)
def test_code_keeps_its_bytes(before: str, code: str) -> None:
    """What stands before may do what it likes, except to open a fence of its own."""
    block = "".join(f"x{line}\n" for line in re.split(r"[\r\n]+", code.replace("~", "")))
    before = re.sub("[`~]", "", before)
    assert safe(f"{before}\n\n前文。\n\n~~~~~\n{block}~~~~~\n").endswith(f"\n~~~~~\n{block}~~~~~\n")


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "]",
        "[](",
        "](",
        "`",
        "`a",
        "<a",
        "![a](b ",
        "[a][b",
        "> ",
        "- ",
        "[a]: b\n",
        "| ` ",
        "[](<",
        "[](a (",
        "\\",
        "\u200b",
        "&",
        "(",
        "a\n",
    ],
)
def test_long_hostile_text_takes_no_long_time(piece: str) -> None:
    text = piece * (30_000 // len(piece))
    start = time.thread_time()
    safe(text)
    assert time.thread_time() - start < 20
