"""What is wrong between catalog, index and pages, and what mends it without touching anything else."""

from __future__ import annotations

import json

import pytest

from tasks.kb import index_page
from tasks.kb.catalog import CatalogError
from tasks.kb.page import read_page
from tasks.kb.soundness import Repository, check, cited_pages, mended

NOW = "2026-11-30T12:00:00Z"


def catalog(*paths: str, **more: object) -> bytes:
    entries = [{"path": path, "title": path, "type": "note", "owner": "张三"} for path in paths]
    return json.dumps({"version": 1, "pages": entries, **more}, ensure_ascii=False, indent=4).encode()


def repository(pages: dict[str, str], listed: bytes | None, index: str | None = None) -> Repository:
    return Repository({path: read_page(text) for path, text in pages.items()}, listed, index)


def index(*paths: str) -> str:
    return index_page.create([index_page.IndexEntry(path, path, "note") for path in paths], NOW)


def codes(found: Repository) -> set[tuple[str, str]]:
    return {(finding.code, finding.path) for finding in check(found)}


def test_a_sound_repository_has_nothing_to_mend() -> None:
    sound = repository({"a.md": "# A"}, catalog("a.md"), index("a.md"))
    assert check(sound) == []
    assert mended(sound, NOW).files == {}


def test_orphans_dead_entries_doubles_and_broken_pages_are_named() -> None:
    found = repository(
        {"a.md": "# A", "b.md": "---\nx: [\n---\n"},
        catalog("a.md", "gone.md", "a.md", "../x.md", "README.md", ""),
        index("a.md", "gone.md"),
    )
    assert codes(found) == {
        ("ORPHAN", "b.md"),
        ("DEAD_ENTRY", "gone.md"),
        ("DUPLICATE_ENTRY", "a.md"),
        ("UNSAFE_PATH", "../x.md"),
        ("HIDDEN_ENTRY", "README.md"),
        ("ENTRY_WITHOUT_PATH", "catalog.json"),
        ("FRONTMATTER_BROKEN", "b.md"),
        ("INDEX_LINE_DEAD", "gone.md"),
    }


def test_mending_lists_lost_pages_and_keeps_every_other_byte() -> None:
    before = catalog("a.md", "gone.md", "z.md", kept={"x": 1})
    lost = "---\ntitle: 找回\ntype: qa\nkeywords: [k]\nsourceIds: [7]\n---\n# H"
    text = index("a.md", "gone.md") + "\n## 手写\n\n- 不要动我\n"
    found = repository({"a.md": "# A", "b.md": lost, "z.md": "# Z"}, before, text)
    done = mended(found, NOW)
    assert (done.added, done.dropped) == (("b.md",), ("gone.md",))
    after = json.loads(done.files["catalog.json"])
    assert [entry["path"] for entry in after["pages"]] == ["a.md", "b.md", "z.md"]
    assert (after["kept"], after["pages"][0]["owner"]) == ({"x": 1}, "张三")
    assert (after["pages"][1]["title"], after["pages"][1]["sourceIds"]) == ("找回", [7])
    new_index = done.files["index.md"].decode()
    assert "gone.md" not in new_index
    assert "- 不要动我" in new_index
    assert {"a.md", "b.md", "z.md"} <= set(index_page.listed_paths(new_index))
    again = Repository(found.pages, done.files["catalog.json"], new_index)
    assert check(again) == []
    assert mended(again, NOW).files == {}


@pytest.mark.parametrize("doomed", [(0,), (1,), (3,), (0, 1), (2, 3), (0, 3), (0, 1, 2, 3)])
def test_any_entries_can_go(doomed: tuple[int, ...]) -> None:
    paths = ["a.md", "b.md", "c.md", "d.md"]
    kept = [path for number, path in enumerate(paths) if number not in doomed]
    done = mended(repository(dict.fromkeys(kept, "# X"), catalog(*paths)), NOW)
    assert [entry["path"] for entry in json.loads(done.files["catalog.json"])["pages"]] == kept


def test_entries_that_lead_out_of_the_pages_go_also_where_nothing_would_be_shown() -> None:
    found = repository({"a.md": "# A"}, catalog("a.md", "../b.md", ".git/config.md", "x/.git/c.md"), index("a.md"))
    done = mended(found, NOW)
    assert done.dropped == ("../b.md", ".git/config.md", "x/.git/c.md")
    assert check(Repository(found.pages, done.files["catalog.json"], found.index)) == []


def test_a_missing_catalog_is_made_from_the_pages_and_a_broken_one_is_left_alone() -> None:
    done = mended(repository({"a.md": "# A", "qa/b.md": "# B"}, None), NOW)
    assert [entry["path"] for entry in json.loads(done.files["catalog.json"])["pages"]] == ["a.md", "qa/b.md"]
    for broken in (b"{", b"", b"[]"):
        found = repository({"a.md": "# A"}, broken)
        assert ("CATALOG_INVALID", "catalog.json") in codes(found)
        with pytest.raises(CatalogError):
            mended(found, NOW)


def test_the_evidence_of_a_qa_page_is_what_its_frontmatter_cites() -> None:
    text = (
        "---\nsources:\n- {sourceType: kb_page, path: a.md}\n- {sourceType: url, path: x.md}\n"
        "- text\n- {sourceType: kb_page, path: a.md}\n---\n"
    )
    assert cited_pages(read_page(text)) == ["a.md"]
    assert cited_pages(read_page("# none")) == []
