"""Reading what a run wrote, also when it was killed while writing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from golden import raises
from isthmus.errors import IsthmusError
from isthmus.run import record as reader
from isthmus.run.record import RecordedRun

Write = Callable[..., Path]


def test_columns_come_back_as_they_were_written(five: list[RecordedRun]) -> None:
    run = five[0]
    assert run.method == "local"
    assert run.settings["partition.alpha"] == 0.3
    assert run.summary.finished
    assert run.split_digest == "a1b2c3d4"
    assert run.federation.labels.shape == (20, 10)
    assert run.rounds.round.tolist() == list(range(1, 51))
    assert run.evaluated.tolist() == [10, 20, 30, 40, 50]


def test_the_columns_cannot_be_written_to(five: list[RecordedRun]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        five[0].clients.top1[0] = 1.0


def test_the_server_is_no_client(tiny: Write) -> None:
    """The four clients have 0.5 each; the server's 0.55 is not among them."""
    run = reader.read(tiny("fedavg", [0.5, 0.5, 0.5, 0.5]))
    assert run.over_clients("top1", "shared").tolist() == [0.5, 0.5, 0.5, 0.5]
    assert run.on_server("top1") == 0.55


def test_older_tables_lack_what_came_later(tiny: Write) -> None:
    """Without brier, head_variance and reliability.csv all else is read; top-1 can be pooled."""
    run = reader.read(tiny("fedavg", [0.2, 0.4, 0.6, 1.0]))
    assert np.isnan(run.clients.brier).all()
    assert np.isnan(run.rounds.head_variance).all()
    assert run.bins() is None
    assert (run.pool("brier"), run.pool("ece"), run.pool("mce")) == (None, None, None)
    assert run.pool("top1") == pytest.approx(0.55)


def test_pooled_counts_every_example_once(tiny: Write) -> None:
    """Clients of 10, 10, 10 and 70 examples with 0.5, 0.5, 0.5 and 1: 85 of 100 are right, where
    the mean over clients is 0.625. In their bins: 40 of confidence 0.5, 25 right, and 60 of
    confidence 0.9, all right: ECE 0.4 * |0.625 - 0.5| + 0.6 * |1 - 0.9| = 0.11, MCE 0.125."""
    directory = tiny("fedavg", [0.5, 0.5, 0.5, 1.0])
    _replace(directory / "clients.csv", "2,3,personal,,test,10,", "2,3,personal,,test,70,")
    held = {8: "40,0.625,0.5", 14: "60,1,0.9"}
    rows = [f"2,personal,test,{b},0,0,{held.get(b, '0,,')}" for b in range(1, 16)]
    header = "round,model,split,bin,lower,upper,n,top1,confidence"
    table = directory / "reliability.csv"
    table.write_text("\n".join(["# seed = 1", header, *rows]) + "\n")
    run = reader.read(directory)
    assert run.pool("top1") == pytest.approx(0.85)
    assert run.over_clients("top1").mean() == pytest.approx(0.625)
    assert run.pool("ece") == pytest.approx(0.11)
    assert run.pool("mce") == pytest.approx(0.125)
    assert run.pool("ece", "shared") is None
    table.write_text(table.read_text()[:-3])  # killed while writing
    assert reader.read(directory).pool("ece") is None


def test_a_curve_is_the_mean_over_clients(tiny: Write) -> None:
    """(0.2 + 0.4 + 0.6 + 1.0) / 4 = 0.55."""
    curve = reader.read(tiny("local", [0.2, 0.4, 0.6, 1.0])).curve("top1")
    assert curve.round.tolist() == [2]
    assert curve.mean.tolist() == pytest.approx([0.55])


def test_a_path_is_drawn_over_the_clients_with_an_own_end(five: list[RecordedRun]) -> None:
    along = five[3].along()
    assert along is not None
    assert along.client.tolist() == list(range(2, 20))
    assert along.lam.tolist() == pytest.approx(np.linspace(0, 1, 11).tolist())
    assert along.values["top1"].shape == (18, 11)
    assert not np.isnan(along.values["top1"]).any()


def test_a_method_without_a_path_has_none_and_no_rule_of_choice(five: list[RecordedRun]) -> None:
    assert five[1].along() is None
    assert five[1].selection is None
    assert five[3].selection == "validation"


def test_several_numbers_for_a_place_are_no_lambda(tiny: Write) -> None:
    run = reader.read(tiny("floco", [0.5, 0.5, 0.5, 0.5], at="0.2 0.3 0.5"))
    assert np.isnan(run.clients.lam).all()
    assert run.along() is None


def test_a_rule_that_looked_at_test_data_is_known(tiny: Write) -> None:
    with_path = tiny("superfed-mm", [0.5] * 4, at="0.3", selection="oracle")
    without = tiny("fedavg", [0.5] * 4, selection="oracle")
    assert reader.read(with_path).chosen_on_test
    assert not reader.read(without).chosen_on_test


@pytest.mark.parametrize("text", ["", '{"a": ' * 100_000])
def test_a_damaged_summary_means_unfinished(write: Write, text: str) -> None:
    directory = write("fedavg")
    (directory / "summary.json").write_text(text)
    run = reader.read(directory)
    assert run.status == "unfinished"
    assert run.split_digest is None


def test_half_a_last_line_is_left_out(write: Write) -> None:
    directory = write("fedavg")
    file = directory / "rounds.csv"
    file.write_text(file.read_text()[:-7])
    assert reader.read(directory).rounds.round[-1] == 49


def test_an_evaluation_cut_short_is_not_the_last_round(write: Write) -> None:
    directory = write("fedavg")
    file = directory / "clients.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-30]) + lines[-30][:9])
    run = reader.read(directory)
    assert run.last == 40
    assert run.curve("top1").round.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda d: (d / "clients.csv").unlink(),
        lambda d: (d / "experiment.toml").unlink(),
        lambda d: (d / "experiment.toml").write_text("rounds ="),
        lambda d: (d / "experiment.toml").write_text("rounds = 1"),
        lambda d: _replace(d / "rounds.csv", "down_bytes", "down"),
        lambda d: _replace(d / "rounds.csv", "\n2,", "\n2,3,"),
        lambda d: _replace(d / "rounds.csv", "\n2,", "\ntwo,"),
        lambda d: _replace(d / "federation.csv", "\n0,", "\n77,"),
        lambda d: _keep_head(d / "clients.csv"),
        lambda d: (d / "experiment.toml").write_bytes(b"\xff\x00"),
        lambda d: (d / "experiment.toml").write_text("a = " + "[" * 5000),
        lambda d: (d / "experiment.toml").write_text("a = " + "9" * 5000),
        lambda d: _replace(d / "experiment.toml", "seed = 1", 'seed = "abc"'),
        lambda d: _replace(d / "rounds.csv", "\n2,", f"\n{'9' * 400},"),
        lambda d: _replace(d / "rounds.csv", "\n2,", f"\n{'9' * 5000},"),
        lambda d: _replace(d / "clients.csv", "\n10,0,", '\n10,"0,'),
        lambda d: (d / "clients.csv").write_bytes(b"\xff\xfe"),
        shutil.rmtree,
    ],
)
def test_a_broken_directory_is_one_clear_line(
    write: Write, break_it: Callable[[Path], object]
) -> None:
    directory = write("fedavg")
    break_it(directory)
    with raises(IsthmusError) as raised:
        reader.read(directory)
    assert str(directory) in str(raised.value)


def test_runs_of_one_method_are_told_apart(write: Write) -> None:
    runs = [
        reader.read(write("fedavg", "a", seed=1)),
        reader.read(write("fedavg", "b", seed=2)),
        reader.read(write("fedavg", "c", seed=2)),
        reader.read(write("local")),
    ]
    assert reader.labels(runs) == [
        "fedavg · seed 1",
        "fedavg · seed 2 · b",
        "fedavg · seed 2 · c",
        "local",
    ]


def test_training_alone_counts_only_on_the_same_federation(tiny: Write) -> None:
    local = reader.read(tiny("local", [0.5] * 4))
    same = reader.read(tiny("fedavg", [0.5] * 4))
    other = reader.read(tiny("fedavg", [0.5] * 4, name="other", federation="cafe"))
    assert reader.find_counterpart(same, [local, same, other], "local") is local
    assert reader.find_counterpart(other, [local, same, other], "local") is None


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new, 1))


def _keep_head(file: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    head = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    file.write_text("".join(lines[: head + 1]))


@pytest.mark.parametrize(
    ("table", "before", "after"),
    [
        ("clients.csv", ",test,10,0.5,", ",test,10,1.5,"),
        ("clients.csv", ",test,10,0.5,", ",test,10,inf,"),
        ("clients.csv", ",test,10,0.5,", ",test,-1,0.5,"),
        ("clients.csv", ",personal,", ",personell,"),
        ("rounds.csv", "\n2,", f"\n{2**60},"),
        ("rounds.csv", "\n2,0.1,", "\n2,1e300,"),
    ],
)
def test_a_value_that_no_run_writes_is_one_clear_line(
    tiny: Write, table: str, before: str, after: str
) -> None:
    directory = tiny("fedavg", [0.5, 0.5, 0.5, 0.5])
    _replace(directory / table, before, after)
    with raises(IsthmusError):
        reader.read(directory)
