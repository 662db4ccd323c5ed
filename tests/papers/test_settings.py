"""Recipes have the settings that papers and codes state: some cells of each table, in full."""

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from isthmus.experiment.registry import merge
from isthmus.experiment.settings import flatten
from isthmus_papers.recipe import find_recipe, read_recipes

EXPECTED: dict[str, Any] = tomllib.loads(Path(__file__).with_name("expected.toml").read_text())
WHICH = ("of", "common")


def names(row: dict[str, Any]) -> str:
    return ", ".join(row["of"])


@pytest.mark.parametrize("row", EXPECTED["cells"], ids=names)
def test_a_cell_has_the_settings_that_are_stated_for_it(row: dict[str, Any]) -> None:
    recipe, column, label, preset = row["of"]
    stated: dict[str, Any] = {}
    for name in row["common"]:
        stated = merge(stated, EXPECTED["common"][name])
    stated = flatten(merge(stated, {key: row[key] for key in row if key not in WHICH}))
    cell = find_recipe(recipe).choose([column], [label])[0]
    settings = cell.experiment(1, preset).flat()
    found = {name: settings.get(name) for name in stated}
    found = {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}
    assert found == stated


@pytest.mark.parametrize("row", EXPECTED["numbers"], ids=names)
def test_a_cell_is_the_number_that_is_stated_for_it(row: dict[str, Any]) -> None:
    recipe, column, label, metric = row["of"]
    (cell,) = [
        cell for cell in find_recipe(recipe).choose([column], [label]) if cell.metric == metric
    ]
    stated = {key: row[key] for key in row if key not in WHICH}
    assert stated.items() <= asdict(cell.number).items()


def test_every_table_has_a_cell_whose_settings_are_stated() -> None:
    tables = {name for name, recipe in read_recipes().items() if recipe.cells}
    assert tables <= {row["of"][0] for row in EXPECTED["cells"]}


def test_what_only_released_code_explains_is_marked() -> None:
    """Test labels are noisy; five shards, not two classes; FedAvg has two numbers for a setting."""
    explained = {
        (name, cell.column)
        for name, recipe in read_recipes().items()
        for cell in recipe.cells
        if cell.explained_by == "release"
    }
    noisy = {("superfed/table4", column) for column in find_recipe("superfed/table4").columns}
    bench = ("floco/tableF", "CIFAR10, SimpleCNN, Dir(0.5), FL-bench")
    assert explained == {*noisy, bench, ("superfed-v1/table1", "CIFAR100")}
