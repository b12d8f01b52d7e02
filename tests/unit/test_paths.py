"""The allowed roots: what a payload may name, and what is never opened or overwritten."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tasks.errors import Code, PermanentError, TransientError
from worker.paths import AllowedRoots, PathError, write_atomic

TASK = "query-1-2"


@pytest.fixture
def share(tmp_path: Path) -> Path:
    folder = tmp_path / "share"
    folder.mkdir()
    return folder


@pytest.fixture
def roots(share: Path) -> AllowedRoots:
    return AllowedRoots(share)


def read(roots: AllowedRoots, path: str, payload_shared_dir: str | None = None) -> bytes:
    with os.fdopen(roots.open_readable(roots.rebase(path, payload_shared_dir)), "rb") as file:
        return file.read()


def refusal(roots: AllowedRoots, path: str) -> str:
    with pytest.raises(PathError) as caught:
        read(roots, path)
    return caught.value.fault


def result_code(roots: AllowedRoots, path: str, **more: object) -> Code:
    with pytest.raises((PermanentError, TransientError)) as caught:
        roots.check_result_path(path, None, task_id=TASK, **more)  # type: ignore[arg-type]
    assert "resultFile" in caught.value.en or caught.value.code is Code.RESULT_DIR_MISSING
    assert caught.value.zh
    return caught.value.code


class TestReading:
    def test_a_relative_path_is_relative_to_our_shared_directory(self, roots: AllowedRoots, share: Path) -> None:
        (share / "甲.txt").write_bytes(b"x")
        assert read(roots, "甲.txt") == b"x"
        assert read(roots, "./甲.txt") == b"x"

    @pytest.mark.parametrize("theirs", ["/data/shared", "/data/shared/", "//data/./shared", "/data/x/../shared"])
    def test_a_path_below_the_payloads_shared_directory_means_the_same_path_below_ours(
        self, roots: AllowedRoots, share: Path, theirs: str
    ) -> None:
        (share / "in").mkdir()
        (share / "in" / "a").write_bytes(b"x")
        assert read(roots, "/data/shared/in/a", theirs) == b"x"

    def test_a_name_that_only_starts_like_the_payloads_directory_is_not_below_it(self, roots: AllowedRoots) -> None:
        assert roots.rebase("/data/shared2/a", "/data/shared") == Path("/data/shared2/a")

    @pytest.mark.parametrize(
        ("path", "theirs"),
        [
            ("D:\\share\\in\\a", "D:\\share"),
            ("d:/Share/in/a", "D:/share/"),
            ("in\\a", "D:\\share"),
            ("in/a", "D:\\share"),
            ("\\\\nas\\share\\in\\a", "\\\\nas\\share"),
        ],
    )
    def test_a_backend_on_windows_writes_its_paths_its_own_way(
        self, roots: AllowedRoots, share: Path, path: str, theirs: str
    ) -> None:
        (share / "in").mkdir()
        (share / "in" / "a").write_bytes(b"x")
        assert read(roots, path, theirs) == b"x"

    @pytest.mark.parametrize("theirs", ["D:\\share", None])
    @pytest.mark.parametrize("path", ["C:\\other\\a", "D:\\share2\\a", "\\\\nas\\share\\a"])
    def test_another_drive_is_nowhere_here(self, roots: AllowedRoots, path: str, theirs: str | None) -> None:
        with pytest.raises(PathError) as caught:
            read(roots, path, theirs)
        assert caught.value.fault == "OUTSIDE_ALLOWED_ROOTS"

    def test_dots_of_windows_do_not_lead_outside_either(self, roots: AllowedRoots, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"s")
        for path in ("D:\\share\\..\\secret", "..\\secret"):
            with pytest.raises(PathError):
                read(roots, path, "D:\\share")

    def test_the_payloads_shared_directory_never_widens_a_root(self, roots: AllowedRoots, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"s")
        with pytest.raises(PathError):
            read(roots, str(tmp_path / "secret"), str(tmp_path))
        with pytest.raises(PathError):
            read(roots, str(tmp_path / "secret"), "/")

    def test_dots_that_lead_outside_are_refused_and_dots_that_stay_inside_are_not(
        self, roots: AllowedRoots, share: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_bytes(b"s")
        (share / "in").mkdir()
        (share / "a").write_bytes(b"x")
        assert refusal(roots, "../secret") == "OUTSIDE_ALLOWED_ROOTS"
        assert refusal(roots, f"{share}/in/../../secret") == "OUTSIDE_ALLOWED_ROOTS"
        assert read(roots, "in/../a") == b"x"

    def test_a_symlink_is_followed_only_to_a_place_inside(
        self, roots: AllowedRoots, share: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_bytes(b"s")
        (share / "a").write_bytes(b"x")
        (share / "good").symlink_to(share / "a")
        (share / "bad").symlink_to(tmp_path / "secret")
        (share / "folder").symlink_to(tmp_path)
        (share / "loop").symlink_to(share / "loop")
        assert read(roots, "good") == b"x"
        assert refusal(roots, "bad") == "OUTSIDE_ALLOWED_ROOTS"
        assert refusal(roots, "folder/secret") == "OUTSIDE_ALLOWED_ROOTS"
        assert refusal(roots, "loop") in ("OUTSIDE_ALLOWED_ROOTS", "NOT_FOUND", "NOT_A_FILE")

    def test_a_root_that_is_itself_a_symlink_works(self, share: Path, tmp_path: Path) -> None:
        (share / "a").write_bytes(b"x")
        (tmp_path / "mount").symlink_to(share)
        assert read(AllowedRoots(tmp_path / "mount"), "a") == b"x"
        assert read(AllowedRoots(tmp_path / "mount"), str(share / "a")) == b"x"

    def test_only_regular_files_are_opened_and_a_fifo_does_not_hang(self, roots: AllowedRoots, share: Path) -> None:
        os.mkfifo(share / "fifo")
        (share / "folder").mkdir()
        assert refusal(roots, "fifo") == "NOT_A_FILE"
        assert refusal(roots, "folder") == "NOT_A_FILE"
        assert refusal(roots, "/dev/null") == "OUTSIDE_ALLOWED_ROOTS"

    @pytest.mark.parametrize("path", ["nothing", "a/below-a-file", "", "x" * 5000])
    def test_what_is_not_there_is_not_found(self, roots: AllowedRoots, share: Path, path: str) -> None:
        (share / "a").write_bytes(b"x")
        assert refusal(roots, path) == "NOT_FOUND"

    @pytest.mark.parametrize("path", ["a\0b", "\ud800", "a\0/../../etc/passwd"])
    def test_text_that_cannot_be_a_path_is_refused(self, roots: AllowedRoots, path: str) -> None:
        assert refusal(roots, path) == "OUTSIDE_ALLOWED_ROOTS"

    def test_configured_roots_replace_the_default_one(self, share: Path, tmp_path: Path) -> None:
        uploads = tmp_path / "uploads"
        uploads.mkdir()
        (uploads / "a").write_bytes(b"x")
        (share / "b").write_bytes(b"y")
        roots = AllowedRoots(share, [uploads])
        assert read(roots, str(uploads / "a")) == b"x"
        assert refusal(roots, "b") == "OUTSIDE_ALLOWED_ROOTS"

    def test_a_folder_swapped_for_a_symlink_after_the_check_is_not_followed(self, share: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "a").write_bytes(b"secret")
        (share / "in").mkdir()
        (share / "in" / "a").write_bytes(b"x")

        class Swapping(AllowedRoots):
            def resolve(self, path: Path) -> Path:
                real = super().resolve(path)
                (share / "in").rename(share / "old")
                (share / "in").symlink_to(tmp_path / "elsewhere")
                return real

        with pytest.raises(PathError):
            Swapping(share).open_readable(share / "in" / "a")


class TestResultPath:
    def test_a_new_json_file_in_an_existing_folder_is_allowed(self, roots: AllowedRoots, share: Path) -> None:
        assert roots.check_result_path("结果.json", None, task_id=TASK) == share / "结果.json"
        assert roots.check_result_path("/d/out.json", "/d", task_id=TASK) == share / "out.json"

    @pytest.mark.parametrize(
        "path",
        [
            *("a.txt", "a.JSON", "a.json/", "", "../a.json", "/etc/a.json", ".kbw/a.json", "x/../.kbw/jobs/a.json"),
            *("..\\a.json", "x\\a.json", "C:\\x\\a.json", "C:/x/a.json"),
        ],
    )
    def test_what_the_contract_forbids_is_refused_for_good(self, roots: AllowedRoots, share: Path, path: str) -> None:
        (share / ".kbw" / "jobs").mkdir(parents=True)
        (share / "x").mkdir()
        assert result_code(roots, path) is Code.PATH_NOT_ALLOWED

    def test_a_missing_folder_is_not_created_but_tried_again(self, roots: AllowedRoots, share: Path) -> None:
        assert result_code(roots, "out/a.json") is Code.RESULT_DIR_MISSING
        assert not (share / "out").exists()
        with pytest.raises(TransientError):
            roots.write_result(share / "out" / "a.json", b"{}")
        assert not (share / "out").exists()

    def test_links_folders_payload_and_attachments_are_refused(
        self, roots: AllowedRoots, share: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "target.json").write_text("{}")
        (share / "link.json").symlink_to(tmp_path / "target.json")
        (share / "dangling.json").symlink_to(share / "nowhere.json")
        (share / "outside").symlink_to(tmp_path)
        (share / "dir.json").mkdir()
        mine = json.dumps({"success": True, "taskId": TASK})
        (share / "payload.json").write_text(mine)
        (share / "in").mkdir()
        for path in ("link.json", "dangling.json", "outside/new.json", "dir.json"):
            assert result_code(roots, path) is Code.PATH_NOT_ALLOWED
        taken = [share / "in" / ".." / "payload.json"]
        assert result_code(roots, "payload.json", taken=taken) is Code.PATH_NOT_ALLOWED

    def test_only_a_result_of_the_same_task_may_be_replaced(self, roots: AllowedRoots, share: Path) -> None:
        (share / "mine.json").write_text(json.dumps({"success": False, "taskId": TASK}))
        (share / "other.json").write_text(json.dumps({"success": True, "taskId": "query-9-9"}))
        (share / "payload.json").write_text(json.dumps({"question": "?", "taskId": TASK}))
        odd = {"success": True, "question": "?", "skill": "kb_query", "taskId": TASK}
        (share / "payload-with-success.json").write_text(json.dumps(odd))
        (share / "list.json").write_text("[1]")
        (share / "empty.json").write_text("")
        (share / "deep.json").write_text("[" * 100_000)
        os.mkfifo(share / "fifo.json")
        assert roots.check_result_path("mine.json", None, task_id=TASK) == share / "mine.json"
        refused = ("other", "payload", "payload-with-success", "list", "empty", "deep", "fifo")
        for name in refused:
            assert result_code(roots, f"{name}.json") is Code.PATH_NOT_ALLOWED

    def test_the_refusal_names_the_field_and_the_allowed_roots(self, roots: AllowedRoots, share: Path) -> None:
        with pytest.raises(PermanentError) as caught:
            roots.check_result_path("/etc/a.json", None, task_id=TASK)
        for text in (caught.value.en, caught.value.zh):
            assert "resultFile" in text
            assert str(share) in text


class TestWriting:
    def test_the_file_is_whole_readable_and_alone(self, roots: AllowedRoots, share: Path) -> None:
        old = os.umask(0o022)
        try:
            roots.write_result(share / "r.json", b"{}")
            roots.write_result(share / "m.json", b"{}", 0o600)
        finally:
            os.umask(old)
        assert (share / "r.json").read_bytes() == b"{}"
        assert (share / "r.json").stat().st_mode & 0o777 == 0o644
        assert (share / "m.json").stat().st_mode & 0o777 == 0o600
        assert sorted(p.name for p in share.iterdir()) == ["m.json", "r.json"]

    def test_a_link_put_in_place_of_the_file_is_replaced_never_followed(
        self, roots: AllowedRoots, share: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "victim").write_bytes(b"v")
        (share / "r.json").symlink_to(tmp_path / "victim")
        roots.write_result(share / "r.json", b"{}")
        assert (tmp_path / "victim").read_bytes() == b"v"

    def test_a_folder_that_became_a_link_is_not_written_through(
        self, roots: AllowedRoots, share: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (share / "out").symlink_to(tmp_path / "elsewhere")
        with pytest.raises((PermanentError, TransientError)):
            roots.write_result(share / "out" / "r.json", b"{}")
        assert not list((tmp_path / "elsewhere").iterdir())

    def test_a_folder_in_place_of_the_file_is_refused_and_leaves_no_temporary(
        self, roots: AllowedRoots, share: Path
    ) -> None:
        (share / "r.json").mkdir()
        with pytest.raises(PermanentError):
            roots.write_result(share / "r.json", b"{}")
        assert [p.name for p in share.iterdir()] == ["r.json"]

    def test_write_atomic_replaces_and_cleans_up(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / "a", b"1")
        write_atomic(tmp_path / "a", b"2", 0o640, token=lambda n: "ab" * n)
        assert (tmp_path / "a").read_bytes() == b"2"
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
        (tmp_path / "folder").mkdir()
        with pytest.raises(OSError, match="folder"):
            write_atomic(tmp_path / "folder", b"3")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "folder"]

    def test_a_long_name_still_has_room_for_the_temporary_ending(self, tmp_path: Path) -> None:
        write_atomic(tmp_path / ("长" * 80), b"1")
        assert [p.name for p in tmp_path.iterdir()] == ["长" * 80]
