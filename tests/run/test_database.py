"""The database: whole transactions, one holder at a time, and damage that is always noticed."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import ItemsView, Iterator
from pathlib import Path

import lmdb
import pytest

from golden import check, raises
from isthmus import IsthmusError
from isthmus.run import database
from isthmus.run.database import FORMAT_KEY, Database, is_blank

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def commits() -> Iterator[dict[bytes, bytes]]:
    """Twelve rounds with small and large values, of which many are written several times."""
    rng = random.Random(1)
    for t in range(1, 13):
        own = {b"own/%012d" % i: bytes([t, i]) * rng.choice([40, 3000]) for i in range(t, 90, 7)}
        yield {
            b"server": bytes([t]) * 9000,
            b"progress": b"%d" % t,
            b"round/%012d" % t: b"r" * t,
            **own,
        }


def fill(path: Path) -> list[dict[bytes, bytes]]:
    """Writes the commits; gives what the database held after each."""
    held: dict[bytes, bytes] = {}
    states = []
    filled = Database(path, new=True, sync="system")
    for changes in commits():
        filled.write(changes)
        held |= changes
        states.append(dict(held))
    filled.close()
    return states


def contents(opened: Database) -> dict[bytes, bytes]:
    """Reads every value there is."""
    found = {}
    for prefix in (b"own/", b"round/", b"server", b"progress"):
        for key in opened.keys(prefix):
            value = opened.read(key)
            assert value is not None
            found[key] = value
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.lmdb"


@pytest.fixture
def empty(path: Path) -> Iterator[Database]:
    opened = Database(path, new=True, sync="system")
    yield opened
    opened.close()


class Broken(dict[bytes, bytes]):
    """Changes of which the last cannot be had."""

    def items(self) -> ItemsView[bytes, bytes]:
        yield from dict.items(self)  # type: ignore[misc]
        raise KeyboardInterrupt


def refused(path: Path, reason: str = "") -> str:
    """Opens a database that cannot be used: one line says why, and the file stays as it is."""
    before = path.read_bytes()
    with pytest.raises(IsthmusError) as caught:
        Database(path)
    (line,) = str(caught.value).splitlines()
    assert str(path) in line
    assert reason in line
    assert path.read_bytes() == before
    return line


def test_what_is_written_is_read(path: Path) -> None:
    *_, last = fill(path)
    opened = Database(path)
    assert contents(opened) == last
    opened.close()


def test_a_missing_key_has_no_value(empty: Database) -> None:
    empty.write({b"here": b""})
    assert (empty.read(b"here"), empty.read(b"there")) == (b"", None)
    assert (b"here" in empty, b"there" in empty) == (True, False)


def test_keys_of_a_prefix_come_in_order(empty: Database) -> None:
    names = [b"own/2", b"own/10", b"own/1", b"own", b"own0", b"round/1", b"a"]
    empty.write(dict.fromkeys(names, b"x"))
    assert list(empty.keys(b"own/")) == [b"own/1", b"own/10", b"own/2"]
    assert list(empty.keys(b"own")) == [b"own", b"own/1", b"own/10", b"own/2", b"own0"]
    assert list(empty.keys(b"zebra")) == []


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    *_, last = fill(path)
    opened = Database(path)
    with pytest.raises(KeyboardInterrupt):
        opened.write(Broken({b"server": b"new", b"own/new": b"new"}))
    assert contents(opened) == last
    opened.close()
    opened = Database(path)
    assert contents(opened) == last
    opened.write({b"server": b"new"})  # and it can go on
    assert opened.read(b"server") == b"new"
    opened.close()


def test_the_map_grows_in_the_middle_of_a_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three megabytes, where the map begins with 64 KiB; also while keys are looked through."""
    monkeypatch.setattr(database, "SMALLEST_MAP", 2**16)
    opened = Database(path, new=True, sync="system")
    opened.write({b"own/1": b"1", b"own/2": b"2"})
    looking = opened.keys(b"own/")
    assert next(looking) == b"own/1"
    large = {b"own/%d" % i: bytes([i]) * 100_000 for i in range(10, 40)}
    opened.write(large)
    assert next(looking) == b"own/2"
    opened.close()
    opened = Database(path)
    assert contents(opened) == {b"own/1": b"1", b"own/2": b"2", **large}
    opened.close()


def test_a_map_that_cannot_grow_loses_the_transaction_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "SMALLEST_MAP", 2**20)
    *_, last = fill(path)
    plain = lmdb.open

    class Full:
        """An environment that has no more room in the address space."""

        def __init__(self, environment: lmdb.Environment):
            self.begin, self.info, self.stat = environment.begin, environment.info, environment.stat
            self.close = environment.close

        def set_mapsize(self, _: int) -> None:
            raise lmdb.MemoryError("no room")

    monkeypatch.setattr(lmdb, "open", lambda *given, **named: Full(plain(*given, **named)))
    opened = Database(path)
    with raises(IsthmusError):
        opened.write({b"small": b"s", b"large": bytes(2**23)})
    assert contents(opened) == last
    assert b"small" not in opened
    opened.close()


def test_a_closed_database_says_so(path: Path) -> None:
    fill(path)
    opened = Database(path)
    opened.close()
    for use in (
        lambda: opened.read(b"server"),
        lambda: opened.write({b"server": b""}),
        lambda: opened.keys(b"own/"),
        lambda: b"server" in opened,
    ):
        with raises(RuntimeError):
            use()
    opened.close()  # twice is once


HOLD = """
import sys
from pathlib import Path
from isthmus.run.database import Database

held = Database(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Starts a process that holds a database until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_named(path: Path) -> None:
    *_, last = fill(path)
    other = holder(path)
    with raises(IsthmusError):
        Database(path)
    other.communicate()
    opened = Database(path)
    assert contents(opened) == last
    opened.close()


def test_a_second_holder_in_the_same_process_is_refused(path: Path) -> None:
    fill(path)
    opened = Database(path)
    for new in (False, True):
        with raises(IsthmusError):
            Database(path, new=new)
    assert opened.read(b"progress") == b"12"
    opened.close()
    Database(path).close()


def test_a_killed_process_holds_nothing(path: Path) -> None:
    *_, last = fill(path)
    other = holder(path)
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert path.with_suffix(".lock").read_text() == str(other.pid)
    opened = Database(path)
    assert contents(opened) == last
    opened.close()


def test_no_lock_is_left_where_there_is_no_run(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with raises(IsthmusError):
            Database(place / "state.lmdb")
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_never_began_can_begin_again(path: Path) -> None:
    """Whoever makes one may be killed before the file has bytes, or before the first commit."""
    path.touch()
    refused(path, "was stopped before it began")
    assert is_blank(path)
    Database(path, new=True).close()
    refused(path, "was stopped before it began")
    assert is_blank(path)
    opened = Database(path, new=True)
    opened.write({b"a": b"1"})
    opened.close()
    assert not is_blank(path)


def test_a_new_database_takes_nobodys_place(path: Path) -> None:
    fill(path)
    before = path.read_bytes()
    with raises(IsthmusError):
        Database(path, new=True)
    path.write_bytes(b"something else")
    with raises(IsthmusError):
        Database(path, new=True)
    assert path.read_bytes() == b"something else" != before


def raw(path: Path, changes: dict[bytes, bytes | None]) -> None:
    """Changes a file behind the database's back."""
    environment = lmdb.open(str(path), subdir=False, lock=False, map_size=2**24)
    with environment.begin(write=True) as transaction:
        for key, value in changes.items():
            if value is None:
                transaction.delete(key)
            else:
                transaction.put(key, value)
    environment.close()


LENGTHS = (0, 1, 100, PAGE - 1, PAGE, PAGE + 100, 2 * PAGE - 1, 2 * PAGE)


@pytest.mark.parametrize("cut", [*LENGTHS, 1e-4, 0.3, 0.9, -1])
def test_a_file_that_was_cut_short_is_refused(path: Path, cut: float) -> None:
    fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(cut * len(whole)) if 0 < cut < 1 else int(cut)])
    refused(path)


def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    for content in (b"text\n" * 4000, b"\x89PNG\r\n" + bytes(9000), bytes(20000)):
        path.write_bytes(content)
        refused(path, "not an LMDB data file")
    path.unlink()
    raw(path, {b"server": b"theirs", b"key": b"value"})
    refused(path, "it is another program's")
    for name in ("isthmus run 2", "isthmus run 5"):
        path.unlink()
        fill(path)
        raw(path, {FORMAT_KEY: name.encode()})
        check(refused(path, f"it is of the format {name!r}"))


def test_entries_of_different_times_are_refused(path: Path, tmp_path: Path) -> None:
    """Each is intact by itself, with its own seal: a lost one, an older one, a strange one."""
    fill(path)
    environment = lmdb.open(str(path), subdir=False, lock=False)
    with environment.begin() as transaction:
        now = dict(transaction.cursor())
    environment.close()
    key, seal = b"own/%012d" % 12, b"seal/own/%012d" % 12
    old = bytes([1, 12]) * 40
    changes: list[dict[bytes, bytes | None]] = [
        {key: None, seal: None},
        {key: None},
        {seal: None},
        {key: old, seal: database.checksum(key, old)},
        {b"own/x": b"x", b"seal/own/x": database.checksum(b"own/x", b"x")},
        {b"own/x": now[key], b"seal/own/x": now[seal], key: None, seal: None},
    ]
    whole = path.read_bytes()
    for number, change in enumerate(changes):
        copy = tmp_path / str(number) / path.name
        copy.parent.mkdir()
        copy.write_bytes(whole)
        raw(copy, change)
        refused(copy)
    Database(path).close()


def flips(whole: bytes) -> Iterator[tuple[int, int]]:
    """Places to flip a bit: anywhere, in the heads of the first two pages, in pages of the tree."""
    rng = random.Random(3)
    size = int.from_bytes(whole[40:44], sys.byteorder)  # of a page
    heads = {n: whole[n * size : n * size + 12] for n in range(len(whole) // size)}
    trees = [
        n
        for n, head in heads.items()
        if n > 1
        and int.from_bytes(head[:8], sys.byteorder) == n
        and int.from_bytes(head[10:], sys.byteorder) in (1, 2)
    ]
    assert len(trees) > 5
    for _ in range(50):
        yield rng.randrange(len(whole)), rng.randrange(8)
        yield rng.randrange(2) * size + rng.randrange(160), rng.randrange(8)
        yield rng.choice(trees) * size + rng.randrange(size), rng.randrange(8)


# A process of its own plays the flips, so that its death is a failure that says where.
FLIPPED = """
import sys
from pathlib import Path
import test_database
from isthmus import IsthmusError
from isthmus.run.database import Database

path, whole = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()
states = [{}]
for changes in test_database.commits():
    states.append(states[-1] | changes)

def outcome(damaged):
    try:
        opened = Database(path, sync="system")
    except IsthmusError as error:
        assert "\\n" not in str(error)
        assert path.read_bytes() == damaged
        return "refused"
    try:
        try:
            found = test_database.contents(opened)
        except IsthmusError as error:
            assert "cannot be used" in str(error)
            return "refused when read"
        name = {12: "right", 11: "the commit before"}[states.index(found)]
        # And what is written to it afterwards is there, too.
        later = dict(list(states[5].items())[::3]) | {b"own/new": bytes(5000)}
        opened.write(later)
        assert test_database.contents(opened) == found | later
        return name
    finally:
        opened.close()

for place, bit in test_database.flips(whole):
    damaged = bytearray(whole)
    damaged[place] ^= 1 << bit
    path.write_bytes(damaged)
    print(place, bit, end=" ", flush=True)
    print(outcome(bytes(damaged)), flush=True)
"""


def test_a_flipped_bit_never_gives_a_wrong_value(path: Path, tmp_path: Path) -> None:
    """150 of them. A bit of the newest commit's number may bring back the commit before it, whole:
    LMDB keeps both, and takes the one of the larger number."""
    fill(path)
    whole = tmp_path / "whole"
    path.rename(whole)
    done = subprocess.run(
        [sys.executable, "-c", FLIPPED, str(path), str(whole)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout.splitlines()[-1:] + done.stderr.splitlines()[-3:]
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert len(lines) == 150
    found = Counter(line[2] for line in lines)
    assert set(found) <= {"right", "refused", "refused when read", "the commit before"}
    assert min(found["right"], found["refused"], found["refused when read"]) >= 10
    assert all(int(line[0]) < 2 * PAGE for line in lines if line[2] == "the commit before")


def test_an_entry_that_is_taken_away_is_gone_and_the_rest_is_whole(path: Path) -> None:
    with_both = Database(path, new=True)
    with_both.write({b"a": b"1", b"b": b"2"})
    with_both.write({b"a": None, b"c": b"3", b"never there": None})
    with_both.close()
    opened = Database(path)  # compares the sum of what is there
    assert [opened.read(key) for key in (b"a", b"b", b"c")] == [None, b"2", b"3"]
    opened.close()
