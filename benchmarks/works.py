"""The works that are timed: experiments, and the data that they train on.

W1 is MNIST with McMahan's 2NN, W2 is CIFAR-10 with his CNN: FedAvg, two classes per client, five of
100 clients a round, ten epochs of batches of ten. W1s and W2s are the same in SuPerFed-MM while it
mixes. W3 is FLOCO and W4 is FedSimSup on CIFAR-10, as in docs/results. There is no validation part,
so that 80 % of a client's examples train: 480 of 600, 400 of 500. W5 is FedAvg on Shakespeare: five
of 660 roles a round, as unequal as they are, one epoch of batches of 50; of the overlapping windows
every fifth, so that a round takes seconds.

Real data are used where their files are, and noise of the same shape elsewhere.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from isthmus import Experiment, Federation, streams
from isthmus.data.arrays import Arrays
from isthmus.data.federation import divide
from isthmus.experiment import registry
from isthmus.run.build import read_federation

SHAPES = {
    "mnist": (60_000, 1, 28, 28),
    "cifar10": (50_000, 3, 32, 32),
    "shakespeare": (800_000, 80),
}
ROLES, SYMBOLS = 660, 81
FILES = {
    "mnist": ("mnist/train-images-idx3-ubyte*", "train-images-idx3-ubyte*"),
    "cifar10": ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    "shakespeare": ("shakespeare/roles.json*", "shakespeare/data"),
}
EVERYWHERE = {
    "clients": 100,
    "test": 0.2,
    "validation": 0.0,
    "lr_decay": 1.0,  # the frameworks have a constant one
    "partition": "pathological",
}
MIXING = {"name": "superfed-mm", "start": 0.0}


class Work(NamedTuple):
    """An experiment, and who runs it besides us."""

    title: str
    settings: Mapping[str, Any]
    network: str = ""  # in benchmarks.networks: what the plain loop builds; "": there is none
    peers: bool = False

    @property
    def is_fedavg(self) -> bool:
        """Return whether the method is FedAvg itself."""
        return bool(self.settings["method"] == "fedavg")

    def experiment(self, **changes: Any) -> Experiment:
        """Return the experiment, with some settings changed."""
        return Experiment(**{**EVERYWHERE, **self.settings, **changes})


def _floco() -> dict[str, Any]:
    sgd = {"epochs": 5, "batch_size": 50, "lr": 0.02, "momentum": 0.5, "weight_decay": 1e-5}
    place = {"data": "cifar10", "partition": "five-fold", "model": "simplecnn"}
    return {"method": "floco", "clients_per_round": 30, **place, **sgd}


def _fedsimsup() -> dict[str, Any]:
    sgd = {"epochs": 5, "batch_size": 50, "lr": 0.01, "momentum": 0.0, "weight_decay": 0.0}
    division = {"name": "dirichlet-classwise", "alpha": 0.1}
    place = {"data": "cifar10", "partition": division, "model": "lenet5"}
    return {"method": "fedsimsup", "clients_per_round": 10, **place, **sgd}


def _shakespeare() -> dict[str, Any]:
    place = {"data": {"name": "shakespeare", "stride": 5}, "partition": "natural", "clients": 0}
    # The data set divides a role's text by time, into three parts.
    sgd = {"epochs": 1, "batch_size": 50, "lr": 0.8, "momentum": 0.0, "weight_decay": 0.0}
    return {"method": "fedavg", **place, **sgd, "validation": 0.1}


_MLP, _CNN = {"data": "mnist", "model": "twonn"}, {"data": "cifar10", "model": "twocnn"}
# With seed 0 a client diverges in the third round, whichever way its steps are taken.
_ANOTHER_SEED = {"method": MIXING, **_CNN, "seed": 2}

WORKS = MappingProxyType(
    {
        "W1": Work("MNIST, TwoNN, FedAvg", {"method": "fedavg", **_MLP}, "twonn", peers=True),
        "W1s": Work("MNIST, TwoNN, SuPerFed-MM mixing", {"method": MIXING, **_MLP}, "twonn"),
        "W2": Work("CIFAR-10, CNN, FedAvg", {"method": "fedavg", **_CNN}, "twocnn", peers=True),
        "W2s": Work("CIFAR-10, CNN, SuPerFed-MM mixing", _ANOTHER_SEED, "twocnn"),
        "W3": Work("CIFAR-10, SimpleCNN, FLOCO, 30 clients a round", _floco()),
        "W4": Work("CIFAR-10, LeNet-5, FedSimSup, 10 clients a round", _fedsimsup()),
        "W5": Work(
            "Shakespeare roles, stacked LSTM, FedAvg", _shakespeare(), "stackedlstm", peers=True
        ),
    }
)


def is_real(experiment: Experiment, root: Path) -> bool:
    """Return whether the files of an experiment's data are there."""
    return any(any(root.glob(pattern)) for pattern in FILES[experiment.data["name"]])


def read_data(experiment: Experiment, root: Path) -> Federation:
    """Read and divides an experiment's data, or noise of the same shape."""
    if is_real(experiment, root):
        return read_federation(experiment, root)
    seed, rng = experiment.seed, streams.stream(experiment.seed, "noise")
    shape = SHAPES[experiment.data["name"]]
    if experiment.data["name"] == "shakespeare":
        return draw_roles(shape, experiment, rng)
    x = rng.integers(256, size=shape, dtype=np.uint8)
    y = rng.permutation(np.arange(len(x)) % 10)
    arrays = Arrays(x, y, x[:0], y[:0], classes=10, scale=255.0)
    rule = registry.build("partition", experiment.partition)
    shares, _ = rule.cut(y, experiment.clients, streams.stream(seed, "partition"))
    test, validation = experiment.test, experiment.validation
    parted = divide(shares, test, validation, seed)
    return Federation(arrays, parted, {"test": test, "validation": validation})


def draw_roles(
    shape: tuple[int, ...], experiment: Experiment, rng: np.random.Generator
) -> Federation:
    """Draw texts of roles that are as unequal as those of Shakespeare, more or less."""
    x, y = rng.integers(SYMBOLS, size=shape, dtype=np.uint8), rng.integers(SYMBOLS, size=shape[0])
    share = 0.1 + rng.exponential(size=ROLES)
    owner = rng.choice(ROLES, size=shape[0], p=share / share.sum())
    return Federation.from_owners(
        Arrays(x, y, x[:0], y[:0], SYMBOLS, owner=owner, tokens=True),
        experiment.test,
        experiment.validation,
        experiment.seed,
    )
