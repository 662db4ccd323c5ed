"""What the seeds of a group say together, by hand; and the page of a large comparison."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runs as fixture
from golden import check, raises
from isthmus.errors import IsthmusError
from isthmus.report import page
from isthmus.report.contents import SECTIONS
from isthmus.report.figures import curves, reliability
from isthmus.report.figures.figure import Figure, Lines, encode
from isthmus.report.figures.theme import Style
from isthmus.report.groups import Group, group_by_seed
from isthmus.report.section import SectionContent, collect
from isthmus.run.record import RecordedRun, read

Write = Callable[..., Path]


@pytest.fixture
def seeded(tiny: Write) -> list[RecordedRun]:
    """Two seeds of each method, every seed with a division of its own."""
    made = []
    for seed, digest in ((1, "1111"), (2, "2222")):
        about: dict[str, Any] = {"seed": seed, "federation": digest}
        high = 0.1 * seed
        made += [
            read(tiny("local", [0.6] * 4, f"local-{seed}", earlier=[0.5] * 4, **about)),
            read(tiny("ditto", [0.6 + high] * 4, f"d-{seed}", earlier=[0.5 + high] * 4, **about)),
        ]
    return made


def show(name: str, runs: list[RecordedRun]) -> tuple[str, SectionContent]:
    section = next(each for each in SECTIONS if each.name == name)
    report = collect(runs)
    shown = section.show(report)
    assert shown is not None
    return page.render_section(section, shown, report), shown


def name_views(runs: list[RecordedRun]) -> list[str]:
    return [view.name for view in curves.build(group_by_seed(runs)).switches["views"]]


def of(groups: list[Group], label: str) -> Group:
    return next(group for group in groups if group.label == label)


def test_a_band_goes_from_the_lowest_to_the_highest_seed(seeded: list[RecordedRun]) -> None:
    """Ditto has 0.6 and 0.7 after round 1, 0.7 and 0.8 after round 2; a round takes 1.5 seconds
    and 1500 bytes."""
    found = curves.collect_series(of(group_by_seed(seeded), "ditto"), "top1")
    assert found is not None
    assert found.round.tolist() == [1, 2]
    assert found.seconds.tolist() == [1.5, 3.0]
    assert found.nbytes.tolist() == [1500, 3000]
    (line,) = curves.draw_lines([found], curves.ROUNDS)
    assert line is not None
    for given, expected in ((line.mean, [0.65, 0.75]), (line.low, [0.6, 0.7])):
        assert given.tolist() == pytest.approx(expected)
    assert line.high.tolist() == pytest.approx([0.7, 0.8])


def test_only_rounds_that_all_seeds_evaluated_are_told(tiny: Write) -> None:
    runs = [
        read(tiny("ditto", [0.6] * 4, "a", seed=1, earlier=[0.5] * 4)),
        read(tiny("ditto", [0.8] * 4, "b", seed=2)),
    ]
    found = curves.collect_series(group_by_seed(runs)[0], "top1")
    assert found is not None
    assert found.round.tolist() == [2]
    assert found.seconds.tolist() == [3.0]


def test_who_sends_nothing_is_a_level(five: list[RecordedRun]) -> None:
    """The fixture's FedAvg sends 2 * 3.18 MB in each of 50 rounds, local none."""
    found = [curves.collect_series(group, "top1") for group in group_by_seed(five[:2])]
    traffic = curves.choose_axes(found)[2]
    assert (traffic.unit, traffic.size) == ("MB", 1e6)
    alone, fedavg = curves.draw_lines(found, traffic)
    assert alone is not None
    assert fedavg is not None
    assert fedavg.x.tolist() == pytest.approx([63.6, 127.2, 190.8, 254.4, 318.0])
    assert alone.level
    assert alone.x.tolist() == pytest.approx([0, 318.0])
    assert alone.mean.tolist() == [five[0].curve("top1").mean[-1]] * 2
    assert [axis.name for axis in curves.choose_axes(found[:1])] == ["rounds", "seconds"]


def test_the_variance_of_last_layers_is_a_curve_of_all_rounds(five: list[RecordedRun]) -> None:
    """The fixture records 1 / t, and none for local."""
    alone, fedavg = (
        curves.collect_series(group, curves.VARIANCE.metric) for group in group_by_seed(five[:2])
    )
    assert alone is None
    assert fedavg is not None
    assert fedavg.values[0].tolist() == pytest.approx([1 / t for t in range(1, 51)])
    assert name_views(five[:2])[-1] == curves.VARIANCE.metric
    assert name_views(five[:1])[-1] == "ece"


def test_a_long_curve_is_thinned_and_keeps_its_ends(write: Write) -> None:
    run = read(write("fedavg", evaluations=(1000,)))
    found = curves.collect_series(group_by_seed([run])[0], curves.VARIANCE.metric)
    assert found is not None
    assert len(found.round) == curves.POINTS_AT_MOST
    assert (found.round[0], found.round[-1]) == (1, 1000)


def test_a_row_of_a_group_is_the_mean_of_its_rows(seeded: list[RecordedRun]) -> None:
    """Ditto ends with 0.7 and 0.8; a run takes 1.5 + 1.5 seconds and 0.5 to evaluate."""
    alone, ditto = collect(seeded).averages
    assert (alone.label, ditto.label) == ("local", "ditto")
    assert ditto.top1 == pytest.approx(0.75)
    assert (ditto.seconds, ditto.harmed, alone.harmed) == (3.5, 0, None)
    text = page.render(seeded)
    assert "ditto<small>2 seeds</small>" in text
    assert "<small>70.00 to 80.00</small>" in text
    check(text)


def test_bins_of_seeds_are_counted_together(five: list[RecordedRun]) -> None:
    """Two runs with the same bins: twice the examples, the same shares."""
    twin = five[1]._replace(settings=five[1].settings | {"seed": 2}, path=five[0].path)
    (group,) = group_by_seed([five[1], twin])
    one, both = five[1].bins(), reliability.pool_bins(group)
    assert one is not None
    assert both is not None
    known = one[0] > 0
    assert both[0].tolist() == (2 * one[0]).tolist()
    assert both[1][known].tolist() == pytest.approx(one[1][known].tolist())
    assert group.pool("ece") == pytest.approx(five[1].pool("ece"))


def test_gains_are_shown_seed_by_seed(seeded: list[RecordedRun]) -> None:
    """Every client gains 10 points with seed 1, 20 with seed 2."""
    text, shown = show("gain", seeded)
    (figure,) = shown.figures.values()
    assert [bars.shown["seed"] for bars in figure.marks] == ["1", "2"]
    assert [set(bars.y) for bars in figure.marks] == [{10.0}, {20.0}]
    parts = re.findall(r"<p data-seed.*?</p>", text, re.DOTALL)
    said = [re.sub(r"<.*?>", "", part).strip() for part in parts]
    assert [words.split("median ")[1] for words in said] == ["+10.00 points", "+20.00 points"]
    assert text.count("<option") == 2


def test_the_worst_clients_are_those_of_a_seed(seeded: list[RecordedRun]) -> None:
    text, _ = show("worst", seeded)
    first, second = text.split('<div data-seed="2" hidden>')
    assert "<strong>ditto</strong>, seed 1" in first
    assert "<strong>ditto</strong>, seed 2" in second
    assert "<td>70.00</td>" in first
    assert "<td>80.00</td>" in second


def test_five_methods_on_a_hundred_clients_over_500_rounds_make_a_small_page(
    tmp_path: Path,
) -> None:
    """Under 8 MB."""
    runs = [
        read(
            fixture.write(
                tmp_path / method,
                method,
                clients=100,
                rounds=500,
                evaluations=tuple(range(20, 501, 20)),
            )
        )
        for method in fixture.METHODS
    ]
    place = page.write(runs, tmp_path)
    assert place.stat().st_size < 8_000_000


def test_drawn_numbers_are_rounded_to_what_can_be_seen() -> None:
    mark = Lines(x=np.arange(3), y=np.array([1 / 3, 12345.678, np.nan]), style=Style("red"))
    (encoded,) = encode(Figure([mark]))["marks"]
    assert encoded["y"] == [0.33333, 12346.0, None]


def test_seeds_come_together_in_order(write: Write) -> None:
    paths = [write("fedavg", f"fedavg-{seed}", seed=seed) for seed in (3, 1, 2)]
    groups = group_by_seed([read(path) for path in [paths[0], write("local"), *paths[1:]]])
    assert [group.label for group in groups] == ["fedavg", "local"]
    assert groups[0].seeds == (1, 2, 3)
    assert groups[0].method == "fedavg"


def test_settings_that_differ_tell_groups_apart(write: Write) -> None:
    runs = [read(write("fedavg", f"lr-{lr}", lr=lr)) for lr in (0.1, 0.01)]
    assert [group.label for group in group_by_seed(runs)] == ["fedavg · lr=0.1", "fedavg · lr=0.01"]


def test_the_same_run_twice_is_refused(write: Write) -> None:
    run = read(write("fedavg"))
    with raises(IsthmusError):
        group_by_seed([run, run])
