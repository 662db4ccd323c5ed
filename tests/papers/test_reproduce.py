"""`isthmus reproduce`: runs once what tables share, keeps records, judges honestly."""

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, IsthmusError, federate
from isthmus.run import record as reader
from isthmus_papers import conduct, plan, recipe, record, show
from isthmus_papers.number import Number
from isthmus_papers.plan import EXAMPLES, list_inputs
from isthmus_papers.recipe import Recipe, TableCell, build_recipe, find_recipe, read_recipe_file
from isthmus_papers.record import MeasuredNumber, RunRecord
from isthmus_papers.show import build_row, build_section
from isthmus_papers.verdict import ReproducedNumber, assess, describe_order, find_tolerance
from tiny import PAPER, a_record

TABLE = """
table = "{}"
title = "Table {}"
metrics = ["top1"]
runs = ["local"]
[[columns]]
name = "S, 4"
[[excused]]
methods = ["fedavg"]
columns = []
reason = "No."
[published.top1]
superfed-mm = "50.0 ± 1.0"
fedavg = "40.0 ± 1.0"
"""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Recipe]:
    paper = read_recipe_file(PAPER, "paper")
    recipes = {}
    for number in ("1", "2"):
        text = TABLE.format(number, number)
        if number == "2":
            text = text.replace("[[excused]]", "[[excused]]\nmetrics = []", 1)
        recipes[f"tiny/table{number}"] = build_recipe(
            f"tiny/table{number}", paper, read_recipe_file(text, f"table{number}")
        )
    monkeypatch.setattr(recipe, "read_recipes", lambda: recipes)
    monkeypatch.setattr(record, "find_shipped", lambda: tmp_path / "none")
    return recipes


def cell_of(name: str, column: str, method: str) -> TableCell:
    (found,) = find_recipe(name).choose([column], [method])
    return found


def cell_of_metric(name: str, column: str, method: str, metric: str) -> TableCell:
    (found,) = (c for c in find_recipe(name).choose([column], [method]) if c.metric == metric)
    return found


class TestVerdict:
    @pytest.mark.parametrize(
        ("value", "outcome"),
        [(0.9938, "reproduced"), (0.9837, "lower"), (0.9842, "reproduced"), (1.0, "reproduced")],
    )
    def test_a_point_is_near_enough(self, value: float, outcome: str) -> None:
        cell = cell_of("superfed/table1", "MNIST, 100", "superfed-mm")
        known = a_record(cell, value)
        verdict = assess(cell, {known.identity: known})
        assert verdict.outcome == outcome
        assert verdict.ours is not None
        assert verdict.ours.on_test
        assert verdict.difference == pytest.approx(100 * value - 99.38)

    def test_twice_the_deviation_over_seeds_is_near_enough_where_it_is_larger(self) -> None:
        cell = cell_of("superfed/table1", "MNIST, 100", "fedavg")
        ours = ReproducedNumber(0.0, None, 0.7, None, (1, 2), False)
        assert find_tolerance(cell, ours) == pytest.approx(1.4)
        assert find_tolerance(cell, ours._replace(over_seeds=None)) == 1.0
        seeded = replace(cell, std=3.0, number=replace(cell.number, deviation="seeds"))
        assert find_tolerance(seeded, ours) == 6.0

    def test_what_was_not_run_is_not_judged(self) -> None:
        assert assess(cell_of("superfed/table1", "MNIST, 100", "apfl"), {}).outcome == "not run"
        broken = assess(cell_of("superfed/table1", "MNIST, 100", "pfedme"), {})
        assert (broken.outcome, broken.ours) == ("cannot run", None)
        assert "source is broken" in broken.reason

    def test_what_only_the_released_code_explains_is_held_against_a_run_of_its_settings(
        self,
    ) -> None:
        cell = cell_of_metric("superfed/table4", "MNIST, pair 0.1", "fedavg", "top1")
        assert cell.mean == 82.4
        released = a_record(cell, 0.82, preset="release")
        clean = a_record(cell, 0.97)
        verdict = assess(cell, {each.identity: each for each in (clean, released)})
        assert (verdict.outcome, verdict.difference) == ("reproduced", pytest.approx(-0.4))
        assert verdict.ours is not None
        assert verdict.ours.value == pytest.approx(97)
        assert assess(cell, {clean.identity: clean}).outcome == "higher"

    def test_what_is_told_beside_a_verdict_is_of_the_run_that_was_judged(self) -> None:
        cell = cell_of_metric("superfed/table4", "MNIST, pair 0.1", "superfed-mm", "top1")
        (on_test,) = plan.list_experiments(cell, "release").values()
        (on_validation,) = plan.list_experiments(cell, "release", validated=True).values()
        records = {}
        for experiment, value in ((on_test, 0.83), (on_validation, 0.79)):
            number = MeasuredNumber("top1", "personal", "clients", "mean", "all", value, late=0.8)
            made = RunRecord(experiment.table(), "d", "f", 500, 9.0, "machine", {}, (number,))
            records[made.identity] = made
        row = build_row(assess(cell, records))
        assert (row.released, row.validated, row.late) == ("83.00†", "79.00", "80.00")
        told = show.to_json(assess(cell, records))
        assert told["preset"] == "release"
        assert [told[key] for key in ("ours", "validated", "late")] == pytest.approx([83, 79, 80])
        assert told["chosen_on_test"]

    def test_a_ranking_counts_pairs_in_the_other_order(self) -> None:
        """Published FedAvg < FedPer < APFL; ours FedPer < FedAvg < APFL: one pair of three."""
        cells = [
            cell_of("superfed/table1", "MNIST, 100", name) for name in ("fedavg", "fedper", "apfl")
        ]
        found = {known.identity: known for known in map(a_record, cells, (0.97, 0.96, 0.99))}
        local = ReproducedNumber(96.5, None, None, None, (1,), False)
        assert describe_order([assess(cell, found) for cell in cells], local) == (
            "Order of 3 methods: Kendall's tau 0.33; APFL first in both; better than training "
            "alone as published: FedPer, APFL; here: FedAvg, APFL"
        )


class TestPlan:
    def test_tables_share_equal_runs(self, tiny: dict[str, Recipe]) -> None:
        cells = [cell for each in tiny.values() for cell in each.choose()]
        runs = plan.plan(cells)
        names = [run.experiment.method["name"] for run in runs]
        assert sorted(names) == ["local", "superfed-mm", "superfed-mm"]
        assert all(len(run.cells) == 2 for run in runs)
        assert {run.experiment.selection for run in runs} >= {"oracle-common", "validation"}

    def test_the_papers_tables_share_runs_too(self) -> None:
        first, third = find_recipe("floco/table1"), find_recipe("floco/table3")
        runs = {run.identity for run in plan.plan(first.cells)}
        assert {run.identity for run in plan.plan(third.cells)} <= runs

    def test_what_is_also_run_with_tuning_is_not_run_without(self) -> None:
        column = find_recipe("floco/table1").choose(["CIFAR10, SimpleCNN, Dir(0.5)"])
        both = {run.experiment.method["name"]: run for run in plan.plan(column, seeds=1)}
        assert "fedavg" not in both
        assert {cell.method for cell in both["fedavg-lu"].cells} == {"fedavg", "fedavg-lu"}
        alone = [cell for cell in column if cell.method == "fedavg"]
        assert [run.experiment.method["name"] for run in plan.plan(alone, seeds=1)] == ["fedavg"]


@pytest.mark.parametrize(("tuned", "method"), list(record.TUNED.items()))
def test_a_method_is_read_off_the_run_whose_clients_tune_its_model(
    tuned: str, method: str, tmp_path: Path
) -> None:
    """Training is the same, and what its clients deploy is the shared model of that run."""
    records = {}
    for name in (tuned, method):
        sizes = {"clients": 4, "clients_per_round": 2, "rounds": 2, "epochs": 1}
        data = {"name": "synthetic", "samples": 80}
        experiment = Experiment(method=name, data=data, **sizes)
        federate(experiment, out=tmp_path / name)
        records[name] = record.measure(reader.read(tmp_path / name), experiment)
        record.write(records[name], tmp_path / f"{name} only")
    found = record.read_all([tmp_path / f"{tuned} only"])
    untuned = found[records[method].identity]
    assert len(found) == 2
    assert untuned.digest == records[method].digest
    of_tests = [each for each in records[method].numbers if each.data != "validation"]
    assert set(untuned.numbers) == set(of_tests) != set(records[tuned].numbers)
    assert untuned.curve == records[method].curve
    both = record.read_all([tmp_path / f"{method} only", tmp_path / f"{tuned} only"])
    assert both[records[method].identity].seconds == records[method].seconds


class TestCommand:
    OUT = ("--out", "repro", "--jobs", "1")

    def test_a_table_is_run_judged_and_kept(
        self, isthmus: Isthmus, tiny: dict[str, Recipe]
    ) -> None:
        said = isthmus("reproduce", "tiny/table1", *self.OUT)
        assert said.code == 0, said.err
        check(said.err)
        assert "SuPerFed-MM" in said.out
        kept = sorted(Path("repro/results").glob("*.json"))
        assert len(kept) == 3
        known = record.read(next(path for path in kept if "superfed" in path.name))
        summary = json.loads((Path("repro/runs") / kept[-1].stem / "summary.json").read_text())
        assert summary["digest"] == record.read(kept[-1]).digest
        assert known.rounds == 2
        before = {path: path.stat().st_mtime_ns for path in Path("repro/runs").rglob("clients.csv")}
        said = isthmus("reproduce", "tiny/table1", "tiny/table2", *self.OUT, "--report", "p.html")
        assert "3 runs, 0 left" in said.err
        assert {path: path.stat().st_mtime_ns for path in before} == before
        assert "Table 2" in Path("p.html").read_text()
        worse = [n._replace(value=n.value + 0.02) for n in known.numbers]
        shipped = Path(str(record.find_shipped()))
        record.write(known._replace(digest="other", numbers=tuple(worse)), shipped)
        said = isthmus("reproduce", "tiny/table1", *self.OUT)
        assert (said.code, "by more than rounding explains" in said.err) == (1, True)
        shutil.rmtree(shipped)
        said = isthmus("reproduce", "--json", "tiny/table1")
        rows = json.loads(said.out)
        assert [row["verdict"] for row in rows] == ["not run", "cannot run"]
        assert set(rows[0]) >= {"paper", "table", "column", "method", "metric", "published", "ours"}

    def test_the_list_says_how_to_check_an_installation(
        self, isthmus: Isthmus, tiny: dict[str, Recipe]
    ) -> None:
        said = isthmus("reproduce")
        assert said.code == 0, said.err
        assert "tiny/table2" in said.out
        check(said.out)

    def test_a_table_loses_nothing_in_a_terminal_of_80_columns(
        self, isthmus: Isthmus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "80")
        said = isthmus("reproduce", "superfed/table1", "--columns", "MNIST, 100")
        assert "…" not in said.out
        assert "▲  FedAvg           89.78 ± 11.30   96.08 ± 2.70" in said.out
        assert max(map(len, said.out.splitlines()[1:-1])) <= 80

    def test_time_that_is_up_stops_and_the_same_command_goes_on(
        self, isthmus: Isthmus, tiny: dict[str, Recipe]
    ) -> None:
        said = isthmus("reproduce", "tiny/table1", *self.OUT, "--budget", "0.001s")
        assert said.code == 0, said.err
        made = len(list(Path("repro/results").glob("*.json")))
        assert made < 3
        left = f"the time is up; {3 - made} of 3 runs are left; continue with the same command"
        assert left in said.err
        said = isthmus("reproduce", "tiny/table1", *self.OUT)
        assert "the time is up" not in said.err
        assert len(list(Path("repro/results").glob("*.json"))) == 3

    def test_only_the_first_seeds_are_planned_where_so_many_are_wanted(self) -> None:
        cells = find_recipe("fedsimsup/table2").choose(["CIFAR10, n=100, Dir(0.1)"], ["fedavg"])
        wanted = {seeds: plan.plan(cells, seeds=seeds) for seeds in (None, 1, 2)}
        drawn = {seeds: [run.experiment.seed for run in runs] for seeds, runs in wanted.items()}
        assert drawn == {None: [1, 2, 3], 1: [1], 2: [1, 2]}

    @pytest.mark.parametrize(
        "arguments",
        [
            ["superfed/table9"],
            ["superfed/table1", "--columns", "MNIST, 10"],
            ["superfed/table1", "--methods", "fedavgg"],
            ["superfed/table1", "--budget", "soon"],
            ["superfed/table1", "--seeds", "0"],
            ["superfed/table1", "--preset", "clean"],
            ["superfed/table1", "--report", "page.pdf"],
            ["--budget", "2h"],
            ["superfed/table1", "--methods", "pfedme", "--out", "x"],
        ],
    )
    def test_a_mistake_is_one_line(self, isthmus: Isthmus, arguments: list[str]) -> None:
        check(isthmus("reproduce", *arguments).mistake)


@pytest.fixture
def three(tiny: dict[str, Recipe]) -> list[plan.PlannedRun]:
    table = tiny["tiny/table1"]
    return plan.plan([*table.cells, *table.runs])


def test_the_end_is_when_the_last_of_several_at_a_time_ends(three: list[plan.PlannedRun]) -> None:
    """Of 1, 2 and 4 seconds two at a time: 1 + 4, and not half of 7."""
    left = [conduct.RunForecast(run, s) for run, s in zip(three, (1.0, 2.0, 4.0), strict=True)]
    assert [conduct.find_end(left, jobs) for jobs in (1, 2, 3)] == [7, 5, 4]


def test_of_a_run_that_is_continued_only_what_is_left_is_estimated(
    tmp_path: Path, three: list[plan.PlannedRun]
) -> None:
    """Records say 9 and 4 seconds; of two rounds of the first one is done. Nothing is unknown:
    the third has the network and the data of the others.
    """
    first, second, third = three
    conduct.find_place(first, tmp_path).mkdir(parents=True)
    (conduct.find_place(first, tmp_path) / "rounds.csv").write_text("round,lr\n1,0.1\n2,")
    known = {
        run.identity: a_record(run.cells[0], 0.5)._replace(
            experiment=run.experiment.table(), seconds=seconds
        )
        for run, seconds in ((first, 9.0), (second, 4.0))
    }
    left = conduct.list_left(three, tmp_path, known)
    assert [(each.run, each.seconds) for each in left] == [
        (second, 4.0),
        (first, 4.5),
        (third, 6.5),
    ]
    assert [each.seconds for each in conduct.list_left(three, tmp_path, {})] == [None] * 3


def test_seconds_are_scaled_by_how_often_an_example_is_trained_on() -> None:
    """A record of 40 rounds, 8 of 80 clients, 5 epochs: 9 s; twice the rounds and the cohort."""
    few = {"data": "mnist", "clients": 80, "clients_per_round": 8, "rounds": 40}
    experiment = Experiment(method="fedavg", **few)
    known = RunRecord(experiment.table(), "d", "f", 40, 9.0, "machine", {}, ())
    more = Experiment(method="fedprox", **few | {"rounds": 80, "clients_per_round": 16})
    records = {known.identity: known}
    elsewhere = more.model_copy(update={"data": {"name": "x"}})
    paces = conduct.list_paces(records)
    ours, others = (plan.PlannedRun("", each, ()) for each in (more, elsewhere))
    assert conduct.guess_seconds(ours, records, paces) == pytest.approx(36)
    assert conduct.guess_seconds(others, records, paces) is None


class TestData:
    """A part of a data set is not taken for the one that a published number is of."""

    def test_fewer_examples_are_refused_before_anything_runs(self, isthmus: Isthmus) -> None:
        Path("data/mnist").mkdir(parents=True)
        for part in ("train", "t10k"):
            images, labels = np.zeros((2000, 28, 28), np.uint8), np.arange(2000) % 10
            for name, array in (("images-idx3", images), ("labels-idx1", np.uint8(labels))):
                sizes = struct.pack(f">{array.ndim}I", *array.shape)
                head = bytes([0, 0, 8, array.ndim]) + sizes
                Path(f"data/mnist/{part}-{name}-ubyte").write_bytes(head + array.tobytes())
        column = ("superfed/table1", "--columns", "MNIST, 100", "--methods", "fedavg,apfl")
        check(isthmus("reproduce", *column, "--out", "repro").mistake)
        assert not Path("repro/runs").exists()

    def test_fewer_writers_than_the_paper_has_are_refused(self, isthmus: Isthmus) -> None:
        column = ("floco/table1", "--columns", "FEMNIST, SimpleCNN", "--methods", "fedavg")
        cells = find_recipe("floco/table1").choose(["FEMNIST, SimpleCNN"], ["fedavg"])
        assert {tuple(list_inputs(run.experiment).items()) for run in plan.plan(cells)} == {
            (("clients", 100),)
        }
        check(isthmus("reproduce", *column, "--out", "x").mistake)

    def test_what_every_data_set_without_owners_holds_is_known(self) -> None:
        cells = [cell for cell in recipe.list_cells() if cell.reason is None]
        assert {cell.experiment(1).data["name"] for cell in cells} - set(EXAMPLES) == {
            "femnist",
            "shakespeare",
        }

    def test_a_partition_that_makes_as_many_clients_as_it_likes_is_not_asked(self) -> None:
        (cell, *_) = find_recipe("superfed-v1/table2").choose(["EMNIST"], ["fedavg"])
        assert "clients" not in list_inputs(cell.experiment(1))


class TestCheck:
    """The run on bundled data, whose record comes with isthmus."""

    def test_it_gives_the_digest_of_its_record_or_its_numbers(self, isthmus: Isthmus) -> None:
        """The same bits on a machine and with a torch like the record's, else up to rounding.

        In four rounds rounding does not grow to a half of the least step of an accuracy, 1e-3.
        """
        said = isthmus("reproduce", "check", "--out", "checked", "--jobs", "1")
        assert said.code == 0, said.err
        (kept,) = record.read_all([Path("checked/results")]).values()
        shipped = record.read_all([record.find_shipped()])[kept.identity]
        agreement = record.compare(kept, shipped)
        assert agreement.text in said.err
        if (kept.machine, kept.versions) == (shipped.machine, shipped.versions):
            assert kept.digest == shipped.digest
        assert agreement.largest < 1e-3

    def test_agreement_says_what_differs(self) -> None:
        ours = a_record(cell_of("superfed/table1", "MNIST, 100", "fedavg"), 0.9)
        assert record.compare(ours, ours) == (0.0, "digest d, as in the record")
        other = a_record(cell_of("superfed/table1", "MNIST, 100", "fedavg"), 0.903)
        agreement = record.compare(ours, other._replace(digest="e", step="compiled"))
        assert agreement.largest == pytest.approx(0.003)
        check(agreement.text)


def test_processors_of_one_name_with_other_instructions_are_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results differ in their last bits there, so digests are compared on like machines only."""
    names = []
    for capability in ("AVX2", "AVX512"):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda c=capability: c)
        names.append(record.describe_machine.__wrapped__())
    assert names[0] != names[1] == names[0].replace("AVX2", "AVX512")


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    known = a_record(cell_of("superfed/table1", "MNIST, 100", "fedavg"), 0.9)
    path = record.write(known, tmp_path)
    assert record.read(path).numbers == known.numbers
    assert record.read(path).identity == known.identity
    path.write_text(path.read_text()[:100])
    with raises(IsthmusError):
        record.read(path)


def test_every_shipped_record_is_that_of_a_recipe() -> None:
    """The numbers that the documents show are those of the runs that recipes describe."""
    cells = [cell for each in recipe.read_recipes().values() for cell in each.choose()]
    names = {
        name
        for cell in cells
        for preset in ("paper", "release")
        for validated in (False, True)
        for name in plan.list_experiments(cell, preset, validated)
    }
    records = record.read_all([record.find_shipped()])
    assert set(records) <= names
    for known in (each for each in records.values() if not each.failed):
        assert known.rounds == known.experiment["rounds"]
        assert known.find(Number("top1")) is not None


@pytest.mark.parametrize("text", ["", "h", "-1h", "1y", "nan h", "1e400h"])
def test_a_budget_is_a_length_of_time(text: str) -> None:
    with raises(IsthmusError):
        conduct.read_budget(text)


def test_numbers_that_are_not_the_usual_are_told_by_where_they_stand() -> None:
    """FLOCO's shared model is tested on clients' data in the columns of FEMNIST only."""
    table = find_recipe("floco/table1")
    said = build_section(table, table.choose(), {}).numbers
    here = [each for each in said if each.startswith("global_top1, ")]
    assert [each.split(": ")[0] for each in here] == [
        "global_top1, in FEMNIST, SimpleCNN; FEMNIST, SqueezeNet"
    ]
    table = find_recipe("superfed/table1")
    said = build_section(table, table.choose(["MNIST, 50"]), {}).numbers
    assert [each.split(": ")[0] for each in said] == [
        "top1 in percent",
        "of SuPerFed-LM; SuPerFed-MM",
    ]
