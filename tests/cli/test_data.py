"""`isthmus data show`, the notes of a run, and partitions that make another number of clients."""

import json
import tomllib
from pathlib import Path

import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.run.build import read_federation

DROP = "partition={name='dirichlet-classwise', short='drop', alpha=0.05}"
TINY = [
    *("--data", "synthetic", "--seed", "4", "--set", "samples=900"),
    *("--set", "clients=12", "--set", "clients_per_round=2"),
]
RUN = [
    *("run", *TINY, "--method", "fedavg", "--rounds", "2"),
    *("--set", "epochs=1", "--set", "hidden=8"),
]


def test_show_prints_the_figures_and_the_picture(isthmus: Isthmus) -> None:
    code, out, err = isthmus("data", "show", *TINY, "--set", "partition=five-fold")
    assert (code, err) == (0, "")
    for words in (
        "partition       five-fold (primary_share=0.8, rest=others, folds=5)",
        "clients         12",
        "examples        900; per client 75 to 75, median 75; Gini 0.000",
        "classes         10; per client ",
        "label entropy   ",
        "label distance  0.",
        "digest          ",
        "note: ",
        "share of a client's examples: ",
    ):
        assert words in out
    assert not list(Path().iterdir())


def test_show_for_programs_says_the_same(isthmus: Isthmus) -> None:
    """900 examples in 12 clients of 75; the classes of `synthetic` are drawn, so that they are not
    quite equal and the pooled entropy is a little below ln 10 = 2.303."""
    code, out, _ = isthmus("data", "show", *TINY, "--set", "partition=iid", "--json")
    shown = json.loads(out)
    assert code == 0
    assert (shown["clients"], shown["examples"], shown["classes"]) == (12, 900, 10)
    assert shown["sizes"] == {"least": 75, "median": 75.0, "most": 75}
    assert [sum(row) for row in shown["counts"]] == [75] * 12
    assert 2.28 < shown["pooled_entropy"] < 2.303
    assert 0 < shown["distance"] < 0.5
    assert (shown["partition"], shown["seed"], shown["notes"]) == ({"name": "iid"}, 4, [])


def test_the_digest_shown_is_that_of_the_run(isthmus: Isthmus) -> None:
    assert isthmus(*RUN, "--out", "run")[0] == 0
    shown = json.loads(isthmus("data", "show", "run/experiment.toml", "--json")[1])
    assert json.loads(Path("run/summary.json").read_text())["federation"] == shown["digest"]
    other = json.loads(isthmus("data", "show", "run/experiment.toml", "--seed", "5", "--json")[1])
    assert other["digest"] != shown["digest"]


MISTAKES: dict[str, list[str]] = {
    "no command": [],
    "an unknown command": ["shwo"],
    "an unknown partition": ["show", "--set", "partition=dirichlet"],
    "an unknown option": ["show", "--set", "partition.alfa=1"],
    "a concentration of 0": ["show", "--set", "partition={name='dirichlet-hsu', alpha=0}"],
    "one fold": ["show", "--set", "partition={name='five-fold', folds=1}"],
    "more than there are": ["show", "--set", "partition=quantity", "--set", "clients=200"],
    "data that are somebody's own": ["show", "--set", "data=own"],
    "a partition that is": ["show", "--set", "partition=own"],
    "missing data": ["show", "--data", "mnist"],
    "a missing file": ["show", "missing.toml"],
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_code_2(isthmus: Isthmus, name: str) -> None:
    check(isthmus("data", *MISTAKES[name]).mistake)


def test_a_run_says_what_its_partition_relaxed(isthmus: Isthmus) -> None:
    _, _, err = isthmus(*RUN, "--set", "partition=dirichlet-clientwise", "--out", "run")
    first, second, *_ = err.splitlines()
    assert first.startswith("note: ")
    check(first)
    assert "estimate" in second


def test_dropped_clients_are_not_in_the_record_and_the_record_runs_again(isthmus: Isthmus) -> None:
    code, out, err = isthmus(*RUN, "--set", DROP, "--out", "run")
    assert code == 0, err
    recorded = tomllib.loads(Path("run/experiment.toml").read_text())
    rows = [line for line in Path("run/federation.csv").read_text().splitlines() if line[0] != "#"]
    assert recorded["clients"] == len(rows) - 1 < 12
    assert recorded["partition"]["drawn"] == 12
    check(err)
    again = isthmus("run", "run/experiment.toml", "--out", "again")
    assert again[1].splitlines()[-1] == out.splitlines()[-1]  # the digest
    text = Path("run/experiment.toml").read_text()
    assert Path("again/experiment.toml").read_text() == text
    code, _, err = isthmus("resume", "run", "--rounds", "3")
    assert code == 0, err


def test_semantic_groups_decide_the_number_of_clients(isthmus: Isthmus) -> None:
    partition = {"name": "semantic", "smallest": 20, "largest": 60}
    experiment = Experiment(
        method="fedavg", data="synthetic", partition=partition, rounds=1, epochs=1
    )
    run = federate(experiment)
    assert run.experiment.clients == len(run.setting.federation) != experiment.clients
    assert dict(run.experiment.partition) == dict(experiment.partition)
    check(run.setting.federation.notes[0])
    assert federate(run.experiment).digest == run.digest
    assert "note: there are" in isthmus("data", "show", *TINY, "--set", f"partition={_toml()}")[1]


def _toml() -> str:
    return "{name='semantic', smallest=20, largest=60}"


def test_fewer_clients_than_a_round_wants_are_refused(isthmus: Isthmus) -> None:
    arguments = [*RUN, "--set", "clients_per_round=12", "--set", DROP, "--out", "run"]
    code, _, err = isthmus(*arguments)
    assert code == 2
    check(err)
    assert not Path("run").exists()


def test_notes_stay_with_the_clients_and_out_of_the_digest() -> None:
    experiment = Experiment(data="synthetic", partition="dirichlet-hsu", seed=3)
    federation = read_federation(experiment, Path())
    digest = federation.digest()
    assert federation.notes
    train, later = federation.split_off_newcomers(0.25, seed=3)
    assert (
        train.notes == later.notes == federation.limit_training(5, seed=3).notes == federation.notes
    )
    federation.notes = ()
    assert federation.digest() == digest


def test_one_client_too_few_is_said_before_the_data_are_divided() -> None:
    experiment = Experiment(data="synthetic", partition="iid", clients=2001)
    with raises(IsthmusError):
        read_federation(experiment, Path())
