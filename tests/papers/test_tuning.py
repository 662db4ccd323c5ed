"""Trials of settings, made as recipes are: chosen on validation data, as many for each method."""

import json
from pathlib import Path

import pytest

from commands import Isthmus
from golden import check
from isthmus import Experiment
from isthmus_papers import recipe, record
from isthmus_papers.recipe import Recipe, TableCell, build_recipe, find_recipe, read_recipe_file
from isthmus_papers.record import MeasuredNumber, RunRecord
from isthmus_papers.show import build_section
from isthmus_papers.verdict import TUNED, Records, assess, choose_trials
from tiny import PAPER

TRIALS = """
table = "tuning"
title = "Tuning"
metrics = ["loss"]
runs = ["fedavg", "fedprox"]
seeds = [0]
tried = [
  { lr = 0.1, momentum = 0.0, weight_decay = 0.0 },
  { lr = 1e30, momentum = 0.0, weight_decay = 0.0 },
]
[settings]
validation = 0.25
[number]
data = "validation"
unit = "nats"
[[columns]]
name = "S, 4"
"""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recipe:
    made = build_recipe(
        "tiny/tuning", read_recipe_file(PAPER, "paper"), read_recipe_file(TRIALS, "tuning")
    )
    monkeypatch.setattr(recipe, "read_recipes", lambda: {"tiny/tuning": made})
    monkeypatch.setattr(record, "find_shipped", lambda: tmp_path / "none")
    return made


def a_trial(cell: TableCell, value: float | None) -> RunRecord:
    """A record of a trial with this number on validation data; None: it diverged."""
    if value is None:
        return record.note_divergence(cell.experiment(0), "client 1 diverged")
    number = MeasuredNumber(cell.metric, "personal", "validation", "mean", "all", value, 0.1)
    return RunRecord(cell.experiment(0).table(), "d", "f", 2, 9.0, "machine", {}, (number,))


def gather(cells: tuple[TableCell, ...], *values: float | None) -> Records:
    found = [a_trial(cell, value) for cell, value in zip(cells, values, strict=False)]
    return {each.identity: each for each in found}


def test_every_trial_is_a_run_of_every_method(tiny: Recipe) -> None:
    assert [cell.label for cell in tiny.runs] == [
        "FedAvg, lr=0.1, momentum=0.0, weight_decay=0.0",
        "FedAvg, lr=1e+30, momentum=0.0, weight_decay=0.0",
        "FedProx, lr=0.1, momentum=0.0, weight_decay=0.0",
        "FedProx, lr=1e+30, momentum=0.0, weight_decay=0.0",
    ]
    last = tiny.choose([], ["fedprox"])[1].experiment(0)
    assert (last.method["mu"], last.lr, last.momentum, last.validation) == (0.5, 1e30, 0.0, 0.25)


def test_the_least_loss_wins_where_all_trials_of_a_method_were_made(tiny: Recipe) -> None:
    """0.7 of FedAvg loses against 0.6; of FedProx one trial is missing, then it diverged."""
    records = gather(tiny.runs, 0.7, 0.6, 0.5)
    assert choose_trials((assess(cell, records) for cell in tiny.runs), records) == {
        "fedavg": tiny.runs[1]
    }
    records = gather(tiny.runs, 0.7, 0.6, 0.5, None)
    chosen = choose_trials((assess(cell, records) for cell in tiny.runs), records)
    assert chosen == {"fedavg": tiny.runs[1], "fedprox": tiny.runs[2]}
    (column,) = build_section(tiny, tiny.runs, records).columns
    assert [(row.mark, row.ours) for row in column.rows] == [
        ("", "0.700 ± 0.100"),
        ("✓", "0.600 ± 0.100"),
        ("✓", "0.500 ± 0.100"),
        ("", "diverged"),
    ]


def test_settings_with_which_a_longer_run_diverged_have_lost(tiny: Recipe) -> None:
    records = dict(gather(tiny.runs, 0.7, 0.6))
    assert choose_trials((assess(cell, records) for cell in tiny.runs), records) == {
        "fedavg": tiny.runs[1]
    }
    longer = tiny.runs[1].experiment(3).model_copy(update={"rounds": 1000})
    lost = record.note_divergence(longer, "client 1 diverged")
    records[lost.identity] = lost
    assert choose_trials((assess(cell, records) for cell in tiny.runs), records) == {
        "fedavg": tiny.runs[0]
    }


def test_the_greatest_top1_wins_where_trials_are_chosen_by_it() -> None:
    sheet = TRIALS.replace('"loss"', '"top1"').replace('"nats"', '"fraction"')
    made = build_recipe(
        "tiny/tuning", read_recipe_file(PAPER, "paper"), read_recipe_file(sheet, "tuning")
    )
    records = gather(made.runs, 0.7, 0.6, None, 0.5)
    chosen = choose_trials((assess(cell, records) for cell in made.runs), records)
    assert chosen == {"fedavg": made.runs[0], "fedprox": made.runs[3]}


def test_a_trial_that_diverged_is_recorded_and_not_made_again(
    tiny: Recipe, isthmus: Isthmus
) -> None:
    words = ("reproduce", "tiny/tuning", "--methods", "fedavg", "--out", "out", "--jobs", "1")
    said = isthmus(*words)
    assert said.code == 0, said.err
    assert "diverged" in said.err + said.out
    assert "top-1" not in said.err, "test figures of trials are shown to nobody"
    kept = [json.loads(path.read_text()) for path in Path("out/results").iterdir()]
    (lost,) = (each for each in kept if each["failed"])
    (ended,) = (each for each in kept if not each["failed"])
    assert lost["numbers"] == []
    numbers = {(each["metric"], each["data"]) for each in ended["numbers"]}
    assert {("loss", "validation"), ("top1", "validation")} <= numbers
    again = isthmus(*words)
    assert "2 runs, 0 left" in again.err + again.out


def test_what_has_a_record_is_left_out_where_only_new_runs_are_wanted(
    tiny: Recipe, isthmus: Isthmus
) -> None:
    shipped = Path(str(record.find_shipped()))
    for known in gather(tiny.runs, 0.7, None, 0.6).values():
        record.write(known, shipped)
    words = ("reproduce", "tiny/tuning", "--new", "--out", "out", "--jobs", "1")
    assert "1 runs, 1 left" in isthmus(*words).err
    record.write(a_trial(tiny.runs[3], None), shipped)
    check(isthmus(*words).mistake)


class TestFedSimSup:
    """The trials that come with isthmus, and the settings that follow from them."""

    def test_trials_are_fair(self) -> None:
        """Five for each method of the tables, on one split whose seed no table uses."""
        tuning, table = find_recipe("fedsimsup/tuning"), find_recipe("fedsimsup/table2")
        assert {cell.method for cell in tuning.runs} == {cell.method for cell in table.cells}
        for method in {cell.method for cell in table.cells}:
            trials = [cell.experiment(0) for cell in tuning.choose([], [method])]
            tried = [tuple(getattr(trial, key) for key in TUNED) for trial in trials]
            assert len(set(tried)) == len(tried) == 5
            assert all(trial.validation == 0.1 for trial in trials)
        assert not {seed for cell in tuning.runs for seed in cell.seeds} & set(table.cells[0].seeds)

    def test_tables_have_what_won(self) -> None:
        tuning, table = find_recipe("fedsimsup/tuning"), find_recipe("fedsimsup/table2")
        shipped = record.read_all([record.find_shipped()])
        chosen = choose_trials((assess(cell, shipped) for cell in tuning.runs), shipped)
        won = {m: tuple(cell.settings[key] for key in TUNED) for m, cell in chosen.items()}
        for cell in table.cells:
            assert tuple(cell.settings[key] for key in TUNED) == won[cell.method]
        (updated,) = table.choose([table.columns[0]], ["fedavg-lu"])
        assert tuple(updated.settings[key] for key in TUNED) == won["fedavg"]
        preset = Experiment(preset="paper", method="fedsimsup")
        assert tuple(getattr(preset, key) for key in TUNED) == won["fedsimsup"]
