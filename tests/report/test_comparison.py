"""Methods over seeds and data sets: numbers worked by hand, and the promises of every form."""

import csv
import shutil
import subprocess
from collections.abc import Callable
from io import StringIO
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console

from golden import check, raises
from isthmus.errors import IsthmusError
from isthmus.report import page
from isthmus.report.contrasts import MethodRow, compare, have_several_seeds
from isthmus.report.statistics import WinTieLoss
from isthmus.report.tables import comparison
from isthmus.report.tables.comparison import describe, list_notes
from isthmus.run.record import RecordedRun, read

Write = Callable[..., Path]
Seeds = Callable[..., list[RecordedRun]]


@pytest.fixture
def over(tiny: Write) -> Seeds:
    """Reads a method's runs, one per seed, each on a split of its own."""

    numbers = count()

    def of_seed(seed: int) -> dict[str, object]:
        return {"seed": seed, "federation": f"f{seed}"}

    def over(method: str, *top1: list[float], **changes: object) -> list[RecordedRun]:
        return [
            read(tiny(method, values, f"run-{next(numbers)}", **of_seed(s) | changes))
            for s, values in enumerate(top1, start=1)
        ]

    return over


@pytest.fixture
def three(over: Seeds) -> list[RecordedRun]:
    return [
        *over("local", [0.6, 0.6, 0.6, 0.6], [0.6, 0.6, 0.6, 0.6]),
        *over("fedavg", [0.5, 0.5, 0.7, 0.7], [0.6, 0.6, 0.6, 0.6]),
        *over("ditto", [0.6, 0.5, 0.6, 0.9], [0.8, 0.7, 0.6, 0.6]),
    ]


def rows(runs: list[RecordedRun], reference: str | None = None) -> dict[str, MethodRow]:
    (block,) = compare(runs, reference).blocks
    return {row.label: row for row in block.rows}


def printed(runs: list[RecordedRun]) -> str:
    screen = StringIO()
    Console(width=80, file=screen).print(comparison.terminal(compare(runs)))
    return screen.getvalue()


def forms(runs: list[RecordedRun]) -> list[str]:
    found = compare(runs)
    return [
        " ".join(printed(runs).split()),
        comparison.markdown(found),
        comparison.latex(found).replace(r"$^{\dag}$", "†").replace(r"\%", "%"),
    ]


def test_a_row_is_a_method_over_its_seeds(three: list[RecordedRun]) -> None:
    """Ditto: means 0.65 and 0.675; worst of four is one client: 0.5 and 0.6. Harmed: one of the
    first seed's four is below 0.6, none of the second's. A run sends 2 * (1000 + 500) bytes."""
    ditto = rows(three)["ditto"]
    assert ditto.top1.mean == pytest.approx(0.6625)
    assert ditto.averages.worst == pytest.approx(0.55)
    assert ditto.harmed == (1, 8)
    assert ditto.best
    assert rows(three)["local"].harmed is None
    line = comparison.markdown(compare(three)).splitlines()[4]
    assert line.startswith("| ditto | **66.25 [")
    assert line.endswith("| 4/3/1 | 0.500 | 1/8 | 3 kB |")


def test_differences_are_taken_client_by_client(three: list[RecordedRun]) -> None:
    """Ditto minus FedAvg: (0.1, 0, -0.1, 0.2) and (0.2, 0.1, 0, 0): means 0.05 and 0.075. Of the
    five that are not zero, |0.1| three times has rank 2, |0.2| twice 4.5. The negative one's rank
    is 2; none negative, or one of three, are the 4 of 2^5 signs with at most that: p = 2 * 4 / 32.
    Local minus FedAvg: (0.1, 0.1, -0.1, -0.1) and zeros: p = 1. Holm: 2 * 0.25 and 1."""
    found = rows(three)
    ditto, local = found["ditto"].difference, found["local"].difference
    assert ditto is not None
    assert local is not None
    assert ditto.mean.mean == pytest.approx(0.0625)
    assert (ditto.tally, ditto.pairs, ditto.seeds) == (WinTieLoss(4, 3, 1), 8, (1, 2))
    assert (ditto.p, ditto.holm) == (pytest.approx(0.25), pytest.approx(0.5))
    assert (local.p, local.holm, local.tally) == (1.0, 1.0, WinTieLoss(2, 4, 2))
    assert found["fedavg"].difference is None


def test_clients_of_one_split_are_averaged_average(over: Seeds) -> None:
    """Differences (0.1, -0.1, 0.2, 0) and (0.1, 0.1, -0.2, 0), means (0.1, 0, 0, 0)."""
    runs = over("fedavg", [0.5] * 4, [0.5] * 4, federation="one")
    runs += over("ditto", [0.6, 0.4, 0.7, 0.5], [0.6, 0.6, 0.3, 0.5], federation="one")
    difference = rows(runs)["ditto"].difference
    assert difference is not None
    assert difference.crossed
    assert (difference.pairs, difference.tally) == (4, WinTieLoss(1, 3, 0))
    check(describe(compare(runs)))


def test_only_seeds_that_both_have_are_paired_and_the_others_named(over: Seeds) -> None:
    ditto = over("ditto", [0.6] * 4, [0.6] * 4, [0.6] * 4)
    fedavg = over("fedavg", [0.5] * 4, [0.5] * 4)
    elsewhere = over("apfl", [0.9] * 4, federation="cafe")
    runs = [*fedavg, *ditto, *elsewhere]
    found = rows(runs)
    assert found["ditto"].difference is not None
    assert found["ditto"].difference.seeds == (1, 2)
    assert found["apfl"].difference is None
    check(describe(compare(runs)))


def test_the_reference_is_fedavg_the_first_or_the_one_that_is_named(
    three: list[RecordedRun],
) -> None:
    assert compare(three).reference == "fedavg"
    assert compare(three[:2] + three[4:]).reference == "local"
    assert rows(three, "ditto")["ditto"].difference is None
    with raises(IsthmusError):
        compare(three, "apfl")
    with raises(IsthmusError):
        compare([])


def test_a_method_that_may_be_as_good_as_the_best_is_marked(over: Seeds) -> None:
    """Ditto's lead over APFL is one client's, over FedAvg every client's."""
    runs = over("ditto", [0.8, 0.8, 0.8, 0.9]) + over("apfl", [0.8, 0.8, 0.8, 0.8])
    runs += over("fedavg", [0.5, 0.6, 0.7, 0.5])
    found = rows(runs)
    assert [row.label for row in found.values() if row.best] == ["ditto"]
    assert [row.label for row in found.values() if row.tied] == ["apfl"]
    assert "80.00≈ [80.00, 80.00]" in comparison.markdown(compare(runs))
    assert r"80.00$^{\approx}$ {\scriptsize[80.00, 80.00]}" in comparison.latex(compare(runs))
    assert r"\textbf{82.50} {\scriptsize[" in comparison.latex(compare(runs))


def test_an_oracle_carries_daggers_and_is_never_the_best(
    over: Seeds, three: list[RecordedRun]
) -> None:
    oracle = over("superfed-mm", [0.9] * 4, [0.9] * 4, at="0.3", selection="oracle")
    runs = [*three, *oracle]
    assert rows(runs)["ditto"].best
    for text in forms(runs):
        assert "90.00†" in text
        assert "8/0/0†" in text
        assert "0/8†" in text
        check(text)
    assert not any("†" in text for text in list_notes(compare(three)))
    against = comparison.markdown(compare(runs, "superfed-mm"))
    assert "| 0/0/8† |" in against  # a difference to an oracle is one's too


def test_one_seed_says_that_only_clients_were_resampled(over: Seeds) -> None:
    runs = over("fedavg", [0.5, 0.6, 0.7, 0.5]) + over("ditto", [0.8] * 4)
    assert not have_several_seeds(runs)
    said = describe(compare(runs))
    check(said)
    assert "mean over seeds" not in said
    check(said)


def test_budgets_that_differ_are_told(over: Seeds) -> None:
    check(describe(compare(over("fedavg", [0.5] * 4) + over("ditto", [0.6] * 4, epochs=10))))
    assert "Budgets" not in describe(compare(over("apfl", [0.5] * 4)))


def test_settings_of_one_method_are_rows_and_the_first_is_the_reference(over: Seeds) -> None:
    runs = over("fedavg", [0.5] * 4, lr=0.1) + over("fedavg", [0.6] * 4, lr=0.2)
    found = compare(runs)
    assert found.blocks[0].reference == "fedavg · lr=0.1"
    check(describe(found))


def test_data_sets_are_blocks_and_methods_are_ranked_over_them(over: Seeds) -> None:
    """Ranks: ditto 1 and 1, APFL 2 and 3, FedAvg 3 and 2; Nemenyi's q for three is 2.343, so that
    the critical difference over two data sets is 2.343 * sqrt(3 * 4 / 12)."""
    runs: list[RecordedRun] = []
    for clients_test, apfl, fedavg in ((0.2, 0.7, 0.5), (0.5, 0.5, 0.7)):
        for method, value in (("ditto", 0.9), ("apfl", apfl), ("fedavg", fedavg)):
            runs += over(method, [value] * 4, test=clients_test)
    found = compare(runs)
    assert [block.name for block in found.blocks] == ["digits · test=0.2", "digits · test=0.5"]
    assert [row.label for row in found.blocks[1].rows] == ["ditto", "apfl", "fedavg"]
    assert found.ranks is not None
    assert found.ranks.average == (1.0, 2.5, 2.5)
    assert found.ranks.critical == pytest.approx(2.343, abs=1e-3)
    for text in forms(runs):
        check(text)
    assert "| ditto | 1.00 |" in comparison.markdown(found)
    text = page.render(runs)
    check(text)
    assert '"figure-ranks":' in text


def test_a_data_set_without_the_reference_has_no_differences(
    over: Seeds, three: list[RecordedRun]
) -> None:
    runs = [*three, *over("ditto", [0.5] * 4, test=0.5)]
    found = compare(runs)
    assert found.blocks[1].reference is None
    assert found.ranks is None  # one method is in both: nothing to rank
    check(describe(found))


def test_values_that_are_all_equal_are_ties(over: Seeds) -> None:
    runs = over("fedavg", [0.5] * 4, [0.5] * 4) + over("ditto", [0.5] * 4, [0.5] * 4)
    ditto = rows(runs)["ditto"]
    assert ditto.difference is not None
    assert ditto.difference.mean == (0.0, 0.0, 0.0)
    assert (ditto.difference.p, ditto.difference.tally) == (1.0, WinTieLoss(0, 8, 0))
    assert ditto.tied
    assert not rows(runs)["fedavg"].tied  # the first of the highest is the best


def test_a_client_without_a_test_part_is_left_out(over: Seeds, tiny: Write) -> None:
    runs = []
    for run in over("fedavg", [0.5] * 4) + over("ditto", [0.6, 0.7, 0.8, 0.0]):
        for name, before, after in (
            ("federation.csv", "3,8,2,10,", "3,10,2,0,"),
            ("clients.csv", "2,3,personal,,test,10,", "2,3,personal,,test,0,"),
        ):
            table = run.path / name
            table.write_text(table.read_text().replace(before, after))
        runs.append(read(run.path))
    ditto = rows(runs)["ditto"]
    assert ditto.top1.mean == pytest.approx(0.7)
    assert ditto.difference is not None
    assert ditto.difference.pairs == 3
    check(describe(compare(runs)))


def test_a_single_client_has_no_interval(write: Write) -> None:
    runs = [read(write(method, clients=1)) for method in ("local", "fedavg")]
    row = rows(runs)["fedavg"]
    assert f"| {100 * row.top1.mean:.2f}≈ |" in comparison.markdown(compare(runs))


def test_the_terminal_table_fits_into_eighty_columns(three: list[RecordedRun]) -> None:
    text = printed(three)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for cell in ("66.25", "+6.25", "4/3/1", "0.500", "1/8", "harmed"):
        assert cell in text


def test_the_directory_gets_three_files_and_no_drafts(
    three: list[RecordedRun], tmp_path: Path
) -> None:
    place = tmp_path / "deep" / "out"
    found = comparison.write(three, place, "local")
    assert found.reference == "local"
    assert sorted(file.name for file in place.iterdir()) == ["table.csv", "table.md", "table.tex"]
    before = (place / "table.csv").read_bytes()
    comparison.write(three, place, "local")
    assert (place / "table.csv").read_bytes() == before  # the draws are fixed


def test_the_table_for_programs_has_every_number_and_setting(three: list[RecordedRun]) -> None:
    found = compare(three)
    lines = list(csv.DictReader(StringIO(comparison.csv(found))))
    assert [line["method"] for line in lines] == ["local", "fedavg", "ditto"]
    ditto = lines[2]
    row = found.blocks[0].rows[2]
    assert row.difference is not None
    assert float(ditto["top1_low"]) == row.top1.low
    assert float(ditto["difference"]) == row.difference.mean.mean
    assert (ditto["p_wilcoxon"], ditto["p_holm"]) == ("0.25", "0.5")
    assert (ditto["seeds"], ditto["splits"], ditto["round"]) == ("1 2", "f1 f2", "2 2")
    assert (ditto["model"], ditto["split"], ditto["reference"]) == ("personal", "test", "fedavg")
    assert (ditto["settings.lr"], ditto["settings.method.name"]) == ("0.01", "ditto")
    assert "settings.seed" not in ditto


def test_latex_compiles_as_its_first_lines_say(
    over: Seeds, three: list[RecordedRun], tmp_path: Path
) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    oracle = over("superfed-mm", [0.9] * 4, [0.9] * 4, at="0.3", selection="oracle")
    hostile = over("ditto", [0.5] * 4, data_note="50%_of #1 & {x} ~ ^ $y \\z", test=0.5)
    elsewhere = over("fedavg", [0.6] * 4, test=0.5, lr=0.3) + over("fedavg", [0.6] * 4, test=0.5)
    runs = [*three, *oracle, *hostile, *elsewhere, *over("ditto", [0.4] * 4, test=0.5)]
    comparison.write(runs, tmp_path)
    text = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert r"50\%\_of \#1 \& \{x\} \textasciitilde{} \textasciicircum{} \$y" in text
    shown = [line[2:] for line in text.splitlines() if line.startswith("% \\")]
    (tmp_path / "article.tex").write_text("\n".join(shown))
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "article.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "article.pdf").is_file()


def test_the_page_shows_the_comparison_where_there_are_two_methods(
    three: list[RecordedRun],
) -> None:
    text = page.render(three, baseline="local")
    check(text)
    assert "Difference: to local" in text
    assert "Differences between methods" not in page.render(three[:2])


def test_one_experiment_given_twice_is_refused(three: list[RecordedRun]) -> None:
    assert not have_several_seeds([three[0], three[0]])
    with raises(IsthmusError):
        page.render([three[0], three[0]])
