"""Cost to reach a baseline's end, from records written by hand."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from golden import check, raises
from isthmus.errors import IsthmusError
from isthmus.report import page, show
from isthmus.report.contrasts import choose_reference
from isthmus.report.tables import reach
from isthmus.run.record import RecordedRun, read

Write = Callable[..., Path]


@pytest.fixture
def three(tiny: Write) -> list[RecordedRun]:
    """FedAvg ends with a mean of 0.6, which ditto has after round 1 and local never."""
    return [
        read(tiny("local", [0.5] * 4, earlier=[0.4] * 4)),
        read(tiny("fedavg", [0.5, 0.5, 0.7, 0.7], earlier=[0.5] * 4)),
        read(tiny("ditto", [0.9] * 4, earlier=[0.6, 0.6, 0.5, 0.7])),
    ]


def test_the_target_is_where_the_baseline_ended(three: list[RecordedRun]) -> None:
    """A round takes 1.5 seconds of training and 1000 + 500 bytes; evaluation is not counted."""
    local, fedavg, ditto = reach.compute(three, "fedavg", "personal")
    assert [row.target for row in (local, fedavg, ditto)] == pytest.approx([0.6] * 3)
    assert (local.spent, local.improvement) == (None, None)
    assert fedavg.spent == (2, 3.0, 3000)
    assert ditto.spent == (1, 1.5, 1500)
    assert (fedavg.improvement, ditto.improvement) == (1.0, 2.0)
    assert local.cells() == ["local", "60.00", "–", "–", "–", "–"]
    assert ditto.cells() == ["ditto", "60.00", "1", "2.00", "1.5", "1.5 kB"]


def test_the_shared_model_has_a_target_of_its_own(three: list[RecordedRun]) -> None:
    """All shared models have 0.5, after round 2; local has none."""
    found = reach.compute(three, "fedavg", "shared")
    assert [row.label for row in found] == ["fedavg", "ditto"]
    assert [(row.target, row.spent.rounds) for row in found] == [(0.5, 2)] * 2


def test_the_baseline_is_fedavg_or_the_one_that_is_named(three: list[RecordedRun]) -> None:
    assert choose_reference(three, None) == "fedavg"
    assert choose_reference(three, "ditto") == "ditto"
    assert choose_reference([three[0], three[2]], None) is None
    with raises(IsthmusError):
        choose_reference(three, "apfl")
    local, fedavg, _ = reach.compute(three, "ditto", "personal")
    assert (local.target, fedavg.spent) == (pytest.approx(0.9), None)


def test_runs_on_other_clients_have_no_target(three: list[RecordedRun], tiny: Write) -> None:
    other = read(tiny("apfl", [0.9] * 4, federation="cafe"))
    assert "apfl" not in [row.label for row in reach.compute([*three, other], "fedavg", "personal")]


def test_seeds_go_to_targets_of_their_own(three: list[RecordedRun], tiny: Write) -> None:
    """With seed 2 FedAvg ends at 0.8, which ditto never reaches: its one arrival is that of seed 0,
    the targets' mean is (0.6 + 0.8) / 2, and FedAvg's two arrivals are both after round 2."""
    more = [
        read(tiny("fedavg", [0.8] * 4, "fedavg-2", seed=2, federation="2222")),
        read(tiny("ditto", [0.7] * 4, "ditto-2", seed=2, federation="2222")),
    ]
    _, fedavg, ditto = reach.compute([*three, *more], "fedavg", "personal")
    assert (fedavg.target, fedavg.spent.rounds, fedavg.reached) == (pytest.approx(0.7), 2, 2)
    assert ditto.cells() == ["ditto", "70.00", "1 (1 of 2 seeds)", "2.00", "1.5", "1.5 kB"]


def test_the_page_and_the_terminal_say_which_target(three: list[RecordedRun]) -> None:
    screen = StringIO()
    Console(width=80, file=screen).print(reach.terminal(three, "fedavg"))
    text = page.render(three)
    for models in ("personal", "shared"):
        assert f"Cost to reach where fedavg ended, {models} models" in text
    for said in (" ".join(screen.getvalue().split()), text):
        check(said)
        assert "–: never reached" in said
    assert "Cost to reach" not in page.render(three[1:2])
    assert "where ditto ended" in page.render(three, baseline="ditto")


def test_a_point_chosen_on_test_data_is_marked_on_its_way_too(
    three: list[RecordedRun], tiny: Write
) -> None:
    oracle = read(tiny("superfed-mm", [0.9] * 4, at="0.3", selection="oracle"))
    row = reach.compute([*three, oracle], "fedavg", "personal")[-1]
    assert row.cells()[2:4] == ["2†", "1.00†"]


def test_show_says_what_a_target_cost(three: list[RecordedRun]) -> None:
    fedavg = three[1].path
    check(show.describe(show.collect(fedavg, 0.6)))
    assert show.collect(fedavg, 0.6)["to_target"] == {
        "personal_top1_test": 0.6,
        "reached": True,
        "rounds": 2,
        "seconds": 3.0,
        "nbytes": 3000,
    }
    check(show.describe(show.collect(fedavg, 0.61)))
    assert "to_target" not in show.collect(fedavg)
    for target in (0.0, 90.0):
        with raises(IsthmusError):
            show.collect(fedavg, target)
