"""Presets: what each family sets, and who wins."""

import pytest

from isthmus import Experiment
from isthmus.data import SOURCES
from isthmus.experiment import registry
from isthmus.experiment.settings import read_presets
from isthmus.methods import METHODS

PRESETS = ["clean", "paper", "release"]


def test_clean_is_the_default_and_sets_nothing() -> None:
    assert Experiment() == Experiment(preset="clean")
    assert read_presets()["clean"] == {"all": {}}
    for name, field in Experiment.model_fields.items():
        if name not in registry.COMPONENTS and name != "clients":
            assert getattr(Experiment(), name) == field.default


def test_paper_is_as_printed() -> None:
    """1 % per round; "best averaged": one lambda for all, chosen by test accuracy."""
    e = Experiment(preset="paper")
    assert (e.lr_decay, e.selection) == (0.99, "oracle-common")
    assert (e.method["start"], e.method["mu"]) == (0.4, 0.01)
    assert (e.method["proximity"], e.partition["assignment"]) == ("squared", "random")


@pytest.mark.parametrize(
    ("method", "start", "nu"), [("superfed-mm", 0.4, 1.0), ("superfed-lm", 0.6, 2.0)]
)
def test_release_is_as_the_final_code_runs(method: str, start: float, nu: float) -> None:
    """For 100 clients: L/R 0.4 and nu 1 for MM, 0.6 and 2 for LM; norms not squared; 1e-6 in every
    product; strided shards; decay 0.999; lambda per client by test data; three linear layers as
    head; calibration per mini-batch."""
    e = Experiment(preset="release", method=method)
    assert (e.method["start"], e.method["nu"], e.method["mu"]) == (start, nu, 0.01)
    assert (e.method["proximity"], e.method["dot_offset"]) == ("sum_of_norms", 1e-6)
    assert (e.lr_decay, e.selection, e.head) == (0.999, "oracle", "classifier")
    assert (e.partition["assignment"], e.calibration) == ("strided", "per-batch")


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_release_resizes_cifar_and_does_not_normalise_it(data: str) -> None:
    clean, paper, release = (Experiment(preset=preset, data=data).data for preset in PRESETS)
    assert (release["size"], release["normalise"]) == (28, False)
    assert (clean["size"], clean["normalise"]) == (paper["size"], paper["normalise"]) == (32, True)
    told = Experiment(preset="release", data={"name": data, "size": 32}).data
    assert (told["size"], told["normalise"]) == (32, False)


def test_a_data_set_s_preset_is_no_other_one_s() -> None:
    """The release normalises TinyImageNet, and isthmus resizes ImageNet to 64."""
    assert Experiment(preset="release", data="tinyimagenet").data["normalise"] is True
    assert Experiment(preset="release", data="imagenet").data["size"] == 64


@pytest.mark.parametrize(
    ("method", "lr", "momentum"), [("fedsimsup", 0.02, 0.9), ("fedsimsup-tcl", 0.01, 0.0)]
)
@pytest.mark.parametrize("preset", ["paper", "release"])
def test_fedsimsups_training_settings_are_ours(
    preset: str, method: str, lr: float, momentum: float
) -> None:
    """The paper's are lost and no code is known: ten of 100 clients, five passes after one, B = 50,
    SGD as it was chosen on validation data; a supervisor is heard from the start, as printed."""
    e = Experiment(preset=preset, method=method, data="synthetic", clients=100)
    assert (e.rounds, e.clients_per_round, e.epochs, e.batch_size) == (1000, 10, 5, 50)
    assert (e.lr, e.lr_decay, e.momentum, e.weight_decay) == (lr, 1.0, momentum, 0.0)
    assert (e.method["tau_s"], e.method["untrained"], e.head) == (1, "heard", "last")


def test_what_is_said_wins_over_the_preset() -> None:
    e = Experiment(
        preset="release",
        lr_decay=0.5,
        method={"name": "superfed-lm", "start": 0.1},
        partition={"name": "pathological", "assignment": "random"},
    )
    assert (e.lr_decay, e.method["start"], e.partition["assignment"]) == (0.5, 0.1, "random")
    assert e.method["proximity"] == "sum_of_norms", "the rest of the preset still holds"


def test_an_option_without_a_name_wins_over_the_preset_too() -> None:
    e = Experiment(preset="release", method={"start": 0.9})
    assert (e.method["name"], e.method["start"], e.method["dot_offset"]) == (
        "superfed-mm",
        0.9,
        1e-6,
    )


def test_the_preset_wins_over_defaults() -> None:
    plain, preset = (
        Experiment(method="superfed-lm"),
        Experiment(method="superfed-lm", preset="release"),
    )
    assert (plain.method["start"], preset.method["start"]) == (0.4, 0.6)
    assert (plain.head, preset.head) == ("last", "classifier")


def test_options_that_the_chosen_part_lacks_are_left_out() -> None:
    """iid knows no assignment, FedAvg no start."""
    e = Experiment(preset="release", method="fedavg", partition="iid")
    assert dict(e.partition) == {"name": "iid"}
    assert set(e.method) == {"name", "tune", "tune_lr"}
    assert e.lr_decay == 0.999


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_fits_every_method(preset: str, method: str) -> None:
    assert Experiment(preset=preset, method=method).method["name"] == method


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_names_only_what_exists(preset: str) -> None:
    """A misspelt option would be left out in silence as one that the part lacks."""
    for method, table in read_presets()[preset].items():
        assert (
            method == "all" or method in METHODS or (method in SOURCES and list(table) == ["data"])
        )
        for key, value in table.items():
            assert key in Experiment.model_fields
            for option in value if key in registry.COMPONENTS else ():
                known = registry.list_options(key)
                owners = known.values() if method == "all" or key != "method" else [known[method]]
                assert any(option in options for options in owners)


def test_switching_the_method_drops_its_options() -> None:
    """The start of superfed-lm's release is not superfed-mm's."""
    first = Experiment(preset="release", method={"name": "superfed-lm", "start": 0.77})
    settings = {"preset": "release", "method": dict(first.method)}
    second = Experiment(**registry.merge(settings, {"method": "superfed-mm"}))
    assert second.method["start"] == 0.4
    third = Experiment(**registry.merge(settings, {"method": "fedavg"}))
    assert dict(third.method) == {"name": "fedavg", "tune": 0, "tune_lr": 0.01}
