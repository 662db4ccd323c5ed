"""Runs that are killed, interrupted or out of room go on to the bits of a run in one piece."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import nn

import small
from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, Run, federate
from isthmus.run import build as building
from isthmus.run.database import Database
from isthmus.run.loop import RoundResult, resume
from isthmus.run.store import STATE, read_rounds_done

SETTINGS: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 120},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "lr": 0.1,
    "rounds": 6,
    "eval_every": 3,
    "model": {"name": "mlp", "hidden": 8},
    "seed": 3,
}
METHODS: dict[str, dict[str, Any]] = {
    "superfed-mm": {"method": {"name": "superfed-mm", "start": 0.5}},
    "local": {"method": "local"},
    "fedavg": {"method": "fedavg"},
    "stacked": {"method": "superfed-lm", "engine": "stacked"},
}


def experiment(method: str, **changes: Any) -> Experiment:
    return Experiment(**(SETTINGS | METHODS[method] | changes))


class Ended(NamedTuple):
    """All of a finished run that must not depend on how often it was stopped."""

    digest: str
    federation: str
    clients: str
    reliability: str
    rounds: list[str]  # without the seconds


def ended(path: Path) -> Ended:
    summary = json.loads((path / "summary.json").read_text())
    assert summary["status"] == "finished"
    rows = (path / "rounds.csv").read_text().splitlines()
    return Ended(
        summary["digest"],
        (path / "federation.csv").read_text(),
        (path / "clients.csv").read_text(),
        (path / "reliability.csv").read_text(),
        [row.rsplit(",", 2)[0] for row in rows],
    )


def in_one_piece(path: Path, experiment: Experiment) -> Ended:
    run = federate(experiment, out=path)
    assert ended(path).digest == run.digest
    return ended(path)


def after(count: int) -> Callable[[RoundResult], bool]:
    """Stops a run after so many rounds."""
    return lambda done: done.cost.round == count


def done_rounds(path: Path) -> int:
    database = Database(path / STATE)
    count = read_rounds_done(database, path)
    database.close()
    return count


def written_rounds(path: Path) -> int:
    """Counts the whole rows of rounds.csv."""
    try:
        lines = (path / "rounds.csv").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return 0
    return sum(line[:1].isdigit() for line in lines)


# Forks a child for every attempt, so that torch is imported once. Waits for a random time, kills,
# goes on; or lets the child kill itself at a named place: in the transaction of a round, when the
# rows of the round are in the tables already, or right after it.
KILLS = """
import contextlib, io, json, os, random, signal, sys, time
from isthmus.cli import app
from isthmus.run import record as reader
from isthmus.report.tables import summary
from isthmus.run import open as opened
from isthmus.run import database

def at(place, number):
    write = database.Database.write

    class Dying(dict):
        def items(self):
            yield from super().items()
            os.kill(os.getpid(), signal.SIGKILL)

    def dying_write(self, changes):
        due = changes.get(b"progress") == str(number).encode()
        write(self, Dying(changes) if due and place == "inside" else changes)
        if due and place == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    database.Database.write = dying_write

def child(arguments, place, number):
    at(place, number)
    sys.argv[1:] = arguments
    said = io.StringIO()
    code = 0
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            app.main()
    except SystemExit as end:
        code = int(end.code or 0)
    if code and "before it began" not in said.getvalue():
        print(said.getvalue(), file=sys.stderr, flush=True)
        code = 99
    os._exit(code)

def attempt(arguments, seconds=None, place=None, number=0):
    pid = os.fork()
    if pid == 0:
        child(arguments, place, number)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]

def attack(folder, count):
    toml = os.path.join(folder, "reference", "experiment.toml")
    for place in ("inside", "after"):
        for number in (0, 3):
            path = os.path.join(folder, f"{place} {number}")
            status = attempt(["run", toml, "--out", path], place=place, number=number)
            assert status == signal.SIGKILL
    began = time.monotonic()
    attempt(["run", toml, "--out", os.path.join(folder, "plain")])
    length = time.monotonic() - began
    rng, kills, number = random.Random(5), 0, 0
    while kills < count:  # some end before they are killed; then there is another
        path, begun = os.path.join(folder, f"random {number}"), False
        number += 1
        while True:
            begun = begun and os.path.exists(os.path.join(path, "state.lmdb"))
            arguments = ["resume", path] if begun else ["run", toml, "--out", path]
            status = attempt(arguments, rng.uniform(0, 0.8 * length) if kills < count else None)
            if status == 0:
                break
            if status == signal.SIGKILL:
                kills += 1
                begun = True
            else:
                assert os.waitstatus_to_exitcode(status) == 2
                begun = False

for folder in sys.argv[1:]:
    attack(folder, 5)
"""


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Five times at random; in the transaction of round 3 and of the start; right after them."""
    methods = ("superfed-mm", "local", "fedavg")
    wanted = {
        method: in_one_piece(tmp_path / method / "reference", experiment(method))
        for method in methods
    }
    done = subprocess.run(
        [sys.executable, "-c", KILLS, *(str(tmp_path / method) for method in methods)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for method in methods:
        go_on(tmp_path / method, method, wanted[method])


def go_on(place: Path, method: str, wanted: Ended) -> None:
    """Goes on with all that was killed in a folder."""
    assert ended(place / "plain") == wanted
    assert list(place.glob("random *"))
    for path in place.glob("random *"):
        assert ended(path) == wanted

    for name, done in {"inside 3": 2, "after 3": 3}.items():
        path = place / name
        assert (done_rounds(path), written_rounds(path)) == (done, 3)
        resume(path)
        assert ended(path) == wanted

    path = place / "inside 0"
    with raises(IsthmusError):
        resume(path)
    assert in_one_piece(path, experiment(method)) == wanted

    path = place / "after 0"
    with raises(IsthmusError):
        federate(experiment(method), out=path)
    resume(path)
    assert ended(path) == wanted


SLOWLY = """
import time
from isthmus.cli import app
from isthmus.run import loop as federate

plain = federate.advance

def slow(setting, progress, *arguments, **named):
    time.sleep(0 if progress.t < 2 else PAUSE)
    return plain(setting, progress, *arguments, **named)

federate.advance = slow
app.main()
"""


def started(*arguments: object, pause: float = 60) -> subprocess.Popen[str]:
    """Start the program, which pauses in every round after the second."""
    return subprocess.Popen(
        [sys.executable, "-c", SLOWLY.replace("PAUSE", str(pause)), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rounds(process: subprocess.Popen[str], path: Path, count: int) -> None:
    ends = time.monotonic() + 120
    while written_rounds(path) < count:
        assert process.poll() is None
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_the_first_ctrl_c_finishes_the_round(tmp_path: Path) -> None:
    wanted = in_one_piece(tmp_path / "reference", experiment("superfed-mm"))
    path = tmp_path / "run"
    process = started("run", tmp_path / "reference" / "experiment.toml", "--out", path, pause=2)
    wait_for_rounds(process, path, 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    check(err)
    done = done_rounds(path)
    assert 2 <= done < 6  # the second round itself, if it is being written down
    assert written_rounds(path) == done
    end = f"stopped after round {done} of 6; continue with: isthmus resume {path}"
    assert err.splitlines()[-1] == f"isthmus: {end}"
    assert json.loads((path / "summary.json").read_text())["status"] == "stopped"
    assert resume(path).progress.t == 6
    assert ended(path) == wanted


def test_the_second_ctrl_c_loses_the_round_at_most(tmp_path: Path) -> None:
    wanted = in_one_piece(tmp_path / "reference", experiment("fedavg"))
    path = tmp_path / "run"
    process = started("run", tmp_path / "reference" / "experiment.toml", "--out", path)
    wait_for_rounds(process, path, 2)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = ""
    while "finishing this round" not in said:
        said = process.stderr.readline()
        assert said
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    check(err.splitlines()[-1])
    assert 1 <= done_rounds(path) < 6  # the rows of the second may be there before it is committed
    resume(path)
    assert ended(path) == wanted


@pytest.mark.parametrize("method", METHODS)
def test_a_run_may_stop_after_every_round(tmp_path: Path, method: str) -> None:
    wanted = in_one_piece(tmp_path / "reference", experiment(method))
    path = tmp_path / "run"
    federate(experiment(method), out=path, watch=after(1))
    for count in range(2, 7):
        assert resume(path, watch=after(count)).progress.t == count
    assert ended(path) == wanted


def test_a_finished_run_says_so_and_stays(tmp_path: Path, isthmus: Isthmus) -> None:
    path = tmp_path / "run"
    wanted = in_one_piece(path, experiment("superfed-mm"))
    said = isthmus("resume", path)
    assert said.code == 0, said.err
    check(said.err)
    assert f"digest: {wanted.digest}\n" in said.out
    assert ended(path) == wanted


def test_every_resume_tells_of_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isthmus: Isthmus
) -> None:
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("isthmus.run.store.version", lambda name: f"{name} of old")
        federate(experiment("fedavg"), out=path, watch=after(1))
    for _ in range(2):
        said = isthmus("resume", path)
        assert said.code == 0, said.err
        assert said.err.count(", resumed with ") == 2
        check(said.err)


def test_other_data_are_refused(tmp_path: Path) -> None:
    ours, other = small.federation(), small.federation(seed=6)
    path = tmp_path / "run"
    settings = {"method": "fedavg", "rounds": 3, "clients_per_round": 2, "epochs": 1}

    def begin(**how: Any) -> Run:
        return federate(Experiment(**settings), data=ours, model=small.network, **how)

    begin(out=path, watch=after(1))
    with pytest.raises(IsthmusError) as caught:
        resume(path, data=other, model=small.network)
    assert ours.digest() in str(caught.value)
    assert other.digest() in str(caught.value)
    with raises(IsthmusError):
        resume(path)
    assert done_rounds(path) == 1
    assert resume(path, data=ours, model=small.network).digest == begin().digest


def test_another_start_is_refused(tmp_path: Path) -> None:
    """A network that draws otherwise, or whose file of weights was exchanged, is another one."""
    data, path = small.federation(), tmp_path / "run"
    settings = {"method": "fedavg", "rounds": 3, "clients_per_round": 2, "epochs": 1}
    federate(Experiment(**settings), data=data, model=small.network, out=path, watch=after(1))

    def other() -> nn.Module:
        network = small.network()
        nn.init.zeros_(next(network.parameters()))
        return network

    with raises(IsthmusError):
        resume(path, data=data, model=other)
    assert done_rounds(path) == 1


def test_other_data_of_the_same_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isthmus: Isthmus
) -> None:
    """As when --data-root names another folder."""
    path = tmp_path / "run"
    federate(experiment("fedavg"), out=path, watch=after(1))
    plain = building.read_federation

    def other(experiment: Experiment, *rest: Any) -> Any:
        given = {name: getattr(experiment, name) for name in Experiment.model_fields}
        return plain(Experiment(**given | {"seed": 4}), *rest)

    with monkeypatch.context() as patch:
        patch.setattr(building, "read_federation", other)
        line = isthmus("resume", path).mistake
    check(line)
    assert done_rounds(path) == 1


def test_a_longer_run_is_that_of_its_length(tmp_path: Path) -> None:
    path = tmp_path / "run"
    federate(experiment("fedavg", rounds=4), out=path)
    longer = resume(path, rounds=7)
    assert longer.progress.t == 7
    assert longer.digest == federate(experiment("fedavg", rounds=7)).digest
    assert Experiment.load(path / "experiment.toml").rounds == 7
    assert resume(path).digest == longer.digest


def test_a_run_cannot_be_shorter_than_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run"
    federate(experiment("fedavg"), out=path, watch=after(3))
    with raises(IsthmusError):
        resume(path, rounds=2)
    assert resume(path, rounds=3).progress.t == 3


def test_a_run_is_not_made_longer_where_that_would_change_what_is_done(tmp_path: Path) -> None:
    """With start = 0.5, six rounds begin to mix at 3 and ten at 5: after two rounds nobody can
    tell, after four it is too late."""
    path = tmp_path / "run"
    federate(experiment("superfed-mm", eval_every=0), out=path, watch=after(2))
    assert resume(path, rounds=10, watch=after(4)).progress.t == 4
    whole = federate(experiment("superfed-mm", rounds=10, eval_every=0))
    assert resume(path).digest == whole.digest

    path = tmp_path / "late"
    run = federate(experiment("superfed-mm"), out=path, watch=after(4))
    with raises(IsthmusError):
        resume(path, rounds=10)
    assert done_rounds(path) == 4
    assert resume(path, watch=after(5)).progress.t == 5 != run.progress.t


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no mount command")
    arguments = ["-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a small disk is not permitted: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def ballast(disk: Path, leave: int) -> Path:
    """Fills a disk until so many bytes are left."""
    file = disk / "ballast"
    status = os.statvfs(disk)
    file.write_bytes(bytes(status.f_bavail * status.f_frsize - leave))
    return file


def filling(disk: Path, progress: bytes, leave: int) -> Callable[[Database, Any], None]:
    """Writes as a database does, and fills the disk after one of the rounds."""
    plain = Database.write

    def write(database: Database, changes: dict[bytes, bytes]) -> None:
        plain(database, changes)
        if changes.get(b"progress") == progress:
            ballast(disk, leave)

    return write


# LMDB calls a write that was cut short an input/output error.
FULL = r"cannot be written: (.*No space left on device|.*Input/output error); free some"
WIDE = {"model": {"name": "mlp", "hidden": 512}}  # 13,834 parameters: 55 kB per client and server


def test_a_full_disk_is_one_line_and_loses_no_round(
    tmp_path: Path, disk: Path, isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After round 1 there is room for rows of tables, and for no more of the clients' states."""
    wanted = in_one_piece(tmp_path / "reference", experiment("superfed-mm", **WIDE))
    path = disk / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", filling(disk, b"1", leave=20_000))
        line = isthmus("run", tmp_path / "reference" / "experiment.toml", "--out", path).mistake
    assert re.search(FULL, line)
    check(line)
    (disk / "ballast").unlink()
    done = done_rounds(path)
    assert 1 <= done < 6
    weight = ballast(disk, leave=0)
    assert re.search(FULL, isthmus("resume", path).mistake)
    weight.unlink()
    assert done_rounds(path) == done
    said = isthmus("resume", path)
    assert said.code == 0, said.err
    assert ended(path) == wanted


def test_tables_without_room_are_one_line_too(
    tmp_path: Path, disk: Path, isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is filled between the commit of round 2 and the rows of round 3."""
    wanted = in_one_piece(tmp_path / "reference", experiment("superfed-mm"))
    path = disk / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", filling(disk, b"2", leave=0))
        line = isthmus("run", tmp_path / "reference" / "experiment.toml", "--out", path).mistake
    check(line)
    (disk / "ballast").unlink()
    assert (done_rounds(path), written_rounds(path)) == (2, 2)
    resume(path)
    assert ended(path) == wanted


def test_a_full_disk_at_the_start_is_one_line(tmp_path: Path, disk: Path) -> None:
    wanted = in_one_piece(tmp_path / "reference", experiment("fedavg"))
    path = disk / "run"
    for room in (0, 4096, 30_000, 60_000):
        weight = ballast(disk, leave=room)
        with pytest.raises(IsthmusError, match=r"disk/run.* cannot be "):
            federate(experiment("fedavg", **WIDE), out=path)
        weight.unlink()
        shutil.rmtree(path, ignore_errors=True)
    federate(experiment("fedavg"), out=path)
    assert ended(path) == wanted


def test_a_directory_that_cannot_be_written_is_one_line(
    tmp_path: Path, disk: Path, isthmus: Isthmus
) -> None:
    path = disk / "run"
    federate(experiment("fedavg"), out=path, watch=after(2))
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    check(isthmus("run", path / "experiment.toml", "--out", disk / "other").mistake)
    check(isthmus("resume", path).mistake)
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert resume(path).progress.t == 6


@pytest.mark.parametrize("lock", ["left behind", "not there"])
def test_a_run_that_cannot_be_written_can_be_looked_into(
    tmp_path: Path, disk: Path, isthmus: Isthmus, lock: str
) -> None:
    path = disk / "run"
    federate(experiment("superfed-mm"), out=path)
    if lock == "not there":
        (path / "state.lock").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for command in (
        ("export", path, "--client", 0, "--out", tmp_path / "models"),
        ("show", path),
        ("report", path, "--out", tmp_path / "page.html"),
    ):
        said = isthmus(*command)
        assert said.code == 0, said.err
    check(isthmus("landscape", path, "--points", 500).mistake)
