"""The command line: the same digest from the same command, and one line for every mistake."""

import ast
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import Isthmus, Said
from golden import check
from isthmus.cli import demo, messages
from isthmus.context import RunContext
from isthmus.methods import METHODS
from isthmus.run import loop as federate
from small import read_rows

RECORDS = {
    "state.lmdb",
    "state.lock",
    "experiment.toml",
    "federation.csv",
    "rounds.csv",
    "clients.csv",
    "notes.csv",
    "reliability.csv",
    "summary.json",
}
TINY = [
    *("--data", "synthetic", "--rounds", "2", "--seed", "4"),
    *("--set", "samples=120", "--set", "clients=4", "--set", "clients_per_round=2"),
    *("--set", "epochs=1", "--set", "hidden=8"),
]
HELP = "import sys; sys.argv[1:] = {}; from isthmus.cli import app; app.main(); {}"


def in_a_process(code: str, where: Path) -> Said:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=where, capture_output=True, text=True, timeout=120
    )
    return Said(done.returncode, done.stdout, done.stderr)


HEAVY = ["torch", "numpy", "scipy", "plotly", "lmdb", "PIL", "nvflare", "cryptography"]
LIGHT = {  # help is drawn by rich; some versions of typer read a command's options with pydantic
    "--version": ("isthmus", [*HEAVY, "pydantic", "rich"]),
    "--help": ("landscape", [*HEAVY, "pydantic"]),
    "run --help": ("--data-root", HEAVY),
    "data get --help": ("--data-root", HEAVY),
    "serve admit --help": ("--renew", HEAVY),
}


@pytest.mark.parametrize("command", LIGHT)
def test_help_waits_for_nothing_heavy(tmp_path: Path, command: str) -> None:
    wanted, absent = LIGHT[command]
    asked = f"print([name for name in {absent} if name in sys.modules])"
    said = in_a_process(HELP.format(command.split(), asked), tmp_path)
    assert said.code == 0, said.err
    assert wanted in said.out
    assert said.out.splitlines()[-1] == "[]"


STARTS = {  # modules of all packages and of Python: about an eighth more than with those of 2026
    "list": (330, [*HEAVY, "rich", "isthmus.engines", "isthmus.report", "isthmus.run.loop"]),
    "show first": (560, ["torch", "scipy", "plotly", "lmdb"]),
    "report first": (600, ["torch", "scipy", "lmdb"]),
    "reproduce": (590, ["torch", "scipy", "plotly", "lmdb", "jinja2"]),
    "serve status": (570, ["torch", "scipy", "plotly", "lmdb", "jinja2"]),
}


def test_a_command_that_reads_starts_with_few_modules(isthmus: Isthmus, tmp_path: Path) -> None:
    """Each starts within half a second; tests count modules, since seconds depend on the load."""
    assert isthmus("run", *TINY, "--out", "first").code == 0
    for command, (most, absent) in STARTS.items():
        asked = f"(len(sys.modules), [name for name in {absent} if name in sys.modules])"
        ended = f"import atexit; atexit.register(lambda: print({asked}))"
        said = in_a_process(f"{ended}; {HELP.format(command.split(), 0)}", tmp_path)
        count, heavy = ast.literal_eval(said.out.splitlines()[-1])
        assert (heavy, max(count, most)) == ([], most), command


def test_a_run_writes_its_records_and_prints_its_digest(isthmus: Isthmus) -> None:
    said = isthmus("run", *TINY, "--out", "first")
    assert said.code == 0, said.err
    assert {path.name for path in Path("first").iterdir()} == RECORDS
    summary = json.loads(Path("first/summary.json").read_text())
    assert (summary["status"], summary["digest"]) == ("finished", said.digest)
    assert "superfed-mm" in said.out
    assert "records: first" in said.out


def test_the_same_experiment_gives_the_same_digest(isthmus: Isthmus, tmp_path: Path) -> None:
    """In this process, in another one, from the experiment file alone; not with another seed."""
    first = isthmus("run", *TINY, "--out", "first")
    code = f"import sys; sys.argv[1:] = {['run', *TINY, '--out', 'second']}; "
    second = in_a_process(code + "from isthmus.cli import app; app.main()", tmp_path)
    third = isthmus("run", "first/experiment.toml", "--out", "third")
    fourth = isthmus("run", "first/experiment.toml", "--seed", "5", "--out", "fourth")
    assert first.digest == second.digest == third.digest != fourth.digest
    for table in ("experiment.toml", "federation.csv", "clients.csv"):
        texts = {Path(run, table).read_text() for run in ("first", "second", "third")}
        assert len(texts) == 1


def test_options_and_settings_reach_the_experiment(isthmus: Isthmus) -> None:
    isthmus("run", *TINY, "--method", "fedprox", "--set", "mu=0.5", "--set", "lr=0.2", "--out", "a")
    text = Path("a/experiment.toml").read_text()
    for line in ('name = "fedprox"', "mu = 0.5", "lr = 0.2", "rounds = 2", "samples = 120"):
        assert f"\n{line}\n" in text


def test_a_run_without_a_place_finds_one_that_is_free(isthmus: Isthmus) -> None:
    for _ in range(2):
        assert isthmus("run", *TINY, "--method", "fedavg").code == 0
    found = sorted(path.name for path in Path("runs").iterdir())
    assert found == ["synthetic-fedavg-4", "synthetic-fedavg-4-2"]


MISTAKES: dict[str, list[str]] = {
    "a number that is none": ["run", "--set", "lr=abc"],
    "an option that is no number": ["run", "--rounds", "abc"],
    "an option without its value": ["run", "--out", "run", "--rounds"],
    "an unknown option": ["run", "--round", "2"],
    "no rounds": ["run", "--rounds", "0"],
    "an unknown method": ["run", "--method", "fedavgg"],
    "an unknown key": ["run", "--set", "lrr=1"],
    "a key without a value": ["run", "--set", "lr"],
    "an option of another method": ["run", "--method", "fedavg", "--set", "nu=1"],
    "a list for a name": ["run", "--set", "method=[1]"],
    "a missing file": ["run", "missing.toml"],
    "bad TOML": ["run", "bad.toml"],
    "an unknown key in a file": ["run", "odd.toml"],
    "too many clients": ["run", "--set", "clients=1000"],
    "too small clients": ["run", "--set", "clients=500"],
    "more clients in a round than there are": ["run", "--set", "clients_per_round=21"],
    "missing data": ["run", "--data", "mnist"],
    "damaged data": ["run", "--data", "mnist", "--data-root", "damaged"],
    "a model for other data": ["run", "--data", "synthetic", "--set", "model=twocnn"],
    "a width below one": ["run", "--set", "hidden=-3"],
    "data for no cluster": ["run", "--send-data"],
    "a cluster for stacked clients": [
        "run",
        *TINY,
        "--ray",
        "10.0.0.1:6379",
        "--set",
        "engine=stacked",
    ],
    "an unknown command": ["rum"],
    "something unknown to list": ["list", "method"],
    "a report of nothing": ["report", "missing"],
    "an out below a file": ["run", *TINY, "--out", "bad.toml/run"],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_code_2(isthmus: Isthmus, name: str) -> None:
    Path("bad.toml").write_text("lr = = 1\n")
    Path("odd.toml").write_text("round = 3\n")
    Path("damaged").mkdir()
    truncated = gzip.compress(bytes([0, 0, 8, 3, *bytes(12)]))[:-4]
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        Path(f"damaged/{part}-ubyte.gz").write_bytes(truncated)
    arguments = MISTAKES[name]
    if arguments[0] == "run" and "--out" not in arguments:
        arguments = [*arguments, "--out", "run"]
    check(isthmus(*arguments).mistake)
    left = {path.name for path in Path().iterdir()}
    assert left == {"bad.toml", "odd.toml", "damaged"}, "a mistake leaves nothing behind"


def test_an_existing_directory_is_refused_and_untouched(isthmus: Isthmus) -> None:
    Path("taken").mkdir()
    Path("taken/precious").write_text("kept")
    check(isthmus("run", *TINY, "--out", "taken").mistake)
    assert [path.name for path in Path("taken").iterdir()] == ["precious"]
    assert Path("taken/precious").read_text() == "kept"


def test_a_run_is_known_by_its_settings_not_by_how_they_are_written(isthmus: Isthmus) -> None:
    assert isthmus("run", *TINY, "--out", "taken").code == 0
    file = Path("taken/experiment.toml")
    file.write_text(file.read_text().replace("rounds = 2\n", "rounds = 0x2 # two\n"))
    check(isthmus("run", *TINY, "--out", "taken").mistake)
    check(isthmus("run", *TINY, "--rounds", "3", "--out", "taken").mistake)


def test_divergence_is_one_line_and_keeps_the_rounds_before(isthmus: Isthmus) -> None:
    """With lr * weight_decay = 1e6 * 1e-4 = 100, every step multiplies the parameters by about
    -99: from 1e4 or so after the first they need some ten steps until products of two layers
    exceed 3e38. A round has ceil(22 / 10) = 3 steps, so that it is over in round 3 or soon after.
    """
    tall = ["--set", "lr=1e6", "--set", "lr_decay=1", "--set", "momentum=0.9"]
    arguments = [*TINY, "--method", "fedavg", "--rounds", "20", "--set", "eval_every=1", *tall]
    line = isthmus("run", *arguments, "--out", "run").mistake
    found = re.match(r"isthmus: client [0-3] diverged in round (\d+): FedAvg\.local ", line)
    assert found
    check(line)
    done = int(found[1]) - 1
    assert 1 <= done < 10
    assert [int(row["round"]) for row in read_rows(Path("run/rounds.csv"))] == list(
        range(1, done + 1)
    )
    assert {int(row["round"]) for row in read_rows(Path("run/clients.csv"))} == set(
        range(1, done + 1)
    )
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("stopped", done)


def test_an_interrupted_run_keeps_what_it_did(
    isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = federate.advance

    def interrupted(setting: RunContext, progress: federate.Progress, *rest: Any) -> object:
        if progress.t == 1:
            raise KeyboardInterrupt
        return plain(setting, progress, *rest)

    monkeypatch.setattr(federate, "advance", interrupted)
    said = isthmus("run", *TINY, "--out", "run")
    assert said.code == 130
    assert said.err.splitlines()[-1].startswith("isthmus: stopped")
    assert len(read_rows(Path("run/rounds.csv"))) == 1
    assert json.loads(Path("run/summary.json").read_text())["status"] == "stopped"


def test_every_method_says_what_a_user_should_know(isthmus: Isthmus) -> None:
    """Who chooses a method sees its wire, what stays at home, what is disclosed."""
    keys = {"family", "down", "up", "home", "newcomer", "discloses", "everybody"}
    for entry in json.loads(isthmus("list", "methods", "--json").out):
        assert keys <= set(entry)
        assert all(entry[key] for key in keys - {"discloses", "everybody"})
    text = isthmus("list").out
    check(text)
    assert "head_epochs=10, body_epochs=1" in text


def test_the_list_for_programs_names_everything(isthmus: Isthmus) -> None:
    entries = json.loads(isthmus("list", "methods", "--json").out)
    assert [entry["name"] for entry in entries] == list(METHODS)
    superfed = next(entry for entry in entries if entry["name"] == "superfed-lm")
    assert (superfed["options"]["nu"], superfed["options"]["mix"]) == (2.0, "layer")
    for what, name in (("data", "digits"), ("partitions", "iid"), ("models", "twonn")):
        assert name in [entry["name"] for entry in json.loads(isthmus("list", what, "--json").out)]


def test_the_list_for_people_names_everything(isthmus: Isthmus) -> None:
    said = isthmus("list")
    assert said.code == 0
    assert all(method in said.out for method in METHODS)


def test_the_demo_measures_models_around_those_it_trains(
    isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "DEMO", {"superfed-mm": {}, "floco": {"tau": 1}})
    monkeypatch.setattr(demo, "DEMO_SETTINGS", {"data": "digits", "rounds": 2, "epochs": 1})
    said = isthmus("demo")
    assert said.code == 0, said.err
    assert "superfed-mm: done: personal" in said.err
    assert Path("demo/superfed-mm/landscape.csv").is_file()
    assert Path("demo/floco/simplex.csv").is_file()
    assert Path("demo/report.html").resolve().as_uri() in said.out.replace("\n", "")


def test_a_report_of_two_runs_is_one_page(isthmus: Isthmus) -> None:
    for method in ("local", "superfed-mm"):
        assert isthmus("run", *TINY, "--method", method, "--out", method).code == 0
    said = isthmus("report", "local", "superfed-mm", "--out", "page.html")
    assert said.code == 0, said.err
    text = Path("page.html").read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert "superfed-mm" in text
    assert Path("page.html").resolve().as_uri() in said.out.replace("\n", "")


def test_a_report_of_several_seeds_compares_methods(isthmus: Isthmus) -> None:
    for method in ("local", "fedavg"):
        for seed in ("1", "2"):
            words = ["run", *TINY, "--method", method, "--seed", seed, "--out", method + seed]
            assert isthmus(*words).code == 0
    paths = ["local1", "local2", "fedavg1", "fedavg2"]
    said = isthmus("report", *paths, "--baseline", "local")
    assert said.code == 0, said.err
    check(" ".join(said.out.split()))
    assert "Seeds 1, 2; 2 splits." in " ".join(said.out.split())


def test_the_package_can_be_run_as_a_module() -> None:
    """`python -m isthmus` is the command."""
    words = [sys.executable, "-m", "isthmus", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("isthmus ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--method", ""],
        ["run", "--data", " "],
        ["run", "--seed="],
        ["run", "--set", "lr="],
        ["report", "run", "--out", ""],
        ["show", ""],
    ],
)
def test_an_empty_value_is_a_mistake(isthmus: Isthmus, arguments: list[str]) -> None:
    said = isthmus(*arguments)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1


def test_a_message_is_one_line_whatever_was_given(isthmus: Isthmus) -> None:
    said = isthmus("run", "--method", "no\n\x1b[31m" + "x" * 5000)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert len(said.err) < 1100
    assert "\x1b" not in said.err


FULL = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
CLOSED = "import os; r, w = os.pipe(); os.dup2(w, 1); os.close(r); os.close(w)"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("before", "code", "line"),
    [(FULL, 2, "No space left on device"), (CLOSED, 1, "")],
    ids=["full", "closed"],
)
def test_an_output_that_fails_is_no_traceback(
    tmp_path: Path, before: str, code: int, line: str
) -> None:
    said = in_a_process(f"{before}; {HELP.format(['data', 'list'], 'pass')}", tmp_path)
    assert (said.code, len(said.err.splitlines())) == (code, 1 if line else 0), said.err
    assert line in said.err


def test_letters_that_an_output_lacks_are_escaped(
    isthmus: Isthmus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as output:
        monkeypatch.setattr(sys, "stdout", output)
        messages.prepare_output()
        print("digits — 日本")
    assert (tmp_path / "out").read_text() == "digits \\u2014 \\u65e5\\u672c\n"
