"""Experiments: the paper's defaults, nothing unknown or out of range, nothing lost in TOML."""

import math
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from golden import check, raises
from isthmus import Experiment, IsthmusError
from isthmus.experiment import registry
from isthmus.experiment.registry import Option, merge
from isthmus.experiment.settings import read_assignment, read_assignments
from isthmus.methods import METHODS


def refused(**given: Any) -> str:
    with pytest.raises(IsthmusError) as error:
        Experiment(**given)
    message = str(error.value)
    assert "\n" not in message
    return message


def loaded(tmp_path: Path, text: str, changes: dict[str, Any] | None = None) -> Experiment:
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return Experiment.load(path, changes)


def test_the_defaults_are_the_papers() -> None:
    """KDD 2022: 500 rounds, 5 clients in each, 10 epochs, batches of 10, SGD with momentum 0.9 and
    weight decay 1e-4, 1 % less learning rate per round, a fifth for testing; mixing from 0.4 R on,
    mu 0.01, nu 1 for MM and 2 for LM."""
    e = Experiment(data="mnist")
    assert (e.rounds, e.clients, e.clients_per_round, e.epochs, e.batch_size) == (
        500,
        100,
        5,
        10,
        10,
    )
    assert (e.lr_decay, e.momentum, e.weight_decay, e.test) == (0.99, 0.9, 1e-4, 0.2)
    assert dict(e.partition) == {"name": "pathological", "shards": 2, "assignment": "random"}
    assert e.method["name"] == "superfed-mm"
    assert (e.method["start"], e.method["mu"], e.method["nu"]) == (0.4, 0.01, 1.0)
    assert Experiment(method="superfed-lm").method["nu"] == 2.0
    assert e.selection == "validation"


@pytest.mark.parametrize(
    ("data", "clients", "model"),
    [("digits", 20, "mlp"), ("synthetic", 20, "mlp"), ("mnist", 100, "twonn")],
)
def test_a_data_set_brings_clients_and_a_model(data: str, clients: int, model: str) -> None:
    e = Experiment(data=data)
    assert (e.clients, e.model["name"]) == (clients, model)
    e = Experiment(data=data, clients=7, model="twocnn")
    assert (e.clients, e.model["name"]) == (7, "twocnn")


def test_a_data_set_may_bring_a_partition_with_options() -> None:
    """EMNIST is divided as in the first version of the SuPerFed paper, unless somebody says how."""
    e = Experiment(data="emnist")
    assert (e.partition["name"], e.partition["kind"]) == ("semantic", "emnist")
    assert dict(Experiment(data="emnist", partition="iid").partition) == {"name": "iid"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", ["clean", "paper", "release"])
def test_toml_reads_back_as_the_same_experiment(tmp_path: Path, method: str, preset: str) -> None:
    e = Experiment(method=method, preset=preset, lr=1e-05, seed=2**40, weight_decay=1 / 3)
    again = loaded(tmp_path, e.toml())
    assert again == e
    assert again.toml() == e.toml()


def test_toml_is_complete() -> None:
    """What the file says does not depend on defaults that may change; what is None is not said."""
    e = Experiment(method="superfed-lm")
    settings = tomllib.loads(e.toml())
    unsaid = ("split_seed", "eval_sample")
    assert list(settings) == [name for name in Experiment.model_fields if name not in unsaid]
    assert settings["method"] == dict(e.method)
    assert set(settings["method"]) == {"name", *registry.list_options("method")["superfed-lm"]}


def test_a_split_seed_is_written_only_where_there_is_one(tmp_path: Path) -> None:
    """Experiments of older versions read, and write, as they did."""
    assert "split_seed" not in Experiment(seed=4).toml()
    e = Experiment(seed=4, split_seed=7)
    assert loaded(tmp_path, e.toml()) == e
    assert (e.dividing_seed, Experiment(seed=4).dividing_seed) == (7, 4)
    check(refused(split_seed=-1))
    check(refused(split_seed=-1))


def test_own_parts_keep_what_describes_them(tmp_path: Path) -> None:
    own = {"name": "own", "class": 'a "quoted" \\ name \x01\x7f\r\n\t'}
    e = Experiment(data={"name": "own", "digest": "f00d"}, model=own, clients=9)
    again = loaded(tmp_path, e.toml())
    assert again == e
    assert dict(again.model) == own
    assert again.partition["name"] == "own"


@pytest.mark.parametrize(
    "given",
    [
        {"lerning_rate": 1},
        {"round": 1},
        {"method": "supefed-mm"},
        {"method": "zzz"},
        {"data": "digit"},
        {"partition": "idd"},
        {"model": "twonn_superfd"},
        {"method": {"name": "superfed-mm", "strat": 0.4}},
        {"data": {"name": "digits", "size": 3}},
        {"method": "own"},
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_unknown_name_is_answered_with_the_nearest(given: dict[str, Any]) -> None:
    check(refused(**given))


@pytest.mark.parametrize("part", registry.COMPONENTS)
@pytest.mark.parametrize("wrong", [None, 3, ["fedavg"], {}, {"name": ["x"]}, {"name": {"a": 1}}])
def test_a_part_that_is_no_name_is_refused(part: str, wrong: object) -> None:
    if wrong == {}:
        assert Experiment(**{part: wrong}) == Experiment()
    else:
        check(refused(**{part: wrong}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("lr", ["abc", math.nan, math.inf, 0, -0.1, None, [0.1]]),
        ("lr_decay", [0, 1.01, math.nan]),
        ("momentum", [-0.1, 1, math.nan]),
        ("weight_decay", [-1e-9, math.inf, math.nan]),
        ("rounds", [0, -1, 2.5, "many", math.inf]),
        ("clients", [-1, "all"]),
        ("clients_per_round", [0]),
        ("epochs", [0]),
        ("batch_size", [0]),
        ("seed", [-1, 0.5]),
        ("test", [0, 1, math.nan]),
        ("validation", [-0.1, 1, math.nan]),
        ("eval_every", [-1]),
        ("block", [-1, 1.5]),
        ("unroll", [-1, 1.5, 65]),
        ("preset", ["relase"]),
        ("selection", ["best"]),
        ("engine", ["fast"]),
        ("head", ["first"]),
    ],
)
def test_a_value_out_of_range_is_refused_with_an_example(name: str, values: list[Any]) -> None:
    default = Experiment.model_fields[name].default
    for value in values:
        check(refused(**{name: value}))
    assert getattr(Experiment(**{name: default}), name) == default


@pytest.mark.parametrize(
    ("part", "name", "option", "value"),
    [
        ("method", "superfed-mm", "start", 1.1),
        ("method", "superfed-mm", "start", math.nan),
        ("method", "superfed-mm", "mu", -1),
        ("method", "superfed-mm", "nu", math.inf),
        ("method", "superfed-mm", "mix", "layers"),
        ("method", "fedavg", "tune", -1),
        ("method", "local", "patience", 0),
        ("data", "synthetic", "samples", 0),
        ("data", "synthetic", "spread", 0),
        ("partition", "pathological", "shards", 0),
        ("partition", "pathological", "assignment", "striped"),
        ("model", "mlp", "hidden", 0),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_part(
    part: str, name: str, option: str, value: object
) -> None:
    check(refused(**{part: {"name": name, option: value}}))


def test_an_experiment_is_frozen() -> None:
    e = Experiment()
    with pytest.raises(ValidationError, match="frozen"):
        e.lr = 1.0
    for part in registry.COMPONENTS:
        with pytest.raises(TypeError):
            getattr(e, part)["name"] = "fedavg"
    given = {"name": "superfed-mm", "mu": 0.5}
    e = Experiment(method=given)
    given["mu"] = 9
    assert e.method["mu"] == 0.5


def test_a_round_cannot_ask_more_clients_than_there_are() -> None:
    assert Experiment(clients=5, clients_per_round=5).clients_per_round == 5
    check(refused(clients=4, clients_per_round=5))


def test_changes_win_over_the_file(tmp_path: Path) -> None:
    text = Experiment(method="fedprox", lr=0.5, rounds=3).toml()
    e = loaded(tmp_path, text, {"lr": 0.25, "method": {"mu": 0.75}})
    assert (e.lr, e.rounds, e.method["name"], e.method["mu"]) == (0.25, 3, "fedprox", 0.75)


@pytest.mark.parametrize(
    "content",
    [
        b"rounds = 3\nlr = \n",
        b"lr = 1\nlr = 2",
        b"\xff\xfe\x00",
        b"lr = 'abc'",
        b"[method]\nmu = 1\nnome = 'x'",
        b"method = ['fedavg']",
        b"rounds = 1979-05-27",
    ],
)
def test_a_file_that_is_no_experiment_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "experiment.toml"
    path.write_bytes(content)
    with raises(IsthmusError):
        Experiment.load(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with raises(IsthmusError):
            Experiment.load(path)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"lr": 1, "rounds": 2}, {"lr": 3}, {"lr": 3, "rounds": 2}),
        ({"method": "fedprox"}, {"method": {"mu": 1}}, {"method": {"name": "fedprox", "mu": 1}}),
        (
            {"method": {"name": "fedprox", "mu": 1}},
            {"method": "fedprox"},
            {"method": {"name": "fedprox", "mu": 1}},
        ),
        (
            {"method": {"name": "fedprox", "mu": 1}},
            {"method": {"name": "superfed-mm", "nu": 2}},
            {"method": {"name": "superfed-mm", "nu": 2}},
        ),
        ({"method": {"mu": 1}}, {"method": "fedprox"}, {"method": {"name": "fedprox", "mu": 1}}),
        ({}, {"partition": "iid"}, {"partition": {"name": "iid"}}),
    ],
)
def test_joining_tables(
    first: dict[str, Any], second: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The second wins; a part that changes its name loses the options of the old one."""
    assert merge(first, second) == expected


def test_joining_leaves_its_arguments_alone() -> None:
    first, second = {"method": {"name": "fedprox"}}, {"method": {"mu": 1}}
    merge(first, second)["method"]["mu"] = 2
    assert (first, second) == ({"method": {"name": "fedprox"}}, {"method": {"mu": 1}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr=0.1", {"lr": 0.1}),
        (" lr = 1e-3 ", {"lr": 1e-3}),
        ("rounds=7", {"rounds": 7}),
        ("engine=stacked", {"engine": "stacked"}),
        ('engine="stacked"', {"engine": "stacked"}),
        ("lr=abc", {"lr": "abc"}),
        ('client=""', {"data": {"client": ""}}),
        ("lr=0.1\nmu=1", {"lr": "0.1\nmu=1"}),
        ("lr=0.1 # not 0.2", {"lr": "0.1 # not 0.2"}),
        ("mu=0.5", {"method": {"mu": 0.5}}),
        ("method.mu=0.5", {"method": {"mu": 0.5}}),
        ("method=fedavg", {"method": "fedavg"}),
        ("method.name=fedavg", {"method": {"name": "fedavg"}}),
        ("assignment=strided", {"partition": {"assignment": "strided"}}),
        ("samples=10", {"data": {"samples": 10}}),
        ("hidden=8", {"model": {"hidden": 8}}),
        ("mix=a=b", {"method": {"mix": "a=b"}}),
    ],
)
def test_a_setting_is_read_with_and_without_its_part(text: str, expected: dict[str, Any]) -> None:
    assert read_assignment(text) == expected


@pytest.mark.parametrize("text", ["lr", "", "=3", " = ", "lr=", "lr= "])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with raises(IsthmusError):
        read_assignment(text)


@pytest.mark.parametrize(
    "text",
    ["lrr=1", "hiden=1", "a.b=1"],
)
def test_a_setting_that_nobody_has_is_refused(text: str) -> None:
    with raises(IsthmusError):
        read_assignment(text)


def test_a_setting_that_two_parts_have_needs_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"x": {"depth": Option(int, 1)}}
    known = {"data": both, "model": both}
    monkeypatch.setattr(registry, "list_options", lambda part: known.get(part, {}))
    with raises(IsthmusError):
        read_assignment("depth=3")
    assert read_assignment("model.depth=3") == {"model": {"depth": 3}}


def test_a_setting_that_two_parts_have_is_that_of_the_one_that_is_chosen() -> None:
    """`alpha` is an option of dirichlet-hsu and of apfl; in any order."""
    dirichlet, mixture = "partition=dirichlet-hsu", "method=apfl"
    assert read_assignments(["alpha=0.5", dirichlet], {})["partition"]["alpha"] == 0.5
    assert read_assignments(["alpha=0.5"], {"method": "apfl"}) == {"method": {"alpha": 0.5}}
    with raises(IsthmusError):
        read_assignments(["alpha=0.5", dirichlet, mixture], {})


def test_every_part_is_listed_with_its_options() -> None:
    listed = {entry["name"]: entry for entry in registry.describe_choices("method")}
    assert list(listed) == list(METHODS)
    assert listed["fedavg-lu"]["options"]["tune"] == 1
    for part in registry.COMPONENTS:
        assert all(entry["summary"] for entry in registry.describe_choices(part))


@pytest.mark.parametrize(
    ("texts", "mu"),
    [
        (["mu=0.1", "method.mu=0.5"], 0.5),
        (["method.mu=0.5", "mu=0.1"], 0.1),
        (["mu=0.1", "method={name = 'fedprox', mu = 0.5}"], 0.5),
        (["mu=0.1", "method=fedprox"], 0.1),
        (["method=fedavg", "mu=0.1", "method=fedprox"], 0.1),
        (["mu=wrong", "mu=0.1"], 0.1),
    ],
)
def test_the_last_of_two_assignments_counts(texts: list[str], mu: float) -> None:
    changes = read_assignments(texts, {"method": "fedprox"})
    assert Experiment(**merge({"method": "fedprox"}, changes)).method["mu"] == mu


@pytest.mark.parametrize("given", [{"lr": True}, {"rounds": True}, {"seed": False}])
def test_a_truth_value_is_no_number(given: dict[str, Any]) -> None:
    check(refused(**given))


def test_a_truth_value_is_no_number_of_a_part() -> None:
    check(refused(method={"name": "fedprox", "mu": True}))


def test_a_setting_may_be_called_as_python_calls_things() -> None:
    check(refused(self=1))


@pytest.mark.parametrize(
    "value", ["[" * 2000 + "]" * 2000, "{a=" * 900 + "1" + "}" * 900, "9" * 5000, "0x" + "f" * 5000]
)
def test_values_too_long_or_deep_are_refused_in_a_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(IsthmusError) as of_setting:
        Experiment(**read_assignments([f"lr={value}"], {}))
    with pytest.raises(IsthmusError) as of_file:
        loaded(tmp_path, f"lr = {value}")
    assert max(len(str(error.value)) for error in (of_setting, of_file)) < 400


@pytest.mark.parametrize("text", ["\x01", "\x7f", "a\nb\r", '"""', "'''", "\\u0001", "\u2028", "é"])
def test_every_text_comes_back_from_toml(tmp_path: Path, text: str) -> None:
    e = Experiment(data={"name": "table", "path": text, "label": text})
    assert loaded(tmp_path, e.toml()).data["path"] == text


def test_what_would_not_come_back_from_toml_is_refused() -> None:
    e = Experiment(data={"name": "table", "path": "\udcff"})
    with raises(IsthmusError):
        e.toml()
    check(refused(seed=10**5000))


@pytest.mark.parametrize("given", [["model=nan"], ["model=twonn", "model=-nan"]])
def test_a_part_called_nan_is_refused_though_nan_is_not_nan(given: list[str]) -> None:
    with raises(IsthmusError):
        Experiment(**read_assignments(given, {}))


def test_a_pipe_is_read_where_a_shell_made_it_and_not_waited_for_elsewhere(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"seed = 7")
    os.close(writing)
    assert Experiment.load(f"/dev/fd/{reading}").seed == 7
    os.close(reading)
    os.mkfifo(tmp_path / "experiment.toml")
    with raises(IsthmusError):
        Experiment.load(tmp_path / "experiment.toml")


def test_a_file_of_any_size_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "experiment.toml").open("wb") as file:
        file.truncate(1 << 30)
    with raises(IsthmusError):
        Experiment.load(tmp_path / "experiment.toml")
