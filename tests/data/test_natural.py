"""The natural partition: every owner is a client with a name."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Isthmus
from golden import check, raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.data.partitions.division import Division
from isthmus.data.partitions.natural import Natural
from isthmus.run.build import read_federation
from isthmus.streams import stream

SIZES = {"ann": 40, "bob": 4, "cleo": 25, "dan": 31, "eve": 30}
FEW = ["--method", "fedavg", "--rounds", "2", "--set", "epochs=1"]


def cut(owner: Any, clients: int, seed: int = 1, **options: Any) -> Division:
    return Natural(**options).cut(np.asarray(owner), clients, stream(seed, "partition"))


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A file of five owners in mixed order; bob's four examples make no three parts."""
    rng = stream(0, "owned")
    client = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    x = rng.standard_normal((len(client), 3)).astype(np.float32)
    np.savez(tmp_path / "owned.npz", x=x, y=(x[:, 0] > 0).astype(int), client=client)
    return tmp_path / "owned.npz"


def experiment(path: Path, **changes: Any) -> Experiment:
    given: dict[str, Any] = {"method": "fedavg", "rounds": 2, "epochs": 1, "seed": 3}
    return Experiment(data={"name": "files", "path": str(path)}, **(given | changes))


def test_every_owner_is_a_client_in_the_order_of_the_owners() -> None:
    owner = [2, 0, 2, 1, 0, 2]
    shares, notes = cut(owner, clients=0)
    assert [share.tolist() for share in shares] == [[1, 4], [3], [0, 2, 5]]
    assert notes == ()


def test_owners_that_are_nobody_are_left_out_and_numbers_may_be_missing() -> None:
    """Owner 1 does not occur, and -1 is nobody: 2 of 6 examples are left."""
    shares, notes = cut([2, 0, 2, -1, 0, -1], clients=0)
    assert [share.tolist() for share in shares] == [[1, 4], [0, 2]]
    check(*notes)


def test_fewer_clients_are_drawn_by_the_seed_and_are_disjoint() -> None:
    """Of 100 owners 20: two seeds draw the same ones with a chance of 1 in 5e20."""
    owner = stream(0, "owners").integers(100, size=5000)
    shares, notes = cut(owner, 20)
    again, other = cut(owner, 20).shares, cut(owner, 20, seed=2).shares
    used = np.concatenate(shares)
    assert len(shares) == 20
    assert len(np.unique(used)) == len(used)
    assert all(set(owner[share]) == {owner[share[0]]} for share in shares)
    assert [len(share) for share in shares] == [(owner == owner[s[0]]).sum() for s in shares]
    assert all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))
    assert {owner[s[0]] for s in shares} != {owner[s[0]] for s in other}
    check(*notes)


def test_owners_with_too_few_examples_are_left_out() -> None:
    shares, notes = cut(np.repeat([0, 1, 2], [9, 10, 11]), clients=5, least=10)
    assert [len(share) for share in shares] == [10, 11]
    check(notes[0])
    check(notes[1])
    with raises(IsthmusError):
        cut(np.repeat([0, 1, 2], [9, 10, 11]), clients=5, least=12)


def test_clients_have_their_owners_names_and_examples(owned: Path) -> None:
    federation = read_federation(experiment(owned), Path())
    assert federation.names == ("ann", "cleo", "dan", "eve")
    assert [sum(federation.sizes(i)) for i in range(4)] == [40, 25, 31, 30]
    check(federation.notes[0])
    check(federation.notes[-1])
    whose = np.array(federation.arrays.names)[federation.arrays.owner]
    for i, parts in enumerate(federation.splits):
        assert set(whose[np.concatenate(parts)]) == {federation.name(i)}


def test_names_go_with_their_clients(owned: Path) -> None:
    federation = read_federation(experiment(owned), Path())
    train, later = federation.split_off_newcomers(0.5, seed=3)
    assert sorted([*train.names, *later.names]) == ["ann", "cleo", "dan", "eve"]
    sizes = dict(zip(federation.names, map(federation.sizes, range(4)), strict=True))
    for part in (train, later):
        assert [part.sizes(i) for i in range(2)] == [sizes[name] for name in part.names]
    assert federation.limit_training(5, seed=1).names == federation.names
    x, y = np.zeros((20, 2)), np.arange(20) % 2
    assert Federation.of(x, y, np.repeat(["b", "a"], 10)).names == ("a", "b")


def test_all_owners_are_asked_for_and_the_record_says_how_many(owned: Path) -> None:
    """0 clients become 4, and 5 in a round become 4; the record runs again to the same digest."""
    asked = experiment(owned)
    assert (asked.clients, asked.clients_per_round, asked.partition["name"]) == (0, 5, "natural")
    run = federate(asked)
    assert (run.experiment.clients, run.experiment.clients_per_round) == (4, 4)
    assert federate(run.experiment).digest == run.digest
    two = federate(experiment(owned, clients=2, clients_per_round=2))
    assert len(two.setting.federation.names) == 2
    assert federate(two.experiment).digest == two.digest
    with raises(IsthmusError):
        federate(experiment(owned, clients=9))


def test_another_partition_makes_as_many_clients_as_there_are_owners(owned: Path) -> None:
    run = federate(experiment(owned, partition="iid"))
    assert (run.experiment.clients, len(run.setting.federation)) == (5, 5)
    assert run.setting.federation.names == ()
    drop = {"name": "dirichlet-classwise", "short": "drop", "least": 30}
    run = federate(experiment(owned, partition=drop, clients_per_round=1))
    assert run.experiment.partition["drawn"] == 5
    assert federate(run.experiment).digest == run.digest


def test_data_without_owners_are_refused_in_one_line(isthmus: Isthmus) -> None:
    check(isthmus("run", "--data", "digits", "--set", "partition=natural").mistake)
    check(isthmus("run", "--data", "digits", "--set", "clients=0").mistake)


def test_owners_that_are_all_too_small_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "small.npz", x=np.zeros((8, 2)), y=np.arange(8) % 2, client=np.arange(8))
    with raises(IsthmusError):
        read_federation(experiment(tmp_path / "small.npz"), Path())


def test_names_are_shown_recorded_and_exported(isthmus: Isthmus, owned: Path) -> None:
    shown = isthmus("data", "show", "--data", owned)
    for words in ("0 ann        40", "1 cleo        25", "clients         4"):
        assert words in shown.out
    assert json.loads(isthmus("data", "show", "--data", owned, "--json").out)["names"][3] == "eve"
    assert isthmus("run", "--data", owned, *FEW, "--out", "run").code == 0
    rows = [line for line in Path("run/federation.csv").read_text().splitlines() if line[0] != "#"]
    assert rows[0] == "client,train,validation,test,labels,name"
    assert [row.split(",")[-1] for row in rows[1:]] == ["ann", "cleo", "dan", "eve"]
    assert isthmus("export", "run", "--client", 2, "--out", "models").code == 0
    assert json.loads(Path("models/client-2.json").read_text())["name"] == "dan"
    assert isthmus("report", "run").code == 0
    recorded = tomllib.loads(Path("run/experiment.toml").read_text())
    assert (recorded["clients"], recorded["clients_per_round"]) == (4, 4)


def test_odd_names_do_no_harm(isthmus: Isthmus, tmp_path: Path) -> None:
    """A line break or an escape in a name would break a table or a terminal."""
    names = ["a,b", 'quote"', "line\nbreak", "\x1b[31mred", "# no comment"]
    x = np.zeros((100, 2), np.float32)
    np.savez(tmp_path / "odd.npz", x=x, y=np.arange(100) // 5 % 2, client=np.repeat(names, 20))
    assert isthmus("run", "--data", "odd.npz", *FEW, "--out", "run").code == 0
    text = Path("run/federation.csv").read_text()
    assert "\x1b" not in text
    assert len([line for line in text.splitlines() if line[:1].isdigit()]) == 5
    assert isthmus("report", "run").code == 0
    assert "\x1b" not in isthmus("data", "show", "--data", "odd.npz").out
