"""Comparisons: the same runs however they are computed, stopped or killed; as fair as they say."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import golden
from commands import Isthmus
from isthmus import Experiment, IsthmusError
from isthmus.batch.grid import LOCK, Grid, change, check, read, refuse_another
from isthmus.batch.named_runs import hold, is_finished
from isthmus.batch.pool import JobPool
from isthmus.cli.app import main
from isthmus.experiment.registry import COMPONENTS
from isthmus.methods import METHODS
from isthmus.run import record as reader
from isthmus.run.lock import open_lock

TABLES = ("table.md", "table.tex", "table.csv")
TINY = [
    *("--data", "synthetic", "--rounds", "30"),
    *("--set", "samples=120", "--set", "clients=4", "--set", "clients_per_round=2"),
    *("--set", "epochs=1", "--set", "hidden=8", "--set", "eval_every=15"),
]
ASKED = ["--methods", "local,fedavg,superfed-mm", "--seeds", "2", *TINY, "--set", "fedavg.lr=0.1"]


def grid(*methods: str, **changes: Any) -> Grid:
    experiments = {method: Experiment(method=method, seed=1) for method in methods}
    return Grid(**{"experiments": experiments, "seeds": (1, 2)} | changes)


def refused(asked: Grid) -> str:
    with pytest.raises(IsthmusError) as error:
        check(asked)
    assert "\n" not in str(error.value)
    return str(error.value)


# The command, which says in the end whether it loaded torch.
COMMAND = """
import atexit, sys
from isthmus.cli.app import main
atexit.register(lambda: print("loaded torch:", "torch" in sys.modules))
main()
"""


def begin(where: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.Popen(
        command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def digests(out: Path) -> dict[str, str]:
    return {
        path.parent.name: json.loads(path.read_text())["digest"]
        for path in sorted(out.glob("runs/*/summary.json"))
    }


def texts(out: Path) -> list[str]:
    """The tables, byte for byte."""
    return [(out / f"table.{kind}").read_text() for kind in ("md", "tex", "csv")]


def at_work(where: Path) -> list[int]:
    """The processes of a pool that were started from a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mine = (entry / "cwd").resolve() == where.resolve()
            if mine and b"isthmus.batch.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_for(process: "subprocess.Popen[str]", where: Path, pattern: str) -> None:
    for _ in range(1200):
        if list(where.glob(pattern)):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"{pattern} never appeared in {where}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A comparison in one piece, two runs at a time."""
    where, said = tmp_path_factory.mktemp("whole"), StringIO()
    words = ["isthmus", "compare", *ASKED, "--jobs", "2", "--out", str(where / "whole")]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setattr(sys, "argv", words)
        main()
    assert "Difference: " in said.getvalue()
    yield where / "whole"
    shutil.rmtree(where)


def test_the_runs_are_those_of_every_method_and_seed(whole: Path, isthmus: Isthmus) -> None:
    """Each is what `isthmus run` makes of the same settings, and what other commands understand."""
    names = [f"{method}-{seed}" for method in ("fedavg", "local", "superfed-mm") for seed in (1, 2)]
    assert list(digests(whole)) == names
    alone = isthmus("run", *TINY, "--method", "fedavg", "--seed", "2", "--set", "lr=0.1")
    assert alone.digest == digests(whole)["fedavg-2"]
    assert "rounds: 30 of 30" in isthmus("show", whole / "runs" / "fedavg-2").out
    assert isthmus("resume", whole / "runs" / "fedavg-2").digest == alone.digest


def test_all_methods_of_a_seed_have_one_split_and_seeds_have_their_own(whole: Path) -> None:
    runs = [reader.read(path) for path in sorted(whole.glob("runs/*"))]
    splits = {(run.seed, run.split_digest) for run in runs}
    assert len(splits) == 2
    assert {(run.seed, tuple(run.rounds.asked)) for run in runs if run.method != "local"} == {
        (1, (2,) * 30),
        (2, (2,) * 30),
    }


def test_tables_and_page_are_left_and_what_was_asked(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {
        *TABLES,
        "compare.toml",
        "compare.lock",
        "report.html",
        "runs",
    }
    asked = read(whole)
    assert asked.seeds == (1, 2)
    assert [e.lr for e in asked.experiments.values()] == [0.01, 0.1, 0.01]
    for name in TABLES:
        for method in ("local", "fedavg", "superfed-mm"):
            assert method in (whole / name).read_text()


def test_results_do_not_depend_on_how_many_run_at_a_time(whole: Path, isthmus: Isthmus) -> None:
    said = isthmus("compare", *ASKED, "--jobs", "1", "--out", "one")
    assert said.code == 0, said.err
    assert digests(Path("one")) == digests(whole)
    assert texts(Path("one")) == texts(whole)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_comparison_goes_on_to_the_same_tables(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    process = begin(tmp_path, "compare", *ASKED, "--jobs", "2", "--out", "killed")
    wait_for(process, out, "runs/*/rounds.csv")
    process.kill()
    process.communicate()
    for _ in range(100):
        if not at_work(tmp_path):
            break
        time.sleep(0.05)
    assert not at_work(tmp_path)
    assert (out / "compare.toml").is_file()
    assert not (out / "table.md").exists()
    again = begin(tmp_path, "resume", "killed", "--jobs", "1")
    shown, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert shown.endswith("loaded torch: False\n"), "each run's process does, and one is enough"
    assert "with 1 at a time" in said
    assert digests(out) == digests(whole)
    assert texts(out) == texts(whole)


def test_a_second_comparison_is_told_who_holds_the_directory(isthmus: Isthmus) -> None:
    """It changes nothing, neither where the first has just begun nor where it goes on."""
    out = Path("out")
    out.mkdir()
    with open_lock(out / "compare.lock"):
        golden.check(isthmus("compare", *ASKED, "--out", "out").mistake)
        assert [path.name for path in out.iterdir()] == ["compare.lock"]
        (out / "compare.toml").write_text(grid("local", "fedavg").toml())
        golden.check(isthmus("resume", "out").mistake)
        assert {path.name for path in out.iterdir()} == {"compare.lock", "compare.toml"}


def test_the_lock_of_a_comparison_that_was_killed_before_it_began_keeps_nobody_out(
    tmp_path: Path,
) -> None:
    (tmp_path / "compare.lock").write_text("4711")
    (tmp_path / "compare.toml.a1b2c3d4.part").write_text("half a file")
    refuse_another(grid("local"), tmp_path)
    hold(tmp_path, LOCK).close()
    (tmp_path / "precious").write_text("kept")
    with golden.raises(IsthmusError):
        refuse_another(grid("local"), tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_leaves_no_process_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = begin(
        tmp_path, "compare", *ASKED, "--rounds", "3000", "--jobs", "1", "--out", "stopped"
    )
    wait_for(process, tmp_path, "stopped/runs/*/rounds.csv")
    assert at_work(tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    golden.check(said.splitlines()[-1])
    assert not at_work(tmp_path)
    states = [json.loads(p.read_text())["status"] for p in tmp_path.glob("*/runs/*/summary.json")]
    assert set(states) == {"stopped"}


def test_runs_are_told_when_they_begin_and_end_with_how_many_are_done(isthmus: Isthmus) -> None:
    """patience=1 ends a run of many rounds; what has ended is not done again."""
    asked = ["--methods", "local,fedavg", "--seeds", "1", *TINY, "--set", "eval_every=1"]
    asked += ["--rounds", "2000", "--set", "patience=1", "--jobs", "1", "--out", "out"]
    said = isthmus("compare", *asked)
    assert said.code == 0, said.err
    lines = [line for line in said.err.splitlines() if " · " in line]
    assert lines[::2] in (
        ["local · seed 1: begins", "fedavg · seed 1: begins"],
        ["fedavg · seed 1: begins", "local · seed 1: begins"],
    )
    golden.check(lines[1])
    golden.check(lines[3])
    again = isthmus("compare", *asked)
    assert "2 runs, 0 left" in again.err
    assert "begins" not in again.err


def test_what_fails_is_named_and_the_others_go_on(whole: Path, isthmus: Isthmus) -> None:
    """fedprox steps by 1e30 and is out of range at once; fedavg ends as it does without it."""
    asked = ["--methods", "fedavg,fedprox", "--seeds", "2", *TINY, "--set", "fedavg.lr=0.1"]
    rest = ["--jobs", "1", "--baseline", "fedprox", "--out", "out"]
    said = isthmus("compare", *asked, "--set", "fedprox.lr=1e30", *rest)
    assert said.code == 1
    golden.check(said.err)
    golden.check(said.err.splitlines()[-1])
    found = digests(Path("out"))
    assert {name: found[name] for name in ("fedavg-1", "fedavg-2")} == {
        name: digest for name, digest in digests(whole).items() if name.startswith("fedavg")
    }
    for text in texts(Path("out"))[:2]:
        golden.check(text)


def test_settings_are_chosen_on_validation_data(isthmus: Isthmus) -> None:
    """The choice is recomputed from the rows of clients.csv: the least mean loss over clients."""
    tune = ["--tune", "lr=0.001,1e30,0.1", "--set", "eval_every=0", "--rounds", "8"]
    asked = ["--methods", "local,fedavg", "--seeds", "3,0", *TINY, *tune, "--out", "out"]
    said = isthmus("compare", *asked, "--jobs", "1")
    assert said.code == 0, said.err
    assert "top-1" not in said.err.split("seed 3: begins")[0]  # no test figure of a trial
    with Path("out/trials.csv").open() as file:
        trials = list(csv.DictReader(file))
    assert [row["method"] for row in trials] == ["local"] * 3 + ["fedavg"] * 3
    page = Path("out/report.html").read_text()
    assert ">Tuning<" in page
    assert all(row["validation_loss"] in page for row in trials)
    assert {row["seed"] for row in trials} == {"1"}  # the least that is not reported
    assert all("diverged" in row["failed"] for row in trials if row["settings"] == "lr=1e30")
    for method in ("local", "fedavg"):
        losses = {}
        for row in trials:
            if row["method"] == method and not row["failed"]:
                lines = Path("out", row["run"], "clients.csv").read_text().splitlines()
                table = csv.DictReader(line for line in lines if not line.startswith("#"))
                found = [
                    float(scored["loss"])
                    for scored in table
                    if (scored["model"], scored["split"]) == ("personal", "validation")
                ]
                losses[row["settings"]] = sum(found) / len(found)
                assert float(row["validation_loss"]) == pytest.approx(losses[row["settings"]], 1e-4)
        (best,) = [r["settings"] for r in trials if (r["method"], r["chosen"]) == (method, "yes")]
        assert best == min(losses, key=lambda settings: losses[settings])
        for seed in (0, 3):
            run = Experiment.load(f"out/runs/{method}-{seed}/experiment.toml")
            assert f"lr={run.lr}" == best


def test_reported_runs_may_keep_best_models(isthmus: Isthmus) -> None:
    asked = ["compare", "--methods", "fedavg", "--seeds", "1", *TINY, "--tune", "lr=0.1,0.2"]
    ended = isthmus(*asked, "--keep-best", "--out", "kept", "--jobs", "1")
    assert ended.code == 0, ended.err
    best = isthmus("export", "kept/runs/fedavg-1", "--client=0", "--which=best", "--out=models")
    assert best.code == 0, best.err
    summary = json.loads(Path("kept/trials/fedavg/1/summary.json").read_text())
    assert "keeps_best" not in summary
    golden.check(isthmus(*asked, "--out", "kept").mistake)
    none = isthmus(*asked[:-2], "--keep-best", "--set", "validation=0", "--set", "selection=fixed")
    golden.check(none.mistake)


def test_one_split_may_serve_all_seeds() -> None:
    asked = grid("fedavg", "local")
    one = {m: change(e, split_seed=7) for m, e in asked.experiments.items()}
    for cell in Grid(experiments=one, seeds=(1, 2), tune={"fedavg": {"lr": ("1", "2")}}).trials():
        assert cell.experiment.dividing_seed == 7
    assert [cell.experiment.dividing_seed for cell in asked.runs()] == [1, 2, 1, 2]


def test_the_tuning_seed_is_the_least_that_is_not_reported() -> None:
    assert grid("fedavg").tuning_seed == 0
    assert grid("fedavg", seeds=(0, 1, 3)).tuning_seed == 2


def test_trials_are_the_product_of_the_values() -> None:
    tune = {"fedprox": {"mu": ("0.1", "1"), "lr": ("0.01", "0.1")}}
    cells = grid("fedprox", tune=tune).trials()
    found = [(cell.experiment.method["mu"], cell.experiment.lr) for cell in cells]
    assert found == [(0.1, 0.01), (0.1, 0.1), (1.0, 0.01), (1.0, 0.1)]
    assert [str(cell.place) for cell in cells] == [f"trials/fedprox/{n}" for n in (1, 2, 3, 4)]
    (first, _) = grid("fedprox", tune=tune).runs({"fedprox": 3})
    assert (first.experiment.method["mu"], first.experiment.lr, first.experiment.seed) == (
        1,
        0.01,
        1,
    )


def test_a_comparison_reads_back_as_it_was_asked_for(tmp_path: Path) -> None:
    tune = {"floco": {"tau": ("5", "7")}, "local": {"lr": ("0.1", "1")}}
    asked = grid("floco", "local", tune=tune, reference="local", seeds=(4, 2))
    (tmp_path / "compare.toml").write_text(asked.toml())
    assert read(tmp_path) == asked
    assert read(tmp_path).toml() == asked.toml()


def test_a_method_may_be_told_from_a_part() -> None:
    """Else METHOD.key=value could mean two things."""
    assert not set(METHODS) & set(COMPONENTS)


TWO = {"lr": ("1", "2")}
TRIED = {"apfl": TWO}


@pytest.mark.parametrize(
    "asked",
    [
        grid("fedavg", "local", tune={"fedavg": TWO}),
        grid("fedavg", tune={"fedavg": {"lr": ("0.1", "0.10")}}),
        grid("fedavg", tune={"fedavg": {"epochs": ("1", "2")}}),
        grid("fedavg", reference="fedavgg"),
        grid(experiments={"fedavg": Experiment(), "local": Experiment(method="local")}),
        grid(experiments={m: Experiment(method=m, preset="paper") for m in ("fedavg", "local")}),
        grid(
            experiments={"fedavg": Experiment(method="fedavg", validation=0)}, tune={"fedavg": TWO}
        ),
        grid(
            experiments={"apfl": Experiment(method="apfl", selection="oracle")}, tune={"apfl": TWO}
        ),
    ],
)
def test_what_would_be_unfair_is_refused(asked: Grid) -> None:
    golden.check(refused(asked))


MISTAKES: dict[str, list[str]] = {
    "no methods": [],
    "an unknown method": ["--methods", "local,fedavgg"],
    "a method twice": ["--methods", "local,local"],
    "seeds that are no numbers": ["--methods", "local", "--seeds", "a"],
    "no seeds": ["--methods", "local", "--seeds", "0"],
    "a seed twice": ["--methods", "local", "--seeds", "3,3"],
    "a seed among the settings": ["--methods", "local", "--set", "seed=3"],
    "no jobs": ["--methods", "local", "--jobs", "0"],
    "an option that not all have": ["--methods", "fedavg,fedprox", "--set", "mu=1"],
    "an option of another method": ["--methods", "fedavg", "--set", "fedprox.mu=1"],
    "an option that the method lacks": ["--methods", "fedavg,fedprox", "--set", "fedavg.mu=1"],
    "another budget for one method": ["--methods", "fedavg,local", "--set", "local.rounds=3"],
    "a reference that is not there": ["--methods", "fedavg,local", "--baseline", "ditto"],
    "tuning without values": ["--methods", "local", "--tune", "lr"],
    "a value that cannot be": ["--methods", "local", "--tune", "lr=1,-1"],
    "a full directory": ["--methods", "local", "--out", "full"],
    "another comparison": ["--methods", "local", "--seeds", "2", "--out", "other"],
    "another run in its place": ["--methods", "local", "--seeds", "3", "--out", "other"],
    "data that are not there": ["--methods", "local", "--data", "mnist", "--out", "new"],
}


MANY = {
    "seeds": ["--seeds", "1000000"],
    "one seed of a googol": ["--seeds", "1" + "0" * 400],
    "listed": ["--seeds", ",".join(map(str, range(10_001)))],
    "tried": [
        word for key in ("lr", "momentum") for word in ("--tune", f"{key}={'0.1,' * 200}0.2")
    ],
    "at a time": ["--jobs", "1000000000"],
}


@pytest.mark.parametrize("what", MANY)
def test_more_than_anybody_waits_for_is_refused_at_once(isthmus: Isthmus, what: str) -> None:
    said = isthmus("compare", "--methods", "local", *TINY, *MANY[what]).mistake
    golden.check(said)
    assert len(said) < 300
    assert not Path("comparison").exists()


FILES = {
    "latin-1": b"seeds = [1] # \xe9",
    "empty": b"",
    "seeds as text": b'seeds = ["1"]\n[experiments.local]',
    "no seed": b"seeds = []\n[experiments.local]",
    "no method": b"seeds = [1]\n[experiments]",
    "nested": b"seeds = " + b"[" * 100_000,
    "unknown": b"self = 1\nseeds = [1]\n[experiments.local]",
    "a place elsewhere": b'seeds = [1]\n[experiments."../x".method]\nname = "../x"\nown = true',
    "a seed twice": b'seeds = [1, 1]\n[experiments.local]\nmethod = "local"',
}


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_one_line(isthmus: Isthmus, kind: str) -> None:
    Path("compare.toml").write_bytes(FILES[kind])
    said = isthmus("resume", ".").mistake
    golden.check(said)
    assert len(said) < 400


@pytest.mark.parametrize(
    "summary", ["[]", "1", '{"rounds": "500"}', "[" * 100_000, '{"rounds": 500}']
)
def test_a_run_whose_summary_is_damaged_is_not_finished(tmp_path: Path, summary: str) -> None:
    (tmp_path / "summary.json").write_text(summary)
    experiment = Experiment(method="local", rounds=500)
    assert not is_finished(tmp_path, experiment)
    (tmp_path / "summary.json").write_text('{"rounds": 500, "status": "finished"}')
    assert is_finished(tmp_path, experiment)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_line_and_nothing_is_written(isthmus: Isthmus, mistake: str) -> None:
    arguments = MISTAKES[mistake]
    Path("full").mkdir()
    Path("full/file").touch()
    Path("other/runs/local-1").mkdir(parents=True)
    other = grid("local", seeds=(1, 2, 3))
    Path("other/compare.lock").touch()
    Path("other/compare.toml").write_text(other.toml())
    wrong = change(other.experiments["local"], lr=0.5)
    Path("other/runs/local-1/experiment.toml").write_text(wrong.toml())
    before = sorted(Path().rglob("*"))
    golden.check(isthmus("compare", *arguments).mistake)
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("option", ["--rounds", "--workers", "--track"])
def test_what_is_for_single_runs_is_refused(isthmus: Isthmus, option: str) -> None:
    Path("compare.toml").write_text(grid("local").toml())
    golden.check(isthmus("resume", ".", option, "9").mistake)


def test_jobs_are_for_comparisons(isthmus: Isthmus) -> None:
    golden.check(isthmus("resume", "first", "--jobs", "2").mistake)


def test_another_reference_is_no_other_comparison(tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text(grid("local", reference="local").toml())
    refuse_another(grid("local"), tmp_path)
    with golden.raises(IsthmusError):
        refuse_another(grid("local", seeds=(1, 3)), tmp_path)


def test_a_process_that_dies_takes_only_its_own_job_along(tmp_path: Path) -> None:
    experiment = Experiment(method="fedavg", data="synthetic", rounds=3, epochs=1)
    job = {"do": "run", "experiment": experiment.toml(), "data_root": ""}
    jobs = [(name, job | {"place": str(tmp_path / name)}) for name in ("first", "second")]
    last: dict[str, Any] = {}
    pool: JobPool[str]
    with JobPool(1) as pool:
        for name, message in pool.run(jobs):
            last[name] = message
            if name == "first" and "started" in message:
                os.kill(pool.processes[0].pid, signal.SIGKILL)
    assert last["first"]["failed"] == "its process ended with code -9"
    assert last["second"]["ended"]


def test_a_run_of_several_worker_processes_is_the_run_of_one(tmp_path: Path) -> None:
    """They are forked while the process reads its jobs: they must not wait for the next one."""
    few = {"data": {"name": "synthetic", "samples": 80}, "clients": 4, "clients_per_round": 2}
    experiment = Experiment(**few, method="fedavg", rounds=2, epochs=1)
    job = {"do": "run", "experiment": experiment.toml(), "data_root": ""}
    jobs = [(n, job | {"place": str(tmp_path / str(n)), "workers": n}) for n in (1, 2)]
    end = time.monotonic() + 120

    def stop() -> bool:
        assert time.monotonic() < end, "it hangs"
        return False

    digests: dict[int, str] = {}
    pool: JobPool[int]
    with JobPool(1) as pool:
        for workers, message in pool.run(jobs, stop):
            assert "failed" not in message
            if "ended" in message:
                digests[workers] = message["ended"]
    assert digests[1] == digests[2]
