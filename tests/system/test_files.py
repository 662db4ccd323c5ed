"""Writing files: whole or not at all, by several at once, into what is no file; and reading."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from golden import check
from isthmus.errors import UnwritableError
from isthmus.system.files import (
    append_text,
    hold_lock,
    open_regular,
    overwrite,
    remove_drafts,
    write_bytes,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_by_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    write_text(path, "größer\r\n")
    assert path.read_bytes() == "größer\r\n".encode()
    write_bytes(path, b"\x00", sync=True)
    assert path.read_bytes() == b"\x00"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("before", [None, b"old"])
def test_what_fails_changes_nothing(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "a.txt"
    if before is not None:
        path.write_bytes(before)

    def fail() -> None:
        with overwrite(path) as file:
            file.write(b"half")
            file.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (path.read_bytes() if path.exists() else None) == before
    assert names(tmp_path) == ([] if before is None else ["a.txt"])


def test_readers_find_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with overwrite(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_several_may_write_one_file_at_once(tmp_path: Path) -> None:
    """Threads of one process, which share its number; every text is long enough to be torn."""
    path, texts = tmp_path / "a.txt", [str(k) * 200_000 for k in range(8)]
    threads = [threading.Thread(target=write_text, args=(path, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert names(tmp_path) == ["a.txt"]


def test_what_is_no_regular_file_is_written_into(tmp_path: Path) -> None:
    write_text(Path(os.devnull), "nothing")
    assert not Path(os.devnull).is_file()
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "through")
    reader.join()
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_has_the_permissions_of_any_new_one(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_text(tmp_path / "whole", "")
    modes = [(tmp_path / name).stat().st_mode for name in ("plain", "whole")]
    assert modes[0] == modes[1]


KILLED = """
import sys, time
from pathlib import Path
from isthmus.system.files import overwrite
with overwrite(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    time.sleep(60)
"""


def test_the_draft_of_a_killed_process_is_removed_and_that_of_a_live_one_stays(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "a.bin")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    (tmp_path / "train-images.gz.part").write_bytes(b"the beginning of a download")
    (draft,) = tmp_path.glob("a.bin.*.part")
    remove_drafts(tmp_path)
    assert draft.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert draft.exists()
    remove_drafts(tmp_path)
    assert names(tmp_path) == ["train-images.gz.part"]


def test_drafts_are_not_removed_while_threads_write(tmp_path: Path) -> None:
    """Whoever removes drafts may see one before it is locked, or after."""

    def write() -> None:
        for _ in range(300):
            write_text(tmp_path / "a.txt", "whole")

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        remove_drafts(tmp_path)
    assert (tmp_path / "a.txt").read_text() == "whole"
    assert names(tmp_path) == ["a.txt"]


def test_one_at_a_time_holds_a_lock_which_leaves_nothing(tmp_path: Path) -> None:
    path, inside, most, waited = tmp_path / "it.lock", [0], [0], []

    def work() -> None:
        with hold_lock(path, 60, lambda: None) as had_to_wait:
            waited.append(had_to_wait)
            inside[0] += 1
            most.append(inside[0])
            time.sleep(0.02)
            inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (max(most), len(waited)) == (1, 6)
    assert any(waited)
    assert names(tmp_path) == []


def test_a_lock_is_not_waited_for_without_end(tmp_path: Path) -> None:
    path, told = tmp_path / "it.lock", []
    with (
        hold_lock(path, 60, lambda: None),
        pytest.raises(TimeoutError, match="another process holds it"),
        hold_lock(path, 0.1, lambda: told.append("wait")),
    ):
        pass
    assert told == ["wait"]


def test_what_a_killed_process_left_of_a_lock_is_none(tmp_path: Path) -> None:
    (tmp_path / "it.lock").write_bytes(b"")
    with hold_lock(tmp_path / "it.lock", 0, lambda: None) as waited:
        assert not waited
    assert names(tmp_path) == []


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path: Path) -> None:
    for name in ("a" * 255, "é" * 127):
        write_text(tmp_path / name, "here")
        assert names(tmp_path) == [name]
        (tmp_path / name).unlink()


def test_no_folder_has_no_drafts(tmp_path: Path) -> None:
    remove_drafts(tmp_path / "nowhere")
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder", "link"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as there:
            there.bind(os.path.relpath(path))
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
        open_regular(path)


def test_a_file_is_opened_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"here")
    with open_regular(tmp_path / "a") as file:
        assert file.read() == b"here"
    with pytest.raises(OSError, match="no file has such a name"):
        open_regular("a\0b")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "b")


def small_disk_that_is_full(tmp_path: Path) -> Path:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    return Path("/dev/full")


HOPELESS = {
    "below a file": (lambda folder: folder / "file" / "a.txt", "Not a directory|File exists"),
    "a directory": (lambda folder: folder, "Is a directory"),
    "a name of 300 letters": (lambda folder: folder / ("a" * 300), "File name too long.*shorter"),
    "a folder of 300 letters": (lambda folder: folder / ("a" * 300) / "b", "File name too long"),
    "a full disk": (small_disk_that_is_full, "No space left on device; free some space"),
    "no place for files": (lambda folder: Path("/proc/a.txt"), "No such file|denied|not permitted"),
}


@pytest.mark.parametrize("where", HOPELESS)
def test_what_cannot_be_written_is_one_line_with_the_file_and_the_reason(
    tmp_path: Path, where: str
) -> None:
    (tmp_path / "file").write_text("here")
    place, reason = HOPELESS[where]
    path = place(tmp_path)
    with pytest.raises(UnwritableError, match=reason) as raised:
        write_text(path, "a" * 100_000)
    check(str(raised.value))
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "here"


def test_the_longest_names_are_written(tmp_path: Path) -> None:
    """A disk holds names of 255 bytes; their drafts have others."""
    for name in ("a" * 255, "é" * 127, "日" * 85):
        write_text(tmp_path / name, "here")
        assert (tmp_path / name).read_text() == "here"


def test_directories_that_are_missing_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "b" / "c" / "a.txt", "here")
    assert (tmp_path / "b" / "c" / "a.txt").read_text() == "here"


def test_letters_that_no_text_can_hold_are_escaped(tmp_path: Path) -> None:
    """A file name that is not UTF-8 has such letters, and may be named in any file."""
    path = tmp_path / os.fsdecode(b"\xff.txt")
    write_text(path, f"{path.name}\n")
    append_text(path, "\udc80\n")
    assert path.read_bytes() == b"\\udcff.txt\n\\udc80\n"


def test_text_is_added_at_the_end_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text in ("é\r\n", "b\n"):
        append_text(path, text)
    assert path.read_bytes() == "é\r\nb\n".encode()
    with pytest.raises(UnwritableError, match=r"cannot be written: Not a directory"):
        append_text(path / "b", "c")
