"""The summary against numbers worked by hand, and the promises its printed forms make."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from golden import check
from isthmus.metrics.metric import METRICS
from isthmus.report import show
from isthmus.report.figures import curves
from isthmus.report.groups import group_by_seed
from isthmus.report.tables import summary
from isthmus.report.tables.formats import format_percent
from isthmus.report.tables.summary import SummaryRow
from isthmus.run.record import RecordedRun, read

Write = Callable[..., Path]


def printed(rows: list[SummaryRow]) -> str:
    screen = StringIO()
    Console(width=80, file=screen).print(summary.terminal(rows))
    return screen.getvalue()


@pytest.fixture
def pair(tiny: Write) -> list[RecordedRun]:
    alone = tiny("local", [0.4, 0.6, 0.8, 1.0])
    together = tiny("superfed-mm", [0.5, 0.6, 0.7, 1.0], at="0.3")
    return [read(alone), read(together)]


def test_a_row_is_the_mean_over_clients_of_the_last_round(pair: list[RecordedRun]) -> None:
    """Of (0.5, 0.6, 0.7, 1.0): mean 2.8 / 4 = 0.7; squares 0.04 + 0.01 + 0 + 0.09 = 0.14, over 4,
    root 0.1870829; worst ceil(0.05 * 4) = 1 client: 0.5; loss 1 - top1, so 0.3; against local
    (0.4, 0.6, 0.8, 1.0) only the third is lower; 2 rounds of 1000 down, 500 up; 1.5 + 1.5 + 0.5 s.
    Pairs differ by 0.1 + 0.2 + 0.5 + 0.1 + 0.4 + 0.3 = 1.6, over 4 * 2.8: Gini 1 / 7.
    """
    row = summary.summarize(pair)[1]
    assert row.top1 == pytest.approx(0.7)
    assert row.deviation == pytest.approx(0.1870829, abs=1e-7)
    assert row.worst == 0.5
    assert row.gini == pytest.approx(1 / 7)
    assert row.means["brier"] is None
    assert row.means["loss"] == pytest.approx(0.3)
    assert row.means["ece"] == pytest.approx(0.1)
    assert row.means["mce"] == pytest.approx(0.2)
    assert row.shared == 0.5
    assert row.server == 0.55
    assert row.harmed == 1
    assert (row.down_bytes, row.up_bytes, row.seconds) == (2000, 1000, 3.5)
    assert row.round == 2


def test_what_a_method_lacks_is_missing_and_not_zero(pair: list[RecordedRun]) -> None:
    row = summary.summarize(pair)[0]
    assert (row.shared, row.server, row.harmed) == (None, None, None)
    line = next(line for line in summary.markdown([row]).splitlines() if line.startswith("| local"))
    assert line.count("–") == 4  # the older version that wrote it had no Brier score


def test_harm_is_not_counted_across_federations(tiny: Write) -> None:
    alone = read(tiny("local", [1.0] * 4))
    other = read(tiny("fedavg", [0.5] * 4, federation="cafe"))
    assert summary.summarize([alone, other])[1].harmed is None


def test_the_terminal_table_fits_into_eighty_columns(five: list[RecordedRun]) -> None:
    text = printed(summary.summarize(five))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for run in five:
        assert run.method in text


def test_percentages_have_two_decimals(pair: list[RecordedRun]) -> None:
    rows = summary.summarize(pair)
    assert "70.00 ± 18.71" in printed(rows)
    assert (
        "| 70.00 ± 18.71 | 50.00 | 0.143 | 0.300 | – | 10.00 | 20.00 | 50.00 | 55.00 | 1 / 4 |"
        in summary.markdown(rows)
    )
    assert "†" not in summary.markdown(rows)


def test_every_table_says_which_number_it_is(pair: list[RecordedRun]) -> None:
    rows = summary.summarize(pair)
    for text in (" ".join(printed(rows).split()), summary.markdown(rows)):
        check(text)


def test_runs_that_ended_at_different_rounds_say_so(five: list[RecordedRun], write: Write) -> None:
    short = read(write("fedavg", "short", evaluations=(10, 20)))
    check(summary.describe(summary.summarize([five[0], short])))


def test_an_unfinished_run_is_named(write: Write) -> None:
    directory = write("fedavg")
    (directory / "summary.json").unlink()
    check(summary.describe(summary.summarize([read(directory)])))


def test_a_run_that_is_not_federated_is_marked_and_never_the_best(tiny: Write) -> None:
    bound = tiny("pooled", [1.0] * 4)
    told = json.loads((bound / "summary.json").read_text())
    (bound / "summary.json").write_text(json.dumps(told | {"federated": False}))
    runs = [read(bound), read(tiny("fedavg", [0.5] * 4))]
    rows = summary.summarize(runs)
    assert [group.label for group in group_by_seed(runs)] == ["pooled (not federated)", "fedavg"]
    assert summary.find_best(rows) == 1
    check(summary.markdown(rows))
    assert "NOT federated" in show.describe(show.collect(bound))


@pytest.mark.parametrize("rule", ["oracle", "oracle-common"])
def test_numbers_chosen_on_test_data_carry_a_dagger(tiny: Write, rule: str) -> None:
    rows = summary.summarize([read(tiny("superfed-mm", [0.5] * 4, at="0.3", selection=rule))])
    for text in (printed(rows), summary.markdown(rows)):
        assert "50.00 ± 0.00†" in text
        check(" ".join(text.split()))


def test_calibration_per_batch_is_marked_wherever_it_appears(write: Write) -> None:
    directory = write("fedavg", calibration="per-batch")
    table = directory / "clients.csv"
    table.write_text(table.read_text().replace(",ece,mce", ",ece_per_batch,mce_per_batch"))
    runs = [read(directory), read(write("local"))]
    rows = summary.summarize(runs)
    ece, mce = (format_percent(value) for value in (rows[0].means[name] for name in ("ece", "mce")))
    assert f"| {ece}‡ | {mce}‡ |" in summary.markdown(rows)
    for text in (printed(rows), summary.markdown(rows)):
        assert f"{ece}‡" in text
        assert f"{format_percent(rows[1].means['ece'])}‡" not in text
        check(" ".join(text.split()))
    marks = curves.build(group_by_seed(runs)).marks
    names = {mark.name for mark in marks if mark.shown["view"] == "ece"}
    assert names == {"fedavg‡", "local"}
    assert "‡" not in summary.markdown(rows[1:])


def test_markup_in_a_name_is_inert(tiny: Write) -> None:
    rows = summary.summarize([read(tiny("[red]a|<b>", [0.5] * 4, name="odd"))])
    assert "[red]a|<b>" in printed(rows)
    assert "| [red]a\\|&lt;b> |" in summary.markdown(rows)


def test_every_metric_for_tables_is_in_the_table_and_in_what_show_says(
    five: list[RecordedRun],
) -> None:
    titles = [column.title for column in summary.COLUMNS]
    facts = show.collect(five[1].path)
    for metric in METRICS.values():
        assert any(title.startswith(f"personal {metric.label}") for title in titles) == (
            metric.in_tables
        )
        pooled = facts["last"]["personal_pooled_over_test_examples"]
        assert (metric.name in pooled) == metric.in_tables
        assert (f" {metric.label} " in show.describe(facts)) == metric.in_tables
