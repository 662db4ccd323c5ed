"""Documents made from records: they are what the records give, and every number is in them."""

import json
import re
from pathlib import Path

import pytest

from commands import Isthmus
from documents import IMAGES, PAPERS, ROOT, list_documents, list_drawn
from golden import check
from isthmus import Experiment, federate
from isthmus.run import record as reader
from isthmus.run.record import RecordedRun
from isthmus_papers import record
from isthmus_papers.drawing import list_pictures, read_run
from isthmus_papers.page import render_page, write_story
from isthmus_papers.recipe import TableCell, find_recipe, find_recipes, list_cells
from isthmus_papers.record import RunRecord
from isthmus_papers.show import build_row, build_section
from isthmus_papers.verdict import Records, assess
from tiny import a_record

COLUMN = "MNIST, 100"


@pytest.fixture(scope="module")
def shipped() -> Records:
    return record.read_all([record.find_shipped()])


def record_of(method: str, value: float) -> RunRecord:
    (cell,) = find_recipe("superfed/table1").choose([COLUMN], [method])
    return a_record(cell, value)


def render_table1(suffix: str, **values: float) -> str:
    found = [record_of(method.replace("_", "-"), value) for method, value in values.items()]
    records = {known.identity: known for known in found}
    recipe = find_recipe("superfed/table1")
    return render_page([build_section(recipe, recipe.choose(), records)], records, suffix)


def test_the_documents_are_what_the_records_give(shipped: Records) -> None:
    """`make documents` writes them anew."""
    for path, text in list_documents(shipped):
        assert path.read_text() == text, f"{path} is old; make documents"


def test_records_bear_the_names_of_their_runs() -> None:
    """A setting that is new since then must not give a run another name: it would begin anew."""
    for path in sorted((ROOT / "src" / "isthmus_papers" / "results").glob("*.json")):
        assert path.stem == record.name_run(Experiment(**record.read(path).experiment))


def test_figures_are_those_of_the_records(shipped: Records) -> None:
    """A figure's name has a digest of what it draws; `make documents` draws the missing ones."""
    drawn = {each.name for found in list_drawn(shipped).values() for each in found}
    assert drawn == {place.stem for place in IMAGES.glob("*")}


def test_every_published_number_is_in_a_document(shipped: Records) -> None:
    pages = {paper: (ROOT / f"docs/results/{paper}.md").read_text() for paper in PAPERS}
    for paper in PAPERS:
        cells = [cell for each in find_recipes([paper]) for cell in each.cells]
        marked = re.findall(r"^\| [●▲▼·×] \||\d [·×] (?=\|)", pages[paper], re.MULTILINE)
        assert len(marked) == len(cells)
    assert len(list_cells()) == 1024


def test_a_document_says_which_number_each_is() -> None:
    text = render_table1("md", superfed_mm=0.99)
    check(text)
    assert "| ● | SuPerFed-MM | 99.38 ± 0.93 | 99.00 ± 2.00† | 99.00 | -0.38 |" in text


def test_a_column_that_was_run_has_a_table_and_a_ranking() -> None:
    text = render_table1("md", fedavg=0.97, apfl=0.99, local=0.98)
    assert f"**{COLUMN}: top1**" in text
    assert "| · | FedPer | 99.14 ± 0.93 | – | – | – |" in text
    check(text)
    assert "**MNIST, 50: top1**" not in text
    assert "| FedAvg | 95.69 ± 2.39 · | 96.04 ± 4.74 · |" in text


def test_what_holds_for_all_tables_of_a_paper_is_said_once() -> None:
    sections = [build_section(each, each.choose(), {}) for each in find_recipes(["superfed"])]
    for suffix in ("md", "html"):
        text = render_page(sections, {}, suffix)
        assert text.count("Its seed, the revision of the code and nu are not published.") == 1


def test_a_reason_that_several_methods_share_is_said_once() -> None:
    recipe = find_recipe("fedsimsup/table1")
    (reason,) = build_section(recipe, [*recipe.cells, *recipe.runs], {}).reasons
    assert reason.startswith("Local, FedAvg, FedProx, ")
    check(reason)


def test_a_page_colours_verdicts_and_marks_them() -> None:
    text = render_table1("html", superfed_mm=0.99, fedavg=0.99)
    assert '<tr class="reproduced"><td title="reproduced">●</td><td>SuPerFed-MM</td>' in text
    assert '<tr class="higher"><td title="higher">▲</td><td>FedAvg</td>' in text
    assert '<tr class="not-run">' in text


def test_seeds_that_are_missing_are_counted() -> None:
    recipe = find_recipe("fedsimsup/table2")
    cell: TableCell = recipe.choose([recipe.columns[0]], ["fedsimsup"])[0]
    known = a_record(cell, 0.8, seed=2)
    row = build_row(assess(cell, {known.identity: known}))
    assert (row.ours, row.seeds) == ("0.800", "1 of 3")


def test_ours_is_spread_over_what_the_published_number_is() -> None:
    """FLOCO's have no deviation: one over clients beside them would be of something else."""
    cells = find_recipe("floco/table1").choose(["CIFAR10, SimpleCNN, 5-Fold"], ["ditto"])
    cell = next(each for each in cells if each.metric == "local_top1")
    known = a_record(cell, 0.8)
    assert build_row(assess(cell, {known.identity: known})).ours == "80.00"


def test_the_page_of_a_method_has_its_numbers() -> None:
    known = record_of("fedprox", 0.9642)
    pages = {path.name: text for path, text in list_documents({known.identity: known})}
    line = "| ▲ | FedProx | [superfed/table1](../results/superfed.md), MNIST, 100 | top1 | 93.25"
    assert line in pages["fedprox.md"]
    assert not any("| FedProx |" in pages[name] for name in ("fedavg.md", "local.md"))
    assert "## Numbers" not in pages["fedavg.md"]


class TestStory:
    @pytest.mark.parametrize("paper", PAPERS)
    def test_it_has_no_number_of_its_own(self, paper: str) -> None:
        """Numbers with a point come out of recipes and records, so that none grows old."""
        story = find_recipes([paper])[0].paper.story
        assert story
        assert not re.search(r"\d\.\d", re.sub(r"{[{%].*?[%}]}", "", story, flags=re.DOTALL))

    @pytest.mark.parametrize("paper", PAPERS)
    def test_it_is_told_with_and_without_records(self, paper: str, shipped: Records) -> None:
        about = find_recipes([paper])[0].paper
        for records in ({}, shipped):
            told = write_story(about, paper, records, "paper")
            assert told
            assert not any("–" in part.text or "{" in part.text for part in told)
            assert all(part.title and part.text for part in told)

    def test_what_was_not_run_has_no_paragraph(self, shipped: Records) -> None:
        about = find_recipe("superfed/table1").paper
        empty, full = (
            [part.title for part in write_story(about, "superfed", records, "paper")]
            for records in ({}, shipped)
        )
        assert "Table 1, SuPerFed" not in empty
        assert "Table 1, SuPerFed" in full

    def test_a_page_of_one_table_tells_nothing_of_another(self, shipped: Records) -> None:
        tables = [find_recipe("superfed/table1"), find_recipe("superfed/table4")]
        one, other = (
            render_page([build_section(each, each.choose(), shipped)], shipped, "md")
            for each in tables
        )
        assert "**Table 1, Ditto.**" in one
        assert "**Table 4.**" not in one
        assert "**Table 4.**" in other
        assert "**Table 1, Ditto.**" not in other
        assert all("**What the paper says.**" in page for page in (one, other))

    def test_numbers_are_filled_in_where_there_are_some(self) -> None:
        known = record_of("fedavg", 0.9642)
        about = find_recipe("superfed/table1").paper
        told = write_story(about, "superfed", {known.identity: known}, "paper")
        text = " ".join(part.text for part in told)
        assert "89.78 ± 11.30" in text
        assert "96.42 ± 2.00" in text


EXPERIMENT = Experiment(
    method={"name": "superfed-mm", "start": 0.0},
    data={"name": "synthetic", "samples": 80},
    model={"name": "mlp", "hidden": 4},
    clients=4,
    clients_per_round=3,
    rounds=3,
    epochs=1,
    eval_every=1,
    selection="oracle",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    place = tmp_path_factory.mktemp("drawn") / "run"
    federate(EXPERIMENT, out=place)
    return reader.read(place)


class TestDrawing:
    """What is drawn of a record is what is drawn of its run."""

    def test_means_over_rounds_and_along_the_path_are_the_same(
        self, run: RecordedRun, tmp_path: Path
    ) -> None:
        kept = record.write(record.measure(run, EXPERIMENT), tmp_path)
        again = read_run(kept, "path", "top1")
        for model in ("personal", "shared"):
            ours, theirs = again.curve("top1", model), run.curve("top1", model)
            assert ours.round.tolist() == theirs.round.tolist() == [1, 2, 3]
            assert ours.mean == pytest.approx(theirs.mean, abs=1e-6)
        ours, theirs = again.along(), run.along()
        assert ours is not None
        assert theirs is not None
        assert ours.mean("top1") == pytest.approx(theirs.mean("top1"), abs=1e-6)
        assert sorted(ours.chosen) == pytest.approx(sorted(theirs.chosen))
        assert again.chosen_on_test
        assert run.chosen_on_test

    def test_a_record_is_drawn_where_a_run_is(
        self, isthmus: Isthmus, run: RecordedRun, tmp_path: Path
    ) -> None:
        kept = str(record.write(record.measure(run, EXPERIMENT), tmp_path))
        said = isthmus("figure", kept, "path", "--out", "path.svg")
        assert said.code == 0, said.err
        assert Path("path.svg").stat().st_size > 1000
        check(isthmus("figure", kept, "rounds", "--metric", "loss").mistake)
        check(isthmus("figure", kept, "gain").mistake)

    def test_a_record_from_before_has_no_curve_and_is_still_read(
        self, isthmus: Isthmus, tmp_path: Path
    ) -> None:
        old = record.write(record_of("fedavg", 0.9), tmp_path)
        table = json.loads(old.read_text())
        without = {key: table[key] for key in table if key not in ("curve", "path", "step")}
        old.write_text(json.dumps(without))
        assert record.read(old).curve == {}
        check(isthmus("figure", str(old), "rounds").mistake)

    def test_a_column_is_drawn_when_two_of_its_methods_have_curves(self) -> None:
        curve = {"clients": 2, "round": [10, 20], "personal": [0.5, 0.6]}
        found = [record_of(name, 0.9)._replace(curve=curve) for name in ("fedavg", "local")]
        recipe = find_recipe("superfed/table1")
        for count in (1, 2):
            records = {each.identity: each for each in found[:count]}
            drawn = list_pictures(recipe, recipe.choose(), records)
            assert [each.figure for each in drawn] == ["rounds"] * (count - 1)
        assert re.fullmatch(r"superfed-table1-mnist-100-rounds-[0-9a-f]{8}", drawn[0].name)
        assert set(drawn[0].labels.values()) == {"FedAvg", "Local"}

    def test_curves_are_called_what_the_rows_of_the_table_are(self, tmp_path: Path) -> None:
        """A row that is another but for one setting, and records older than a setting of today."""
        cells = find_recipe("superfed/table1").choose(["MNIST, 100"])
        curve = {"clients": 2, "round": [10, 20], "personal": [0.5, 0.6]}
        records = {}
        for cell in (each for each in cells if each.method in ("fedavg", "fedavg-slow")):
            experiment = dict(cell.experiment(1).table())
            del experiment["test_set"]
            known = record_of("fedavg", 0.9)._replace(experiment=experiment, curve=curve)
            records[known.identity] = known
        (picture,) = list_pictures(find_recipe("superfed/table1"), cells, records)
        picture.save(tmp_path / "drawn.svg")
        assert set(picture.labels.values()) == {"FedAvg", "FedAvg, lr_decay=0.999"}
        drawn = (tmp_path / "drawn.svg").read_text()
        assert all(f"<!-- {label} -->" in drawn for label in picture.labels.values())
        assert "test_set" not in drawn
