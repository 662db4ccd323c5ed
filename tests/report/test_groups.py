"""Runs that differ in nothing but their seed."""

from collections.abc import Callable
from pathlib import Path

from golden import raises
from isthmus.errors import IsthmusError
from isthmus.report.groups import group_by_seed
from isthmus.run.record import read

Write = Callable[..., Path]


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
