"""Recipes: every published number is in them once, every experiment of theirs is one."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from golden import raises
from isthmus import Experiment, IsthmusError
from isthmus.methods import METHODS
from isthmus.metrics.metric import METRICS
from isthmus_papers.plan import list_experiments, plan
from isthmus_papers.recipe import (
    Preset,
    TableCell,
    build_recipe,
    choose_cells,
    find_recipe,
    find_recipes,
    list_cells,
    read_recipe_file,
    read_recipes,
)
from isthmus_papers.record import find_shipped, read_all

PUBLISHED = Path(__file__).with_name("published.csv")
RECIPES = {
    "superfed": "table1 table2 table3 table4 table5 figure3 figureA1 figureA2",
    "superfed-v1": "table1 table2 table3 figure2 figure3 figure4",
    "floco": "table1 table2 table3 table4 tableE tableF figure1 figure2 figure3 figure4",
    "fedsimsup": "table1 table2 table3 table4 figure2 figure3 figure4 figure9 tuning",
    "check": "digits",
}


def read_rows() -> list[dict[str, str]]:
    with PUBLISHED.open(newline="") as file:
        return list(csv.DictReader(file))


def all_cells() -> list[TableCell]:
    """Those of papers: that of the check is none."""
    cells = [cell for recipe in read_recipes().values() for cell in (*recipe.cells, *recipe.runs)]
    return [cell for cell in cells if cell.paper != "Check"]


def find(
    recipe: str, column: str, label: str, metric: str = "", preset: Preset = "paper"
) -> Experiment:
    """The experiment of one cell, with seed 1; that of any metric where none is named."""
    sheet = find_recipe(recipe)
    found = [
        cell
        for cell in (*sheet.cells, *sheet.runs)
        if (cell.column, cell.label) == (column, label) and metric in ("", cell.metric)
    ]
    return found[0].experiment(1, preset)


def test_all_tables_and_figures_have_a_recipe() -> None:
    names = {f"{paper}/{name}" for paper, tables in RECIPES.items() for name in tables.split()}
    assert set(read_recipes()) == names
    for name, recipe in read_recipes().items():
        assert recipe.name == name
        assert recipe.title
        assert recipe.cells or recipe.runs


def test_every_published_number_is_one_cell_and_every_cell_is_published() -> None:
    rows = [
        (
            *(row[key] for key in ("paper", "table", "dataset", "setting", "clients")),
            *(row["metric"], row["method"]),
            *(float(row["mean"]), float(row["std"]) if row["std"] else None),
        )
        for row in read_rows()
    ]
    cells = [
        (
            *(cell.paper, cell.table, cell.keys["dataset"], cell.keys["setting"]),
            *(str(cell.keys.get("clients", "")), cell.metric, cell.label),
            *(cell.mean, cell.std),
        )
        for cell in list_cells()
    ]
    assert len(rows) == len(set(rows)) == 1024
    assert Counter(rows) == Counter(cells)


def test_figures_have_runs_and_no_cells() -> None:
    for name, recipe in read_recipes().items():
        if "figure" in name or name in ("floco/table4", "fedsimsup/tuning", "check/digits"):
            assert not recipe.cells
            assert recipe.runs
        else:
            assert all(cell.mean is not None for cell in recipe.cells)
        assert all(cell.mean is None for cell in recipe.runs)


def test_every_cell_is_an_experiment_in_each_of_its_presets() -> None:
    for cell in all_cells():
        presets: list[Preset] = ["paper"] if cell.release is None else ["paper", "release"]
        for preset in presets:
            experiment = cell.experiment(7, preset)
            assert (experiment.preset, experiment.seed) == (preset, 7)
        if cell.mean is not None or cell.method in METHODS:
            assert cell.experiment(7).method["name"] == cell.method
        else:  # a run beside the table, with one setting changed
            assert cell.method.startswith(f"{cell.experiment(7).method['name']}-")
        assert cell.label
        assert cell.seeds


def test_one_cell_is_one_number() -> None:
    """No two cells of a table are the same number of the same runs."""
    for recipe in read_recipes().values():
        cells = [(cell.column, cell.label, cell.metric) for cell in (*recipe.cells, *recipe.runs)]
        assert len(cells) == len(set(cells))
        assert {column for column, _, _ in cells} == set(recipe.columns)


def test_printed_units_fit_the_printed_values() -> None:
    """A share of examples is 0 to 1 as recorded, so at most `factor` as printed."""
    for cell in list_cells():
        assert cell.mean is not None
        if cell.number.metric in METRICS and METRICS[cell.number.metric].factor == 100:
            assert 0 <= cell.mean <= cell.number.factor
            if cell.number.unit == "percent":
                assert cell.mean > 1
        assert (cell.std is not None) <= (cell.number.deviation != "none")


def test_clients_are_as_many_as_the_paper_says() -> None:
    for cell in list_cells():
        clients = cell.settings["clients"]
        assert cell.keys.get("clients", clients) == clients


class TestSharing:
    """Runs are shared by equality: what is the same run in two tables is an equal experiment."""

    @pytest.mark.parametrize("label", ["FedAvg", "FedProx", "Ditto", "FLOCO", "Local", "FedAvg-LU"])
    def test_floco_reads_the_same_runs_in_its_first_three_tables(self, label: str) -> None:
        for column in find_recipe("floco/table1").columns:
            runs = [find(f"floco/table{n}", column, label) for n in (1, 2, 3)]
            assert runs[0] == runs[1] == runs[2]

    def test_floco_reads_its_own_row_of_appendix_e_from_table_1(self) -> None:
        for column in find_recipe("floco/tableE").columns:
            for label in ("FLOCO", "FedAvg", "Local"):
                assert find("floco/tableE", column, label) == find("floco/table1", column, label)

    def test_floco_shares_figures_with_table_1(self) -> None:
        fold, other = "CIFAR10, SimpleCNN, 5-Fold", "CIFAR10, SimpleCNN, Dir(0.5)"
        bench = "CIFAR10, SimpleCNN, Dir(0.5), FL-bench"
        floco = find("floco/table1", fold, "FLOCO")
        assert find("floco/figure4", "tau=100, rho=0.1", "FLOCO") == floco
        assert find("floco/figure4", "tau=50, rho=0.1", "FLOCO") != floco
        for label in ("FedAvg", "Ditto", "FLOCO"):
            run = find("floco/table1", other, label)
            assert find("floco/figure3", other, label) == run
            assert find("floco/tableF", bench, label) == run
        writers = "FEMNIST, SimpleCNN"
        assert find("floco/figure2", writers, "FLOCO") == find("floco/table1", writers, "FLOCO")

    def test_fedsimsup_is_the_same_run_in_tables_2_and_4_and_in_figures(self) -> None:
        for column in find_recipe("fedsimsup/table2").columns:
            run = find("fedsimsup/table2", column, "FedSimSup")
            assert find("fedsimsup/table4", column, "FedSimSup") == run
        for column in find_recipe("fedsimsup/figure2").columns:
            for label in ("Local", "FedAvg", "FedSimSup"):
                run = find("fedsimsup/table2", column, label)
                assert find("fedsimsup/figure2", column, label) == run
        run = find("fedsimsup/table2", "CIFAR10, n=100, Dir(0.1)", "FedSimSup")
        assert find("fedsimsup/figure9", "C=40, gamma=3/7", "FedSimSup") == run

    def test_supervisors_of_one_kind_are_read_from_the_run_of_all_kinds(self) -> None:
        for column in find_recipe("fedsimsup/table4").columns:
            runs = [find("fedsimsup/table4", column, f"FedSimSup-{k}") for k in ("TCL", *"TCL")]
            assert runs[0] == runs[1] == runs[2] == runs[3]

    def test_superfed_shares_figures_with_table_1(self) -> None:
        for label in ("FedAvg", "SuPerFed-MM", "SuPerFed-LM"):
            run = find("superfed/table1", "CIFAR10, 100", label)
            assert find("superfed/figureA1", "CIFAR10, 100", label) == run
        for label in ("APFL", "SuPerFed-MM", "SuPerFed-LM"):
            run = find("superfed/table1", "MNIST, 500", label)
            assert find("superfed/figureA2", "MNIST, 500", label) == run

    def test_the_first_version_printed_rows_of_its_table_3_in_table_1(self) -> None:
        """The printed numbers of the two tables are the same: MM at 0.4, LM at 0.8."""
        for label, start in (("SuPerFed-MM", 0.4), ("SuPerFed-LM", 0.8)):
            column = f"L/R={start}"
            run = find("superfed-v1/table1", "CIFAR10", label)
            assert find("superfed-v1/table3", column, label) == run
            for metric in ("global_top1", "global_top5", "local_top1"):
                printed = [
                    (cell.mean, cell.std)
                    for name, place in (("table1", "CIFAR10"), ("table3", column))
                    for cell in find_recipe(f"superfed-v1/{name}").cells
                    if (cell.column, cell.label, cell.metric) == (place, label, metric)
                ]
                assert printed[0] == printed[1]

    def test_metrics_of_one_table_are_of_one_run(self) -> None:
        for recipe in read_recipes().values():
            settings: dict[tuple[str, str], object] = {}
            for cell in (*recipe.cells, *recipe.runs):
                assert settings.setdefault((cell.column, cell.label), cell.settings) == (
                    cell.settings
                )


class TestReasons:
    def test_cells_that_cannot_be_met_say_why_in_one_sentence(self) -> None:
        for cell in all_cells():
            if cell.reason is not None:
                assert re.fullmatch(r"[A-Z][^.]*[a-zA-Z0-9)][^.]*\.", cell.reason)

    def test_so_many_numbers_cannot_be_met(self) -> None:
        """SCAFFOLD and pFedMe: 2 x (6 + 6 + 4 + 24) cells."""
        excused = [cell for cell in list_cells() if cell.reason]
        assert Counter(cell.paper for cell in excused) == {
            "SuPerFed": 80,
            "FLOCO": 4,
            "FedSimSup": 42,
        }
        assert {cell.method for cell in excused if cell.paper == "SuPerFed"} == {
            "scaffold",
            "pfedme",
        }


class TestNumbers:
    def test_every_number_that_can_be_met_is_in_the_record_of_a_run(self) -> None:
        """By its name, among those of the shipped records; else a cell would never be judged."""
        known = [
            number._asdict()
            for record in read_all([find_shipped()]).values()
            for number in record.numbers
        ]
        for number in {cell.number for cell in all_cells() if cell.reason is None}:
            names = {
                "metric": number.metric,
                "model": number.model,
                "data": number.data,
                "summary": number.summary,
                "clients": number.clients,
            }
            assert any(names.items() <= each.items() for each in known), number

    def test_every_number_describes_itself(self) -> None:
        for cell in all_cells():
            assert "; " in cell.number.describe()
        worst = find_recipe("floco/table3").cells[0].number.describe()
        assert "worst 5 %" in worst
        assert "± over seeds" in worst


class TestNames:
    def test_an_unknown_recipe_suggests_the_nearest(self) -> None:
        with raises(IsthmusError):
            find_recipe("superfed/tabel1")

    def test_cells_are_chosen_by_column_and_by_either_name_of_a_method(self) -> None:
        recipe = find_recipe("fedsimsup/table4")
        column = "CIFAR10, n=50, Dir(0.1)"
        assert [cell.mean for cell in recipe.choose([column], ["FedSimSup-T"])] == [0.908]
        assert len(recipe.choose([column], ["fedsimsup-tcl"])) == 4
        assert recipe.choose() == [*recipe.cells, *recipe.runs]

    def test_an_unknown_column_or_method_suggests_the_nearest(self) -> None:
        recipe = find_recipe("superfed/table1")
        with raises(IsthmusError):
            recipe.choose(["MNIST,100"])
        with raises(IsthmusError):
            recipe.choose(methods=["superfed-nm"])

    def test_a_name_that_one_of_several_tables_has_is_enough(self) -> None:
        cells = choose_cells(find_recipes(["floco"]), methods=["superfed-mm", "Local"])
        chosen = {name: {cell.method for cell in each} for name, each in cells.items()}
        assert chosen["floco/tableE"] == {"superfed-mm", "local"}
        assert chosen["floco/table1"] == {"local"}
        assert chosen["floco/figure1"] == set()
        with raises(IsthmusError):
            choose_cells(find_recipes(["floco"]), methods=["superfed-nm"])
        with raises(IsthmusError):
            choose_cells(find_recipes(["floco"]), ["tau=50, rho=0.1"], ["ditto"])

    @pytest.mark.parametrize(
        "text",
        [
            'metrics = ["top1"]\ncolums = []',
            'columns = ["MNIST, 5"]',
            'runs = ["fedavgg"]',
            '[published.top1]\nfedavg = "1"',
            'columns = ["MNIST, 50"]\nmetrics = ["top1"]\n[published.top1]\nfedavg = "1 | 2"',
        ],
    )
    def test_a_recipe_that_names_what_is_not_there_is_refused(self, text: str) -> None:
        paper = read_recipe_file(
            '[methods]\nfedavg = { label = "FedAvg" }\n[[columns]]\nname = "MNIST, 50"', "paper"
        )
        with raises(IsthmusError):
            build_recipe("made-up", paper, read_recipe_file(text, "made-up"))

    def test_a_run_like_a_method_has_what_the_column_says_of_that_method(self) -> None:
        paper = read_recipe_file(
            """
            [methods.fedprox]
            label = "FedProx"
            [methods.fedprox-once]
            like = "fedprox"
            label = "FedProx, epochs=1"
            columns = ["MNIST, 50"]
            settings.epochs = 1
            [[columns]]
            name = "MNIST, 50"
            settings.epochs = 5
            methods.fedprox.settings.method.mu = 0.3
            """,
            "paper",
        )
        sheet = 'columns = ["MNIST, 50"]\nmetrics = ["top1"]\nseeds = [1]\nruns = ["fedprox-once"]'
        (run,) = build_recipe("made-up", paper, read_recipe_file(sheet, "made-up")).runs
        assert run.label == "FedProx, epochs=1"
        assert run.experiment(1).epochs == 1
        assert run.experiment(1).method["mu"] == 0.3

    def test_a_preset_that_is_not_there_is_refused(self) -> None:
        cell = find_recipe("fedsimsup/table2").cells[0]
        with raises(IsthmusError):
            cell.experiment(1, "release")


class TestPage:
    """docs/reproduction.md says what there is."""

    page = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text()

    def test_its_example_prints_what_it_says(self, capsys: pytest.CaptureFixture[str]) -> None:
        (block,) = re.findall(r"```python\n(.*?)```", self.page, re.DOTALL)
        exec(block, {})
        assert "99.38 0.93\n" in (printed := capsys.readouterr().out)
        assert printed.endswith("1024 500\n")

    def test_it_counts_the_numbers_and_the_runs(self) -> None:
        numbers = Counter(cell.paper for cell in list_cells())
        met = Counter(cell.paper for cell in list_cells() if cell.reason is None)
        for folder, paper in (
            ("superfed", "SuPerFed"),
            ("superfed-v1", "SuPerFed-v1"),
            ("floco", "FLOCO"),
            ("fedsimsup", "FedSimSup"),
        ):
            (row,) = [line for line in self.page.splitlines() if line.startswith(f"| `{folder}/`")]
            assert f"| {numbers[paper]} | {met[paper]} |" in row
        runs = plan(all_cells(), seeds=1)
        paper = {name for cell in all_cells() for name in list_experiments(cell, "paper")}
        different = sum(run.identity in paper for run in runs)
        assert f"Behind {len(all_cells()):,} cells and runs there are,\n" in self.page
        assert f"for one seed, {different} different ones" in self.page


TABLE1, FIRST = "superfed/table1", "CIFAR10, n=100, Dir(0.1)"


@pytest.mark.parametrize(
    ("table", "method", "plain", "column", "setting"),
    [
        (TABLE1, "fedavg-slow", "fedavg", "MNIST, 100", "lr_decay"),
        (TABLE1, "fedavg-strided", "fedavg", "MNIST, 100", "partition.assignment"),
        (TABLE1, "fedavg-slow-strided", "fedavg-slow", "MNIST, 100", "partition.assignment"),
        (TABLE1, "fedavg-slow-strided", "fedavg-strided", "MNIST, 100", "lr_decay"),
        (TABLE1, "fedprox-slow", "fedprox", "MNIST, 100", "lr_decay"),
        (TABLE1, "ditto-slow", "ditto", "MNIST, 100", "lr_decay"),
        (TABLE1, "ditto-norms", "ditto", "MNIST, 50", "method.proximity"),
        (TABLE1, "ditto-norms", "ditto", "MNIST, 100", "method.proximity"),
        (TABLE1, "superfed-mm-slow", "superfed-mm", "MNIST, 500", "lr_decay"),
        (TABLE1, "superfed-lm-slow", "superfed-lm", "MNIST, 500", "lr_decay"),
        ("fedsimsup/table2", "local-divided", "local-together", FIRST, "test_set"),
        ("fedsimsup/table2", "fedsimsup-divided", "fedsimsup-together", FIRST, "test_set"),
        ("floco/table3", "fedavg-once", "fedavg", "CIFAR10, SimpleCNN, 5-Fold", "epochs"),
        ("floco/table3", "fedprox-once", "fedprox", "CIFAR10, SimpleCNN, 5-Fold", "epochs"),
        ("floco/table3", "floco-once", "floco", "CIFAR10, SimpleCNN, 5-Fold", "epochs"),
    ],
)
def test_a_run_that_explains_a_difference_has_one_setting_changed(
    table: str, method: str, plain: str, column: str, setting: str
) -> None:
    (changed,) = find_recipe(table).choose([column], [method])
    (before,) = find_recipe(table).choose([column], [plain])
    differs = changed.experiment(1).flat().items() ^ before.experiment(1).flat().items()
    assert {name for name, _ in differs} == {setting}
    assert changed.number == before.number
