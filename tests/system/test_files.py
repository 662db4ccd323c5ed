"""Writing files: whole or not at all, by several at once, and into what is no file."""

import os
import stat
import threading
from pathlib import Path

import pytest

from isthmus.system.files import overwrite, write_bytes, write_text


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
