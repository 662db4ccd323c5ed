"""What is seen of runs while they go on: on a terminal, and elsewhere."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from golden import check
from isthmus import Experiment, IsthmusError, federate
from isthmus.batch.headline import Headline
from isthmus.cli import progress
from isthmus.cli.progress import Board, format_clock

TINY: dict[str, Any] = {
    "data": {"name": "synthetic", "samples": 120},
    "clients": 4,
    "clients_per_round": 2,
    "epochs": 1,
    "rounds": 4,
    "eval_every": 2,
    "model": {"name": "mlp", "hidden": 8},
}


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that stands still until it is set."""
    now = 0.0

    def set(seconds: float) -> None:
        nonlocal now
        now = seconds

    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    return set


def screen(width: int = 80, height: int = 24) -> Console:
    """A terminal that nobody looks at."""
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height)


def picture(shown: Board, width: int = 80, height: int = 24) -> list[str]:
    """The lines of the table as they are on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(shown.draw(height))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_row_says_where_a_run_stands(moment: Callable[[float], None]) -> None:
    """The last rounds took 2 s each; one second later, 7 * 2 - 1 = 13 s are left."""
    shown = Board({"fedavg": 10})
    shown.start("fedavg")
    moment(30)  # in the first rounds something is compiled
    shown.update("fedavg", 2, Headline(0.5, 0.25, 1.5))
    moment(32)
    shown.update("fedavg", 3)
    moment(33)
    title, row, *_ = picture(shown)
    assert title.split() == ["round", "personal", "shared", "best", "s/round", "left"]
    assert row.split() == ["fedavg", "3/10", "50.0%", "25.0%", "1.5000", "@2", "2.00", "0:00:13"]


def test_what_else_there_is_to_know_stands_below_the_bar() -> None:
    said = iter(["3 nodes, 6 actors, 5 computing", "2 nodes, 4 actors, 4 computing"])
    shown = Board({"fedavg": 10}, below=lambda: next(said))
    assert "3 nodes, 6 actors, 5 computing" in picture(shown)[3]
    assert "2 nodes, 4 actors, 4 computing" in picture(shown)[3]


def test_the_best_is_that_of_least_validation_loss(moment: Callable[[float], None]) -> None:
    """Of losses 1.5, 0.5, 0.75 the second; one from before the run was resumed counts."""
    shown = Board({"new": 9, "resumed": 9})
    shown.start("new")
    shown.start("resumed", 2, 0.25, 2)
    for name in ("new", "resumed"):
        for round, loss in ((3, 1.5), (6, 0.5), (9, 0.75)):
            shown.update(name, round, Headline(0.5, None, loss))
    text = "\n".join(picture(shown))
    assert re.search(r"new +9/9 +50.0% +- +0.5000 @6", text)
    assert re.search(r"resumed +9/9 +50.0% +- +0.2500 @2", text)


def test_the_board_counts_runs_and_the_time_that_is_left(moment: Callable[[float], None]) -> None:
    """12 rounds in 24 s; 8 + 10 are left of the one that runs and the one that waits, 36 s."""
    shown = Board({"a": 10, "b": 10, "c": 10, "d": 10})
    shown.start("a")
    moment(20)
    shown.update("a", 10)
    shown.end("a")
    shown.start("b")
    shown.end("b", "failed")
    shown.start("c")
    moment(24)
    shown.update("c", 2)
    said = "4 runs: 1 running, 1 failed, 1 done, 1 waiting; 0:00:24, about 0:00:36 left"
    assert said in [line.strip() for line in picture(shown)]


def test_the_time_left_follows_from_rounds_of_runs_of_the_same_kind(
    moment: Callable[[float], None],
) -> None:
    """Rounds of x take 1 s, those of y 10; of b 2 rounds are left, and all 4 of d, 60 s."""
    shown = Board(dict.fromkeys("abcd", 4), kinds={"a": "x", "b": "y", "c": "x", "d": "y"})
    shown.skip("c")
    shown.start("a")
    moment(4)
    shown.update("a", 4)
    shown.end("a")
    shown.start("b")
    moment(24)
    shown.update("b", 2)
    lines = [line.strip() for line in picture(shown)]
    assert "4 runs: 1 running, 2 done, 1 waiting; 0:00:24, about 0:01:00 left" in lines
    assert lines[3].split() == ["c", "4/4", "-", "-", "-", "-", "done"]


def test_a_number_chosen_on_test_data_is_marked() -> None:
    shown = Board({"superfed-mm": 4})
    shown.start("superfed-mm")
    shown.update("superfed-mm", 2, Headline(0.5, 0.25, None, on_test=True))
    text = "\n".join(picture(shown))
    assert "50.0%†" in text
    check(text)
    assert "25.0%†" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_the_board_fits_the_terminal(width: int) -> None:
    names = [f"flocoplus-with-a-name · seed {seed}" for seed in range(3)]
    shown = Board(dict.fromkeys(names, 500))
    for name in names:
        shown.start(name)
        shown.update(name, 500, Headline(1.0, 1.0, 0.5, on_test=True))
    lines = picture(shown, width)
    assert max(len(line) for line in lines) <= width
    assert all(line.count("100.0%") == 2 and "@500" in line for line in lines[1:4])
    assert ("seed 2" in lines[3]) == (width == 120)


def test_more_runs_than_lines_show_those_that_matter(moment: Callable[[float], None]) -> None:
    """With 14 lines there is room for six: the running, the failed, the four done last."""
    shown = Board({f"run{number:02}": 5 for number in range(30)})
    for number in range(10):
        moment(number)
        shown.start(f"run{number:02}")
        if number not in (0, 4):
            shown.update(f"run{number:02}", 5)
            shown.end(f"run{number:02}")
    shown.end("run04", "failed")
    lines = picture(shown, height=14)
    assert re.findall(r"run\d\d", "\n".join(lines)) == [
        *("run00", "run04", "run06", "run07", "run08", "run09")
    ]
    assert len(lines) < 14


def test_elsewhere_an_evaluation_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment(method="fedavg", **TINY)
    plain = Console(file=io.StringIO())
    with Board({"fedavg": 4}, plain) as shown, shown.follow("fedavg", experiment) as show:
        federate(experiment, watch=show)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in lines] == [" round 2/4", " round 4/4"]
    for line in lines:
        check(line)


def test_elsewhere_several_runs_have_a_line_when_each_begins_and_ends(
    moment: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rounds took 10 s: the eleven of b and c will take 55 s, that of c alone 5 s."""
    with Board({"a": 4, "b": 10, "c": 1}, Console(file=io.StringIO())) as shown:
        shown.start("a", 2)
        shown.update("a", 4, Headline(0.5, 0.25, 1.5))
        moment(10)
        shown.end("a")
        shown.start("b")
        shown.end("b", "failed", "client 3 diverged")
    lines = capsys.readouterr().err.splitlines()
    check(*lines)
    assert lines[1].endswith("; 3 runs: 1 done, 2 waiting; 0:00:10, about 0:00:55 left")
    assert lines[3].endswith("; 0:00:10, about 0:00:05 left")


def test_elsewhere_each_of_several_runs_has_at_most_a_line_a_minute(
    moment: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Evaluations after 59, 60, 119 and 120 s: those a minute apart have lines."""
    with Board({"a": 10, "b": 1}, Console(file=io.StringIO())) as shown:
        shown.start("a")
        for round, seconds in enumerate((59, 60, 119, 120), 1):
            moment(seconds)
            shown.update("a", round, Headline(0.5, None, None))
        moment(500)
        shown.update("a", 5)  # nothing was evaluated
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["a", "begins"],
        ["a", "round 2/10"],
        ["a", "round 4/10"],
    ]


def test_on_a_terminal_a_failure_is_a_line_above_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = screen()
    with Board({"a": 4, "b": 4}, console) as shown:
        shown.start("a")
        shown.end("a", "failed", "client 3 diverged")
    check(ESCAPE.sub("", console.file.getvalue()))  # type: ignore[attr-defined]
    check(capsys.readouterr().err)


def test_the_last_line_of_a_terminal_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment(method="fedavg", **TINY)
    console = screen()
    with Board({"fedavg": 4}, console) as shown, shown.follow("fedavg", experiment) as show:
        federate(experiment, watch=show)
    check(capsys.readouterr().err.splitlines()[-1])


def test_what_ends_in_an_error_failed(capsys: pytest.CaptureFixture[str]) -> None:
    experiment, plain = Experiment(method="fedavg", **TINY), Console(file=io.StringIO())

    def both(shown: Board) -> None:
        with shown.follow("a", experiment):
            raise IsthmusError("diverged")

    with pytest.raises(IsthmusError), Board({"a": 4, "b": 4}, plain) as shown:
        both(shown)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "a: begins"
    check(lines[1])


def test_lengths_of_time_carry() -> None:
    """59.6 s are a minute, and 3599.6 s an hour."""
    assert [format_clock(seconds) for seconds in (0, 59.6, 3599.6, 360000)] == [
        *("0:00:00", "0:01:00", "1:00:00", "100:00:00")
    ]


SLOWLY = """
import time
from isthmus.cli import app
from isthmus.run import loop as federate

plain = federate.advance

def slow(*arguments, **named):
    time.sleep(0.3)
    return plain(*arguments, **named)

federate.advance = slow
app.main()
"""


ESCAPE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


class Terminal:
    """A program in a terminal of 80 columns."""

    def __init__(self, *words: object, **environment: str):
        self._here, there = pty.openpty()
        variables = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SLOWLY, *(str(word) for word in words)],
            stdin=there,
            stdout=there,
            stderr=there,
            env=variables,
        )
        os.close(there)
        self.seen = ""

    def until(self, wanted: str) -> None:
        """Reads until some text was seen, or until the end."""
        ends = time.monotonic() + 60
        while not re.search(wanted, ESCAPE.sub("", self.seen)):
            assert time.monotonic() < ends, self.seen
            if not select.select([self._here], [], [], 1)[0]:
                continue
            try:
                self.seen += os.read(self._here, 65536).decode()
            except OSError:  # it ended
                return

    def close(self) -> list[str]:
        """Reads to the end, and gives what is left on the screen, line by line."""
        self.until(r"\Z.")
        self.process.wait()
        os.close(self._here)
        return left(self.seen)


def left(seen: str) -> list[str]:
    """Plays what a terminal was sent: cursor up, erase line, carriage return; no more is used."""
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", seen):
        if piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif found := re.fullmatch(r"\x1b\[(\d*)A", piece):
            row = max(0, row - int(found[1] or 1))
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif not piece.startswith("\x1b") and piece != "\r":
            lines[row] += piece
    return [Text.from_ansi(line).plain.rstrip() for line in lines if line.strip()]


RUN = (
    *("run", "--method", "fedavg", "--data", "synthetic", "--set", "clients=4"),
    *("--set", "clients_per_round=2", "--set", "epochs=1", "--set", "eval_every=1"),
)


def test_on_a_terminal_the_table_lives_and_goes(tmp_path: Path) -> None:
    terminal = Terminal(*RUN, "--rounds", "3", "--out", tmp_path / "run", NO_COLOR="1")
    terminal.until(r"fedavg +[12]/3")
    lines = terminal.close()
    assert terminal.process.returncode == 0, lines
    assert "\x1b[3" not in terminal.seen, "NO_COLOR"
    assert not any("s/round" in line for line in lines)
    assert [
        line for line in lines if re.match(r"fedavg: round 3/3 after \d:\d\d:\d\d: personal", line)
    ]


def test_ctrl_c_on_a_terminal_finishes_the_round_and_says_how_to_go_on(tmp_path: Path) -> None:
    terminal = Terminal(*RUN, "--rounds", "60", "--out", tmp_path / "run")
    terminal.until(r"fedavg +[1-9]/60")
    terminal.process.send_signal(signal.SIGINT)
    lines = terminal.close()
    assert terminal.process.returncode == 130, lines
    check("\n".join(lines))
    check(lines[-1])
    assert "\x1b[?25h" in terminal.seen, "the cursor is back"
