"""Facts about settings stand on their fields."""

from collections.abc import Mapping
from typing import Any

import pytest

from isthmus import Experiment, IsthmusError
from isthmus.experiment import registry
from isthmus.experiment.settings import FACTS, list_filled, list_settings
from isthmus.methods import METHODS


def test_every_setting_has_its_facts() -> None:
    assert list(FACTS) == list(Experiment.model_fields)
    for name, option in [key.split(".") for key in list_filled() if "." in key]:
        assert any(option in known for known in registry.list_options(name).values())


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("method", "lr lr_decay momentum weight_decay head selection method"),
        ("data", "split_seed clients test validation test_set held_out data partition noise"),
        ("placement", "engine block step unroll"),
        ("seed", "seed"),
    ],
)
def test_settings_of_a_role_are_these(role: Any, names: str) -> None:
    """Comparisons, reports and names of records depend on them."""
    assert list_settings(role) == tuple(names.split())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "given", [{}, {"data": {"name": "table", "path": "x.csv", "schema": {"a": {"drop": True}}}}]
)
def test_a_recorded_experiment_is_parsed_as_it_was(method: str, given: Mapping[str, Any]) -> None:
    e = Experiment(method=method, split_seed=3, **given)
    assert Experiment.parse(e.toml()) == e
    assert Experiment.parse(e.toml()).toml() == e.toml()


def test_an_older_record_has_what_was_so_before_there_was_a_setting() -> None:
    text = Experiment(engine="loop", step="compiled").toml()
    for line in ('step = "compiled"\n', 'balance = "none"\n', "unroll = 0\n"):
        assert line in text
        text = text.replace(line, "")
    e = Experiment.parse(text)
    assert (e.step, e.balance, e.unroll) == ("eager", "none", 0)


def test_a_record_keeps_names_that_nobody_knows_any_more() -> None:
    """Of settings, of methods and of their options: they are read, shown and written back."""
    text = Experiment(method="fedprox").toml().replace("fedprox", "fednova").replace("mu =", "nu =")
    e = Experiment.parse(f"warmup = 3\n{text}")
    assert (e.flat()["warmup"], e.method["name"], e.method["nu"]) == (3, "fednova", 0.01)
    assert Experiment.parse(e.toml()) == e


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr = ", "old.toml is not valid TOML"),
        ("lr = 'abc'", "old.toml does not record a whole experiment"),
        ("lr = 1.0", "does not record a whole experiment .method: Field required"),
    ],
)
def test_a_record_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(IsthmusError, match=message) as error:
        Experiment.parse(text, "old.toml")
    assert "\n" not in str(error.value)
