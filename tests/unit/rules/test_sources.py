"""Every answer ends with one list of checked sources, and nothing else that a model wrote is lost for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contract.answer import AnswerSource
from tasks.contract.pages import SourceTrace
from tasks.rules.links import NO_LINKS
from tasks.rules.markdown_blocks import parse
from tasks.rules.safe_markdown import make_safe
from tasks.rules.sources import NO_SOURCES, section, with_section, without_sections
from tests.answer_material import PAGE_A


def source(**fields: object) -> AnswerSource:
    return AnswerSource.model_validate({"path": "a.md", "title": "甲", **fields})


def test_the_exact_form_of_a_source() -> None:
    full = source(path=PAGE_A.path, title=PAGE_A.title, source_traces=PAGE_A.source_traces)
    assert section([full, source()]) == (
        "## 参考来源\n\n"
        "- 《AUTO_RANDOM》 tech-notes/auto-random.md\n"
        "  - 源文件 设计.docx ｜ 归档 source_files/local_folder/设计.docx ｜ https://docs.example.com/auto-random ｜ "
        "commit 0a1b2c3\n"
        "- 《甲》 a.md"
    )


def test_only_what_has_a_value_is_shown() -> None:
    traces = [SourceTrace(commit_hash="abc"), SourceTrace(source_type="local"), SourceTrace(title="原始资料")]
    assert section([source(source_traces=traces)]).splitlines()[3:] == ["  - commit abc", "  - 源文件 原始资料"]


def test_no_sources_is_said() -> None:
    assert with_section("正文", []) == f"正文\n\n## 参考来源\n\n{NO_SOURCES}\n"


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("多行\n标题", "多行 标题"),
        ("《书》名", "〈书〉名"),
        ("[x](http://evil)", "\\[x\\]\\(http://evil)"),
        ("<b>`x`", "&lt;b>\\`x\\`"),
        ("# 标题\u202e", "# 标题"),
        ("", "a.md"),
    ],
)
def test_a_title_cannot_become_markup(title: str, shown: str) -> None:
    text = section([source(title=title)])
    assert text.endswith(f"- 《{shown}》 a.md")
    assert make_safe(text, NO_LINKS).text == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("正文\n\n## 参考来源\n\n- a\n", "正文"),
        ("正文\n\n# 参考来源：\n1. a.md\n", "正文"),
        ("正文\n\n###### 参考来源（外部）\n- https://x.example\n", "正文"),
        ("正文\n\n参考来源\n----\n\n- a", "正文"),
        ("正文\n\n## **参考来源**\n\n知识库中未找到可支撑本问题的页面", "正文"),
        ("正文\n\n**参考来源：**\n- 《A》 a.md\n  - 源文件 x", "正文"),
        ("正文\n\n**参考来源**\n《A》 a.md\n《B》 b.md", "正文"),
        ("正文\n\n参考来源：\n\n1. a.md\n", "正文"),
        ("正文\n\n参考来源：a.md、《B》 b/c.md", "正文"),
        ("正文\n\n## 五、参考来源\n\n| 标题 | 路径 |\n|---|---|\n| A | a.md |\n", "正文"),
        ("正文\n\n## 📚 参考来源\n\n本回答参考以下页面：\n\n- a\n", "正文"),
        ("正文\n\n## 参考来源\n\n### 知识库页面\n- a.md\n\n### 外部\n- https://x.example\n", "正文"),
        ("正文\n\n> ## 参考来源\n> - a\n\n后文", "正文\n\n后文"),
        ("正文\n\n## References\n\n- [A](tech/a.md)\n- https://x.example\n", "正文"),
        ("正文\n\n## 【参考来源】\n\n- a.md\n\n后文", "正文\n\n后文"),
        ("正文\n\n【参考来源】\n\n- a.md\n\n后文", "正文\n\n后文"),
        ("正文\n\n参考来源如下：\n\n- a.md\n\n后文", "正文\n\n后文"),
        ("正文\n\n以下是参考来源：\n\n- a.md\n\n后文", "正文\n\n后文"),
        ("正文\n\n## 參考來源\n\n- 《A》 a.md\n", "正文"),
        ("## 参考来源\n- a\n\n最后一段不能丢。", "最后一段不能丢。"),
        ("## 参考来源\n- a\n\n下一步：\n- 先备份\n", "下一步：\n- 先备份"),
        ("# 一\n\n## 参考来源\n- a\n### 补充\n不能丢\n\n## 参考来源\n- b", "# 一\n\n### 补充\n不能丢"),
    ],
)
def test_the_models_own_sections_go_and_the_text_after_them_stays(text: str, left: str) -> None:
    assert without_sections(text).strip() == left


@pytest.mark.parametrize(
    "text",
    [
        "前文提到“## 参考来源”小节的写法。",
        "```\n## 参考来源\n- a\n```",
        "用 `## 参考来源` 结尾。",
        "## 参考来源的写法\n\n- 先列标题",
        "参考来源：a.md 里说要先备份。",
        "参考来源是必需的。\n\n- 项",
        "## References in Rust\n\n- use `&`",
        "## Sources\n\n- 光源\n- 声源",
        "## 參考資料的寫法\n\n- 先列標題",
        "参考来源如下一节所述。",
        "    ## 参考来源",
    ],
)
def test_the_words_alone_are_no_section(text: str) -> None:
    assert without_sections(text) == text


# fmt: off
PIECES = st.sampled_from([
    "## 参考来源\n", "**参考来源：**\n", "参考来源", "# 参考来源（外部）\n", "- a.md\n", "- x\n", "正文\n", "\n",
    "```\n", "> ", "  ", "| a |\n|---|\n", "References\n---\n", "1. ", "### ", "：", "~~~\n",
])
# fmt: on


@settings(max_examples=800, deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join))
def test_exactly_one_section_whatever_is_written(text: str) -> None:
    body = make_safe(without_sections(make_safe(text, NO_LINKS).text), NO_LINKS).text
    shown = with_section(body, [source()])
    tokens = parse(shown).tokens
    found = [
        at for at, token in enumerate(tokens)
        if token.type == "heading_open" and token.level == 0 and tokens[at + 1].content.strip() == "参考来源"
    ]  # fmt: skip
    assert len(found) == 1
    assert f"\n\n{shown}".endswith("\n\n## 参考来源\n\n- 《甲》 a.md\n")
    assert without_sections(without_sections(text)) == without_sections(text)
