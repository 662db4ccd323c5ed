"""An experiment's data: read, divided among clients and given noisy labels, as it says."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus import streams
from isthmus.config import registry
from isthmus.config.experiment import Experiment
from isthmus.config.registry import OWN
from isthmus.data.federation import Federation, divide, fills
from isthmus.data.label_noise import KddCodeNoise, Noise
from isthmus.data.partitions import Natural
from isthmus.data.sources.arrays import Arrays
from isthmus.errors import IsthmusError


class Owners(NamedTuple):
    """Whose each example is, and what is to be said about it."""

    owner: NDArray[np.int64]  # -1: of an owner whose examples do not fill three parts
    notes: tuple[str, ...]


def federation_of(experiment: Experiment, data_root: Path) -> Federation:
    """Reads and divides the experiment's data."""
    if OWN in (experiment.data["name"], experiment.partition["name"]):
        raise IsthmusError(
            "the experiment's data are somebody's own; expected them as an argument; call "
            "federate(experiment, data=...) from Python"
        )
    seed, test, validation = experiment.dividing_seed, experiment.test, experiment.validation
    noise: Noise = registry.build("noise", experiment.noise)
    arrays = noise.whole(registry.build("data", experiment.data).load(data_root, seed), seed)
    rule, rng = registry.build("partition", experiment.partition), streams.stream(seed, "partition")
    notes: tuple[str, ...]
    names: list[str] = []
    if isinstance(rule, Natural):
        owner, left_out = _owners(experiment, arrays)
        shares, notes = rule.cut(owner, experiment.clients, rng)
        notes = left_out + notes
        names = [_name(arrays, int(owner[rows[0]])) for rows in shares]
    else:
        shares, notes = rule.cut(arrays.y, asked(experiment, arrays), rng)
    if experiment.clients_per_round > len(shares) and not experiment.clients:
        notes += (f"there are {len(shares)} clients: all of them take part in every round",)
    parted = divide(shares, test, validation, seed, arrays.split)
    known = {"test": test, "validation": validation}
    federation = Federation(arrays, parted, known, arrays.notes + notes, names)
    return noise.at_clients(federation, seed)


def noisy(experiment: Experiment, federation: Federation) -> Federation:
    """Corrupts the labels of clients that were divided elsewhere."""
    noise: Noise = registry.build("noise", experiment.noise)
    if isinstance(noise, KddCodeNoise):
        raise IsthmusError(
            "noise kdd-code-noise comes before the partition, and these data are divided; expected "
            "noise=none, pair or symmetric; choose one of them"
        )
    return noise.at_clients(federation, experiment.dividing_seed)


def asked(experiment: Experiment, arrays: Arrays) -> int:
    """Gives the number of clients asked for: where it is 0, that of the owners."""
    if experiment.clients:
        return experiment.clients
    if arrays.owner is None:
        raise IsthmusError(
            f"clients=0, but data {experiment.data['name']} do not say whose each example is; "
            "expected a number of clients; for example --set clients=20"
        )
    return len(np.unique(arrays.owner))


def _owners(experiment: Experiment, arrays: Arrays) -> Owners:
    if arrays.owner is None:
        raise IsthmusError(
            f"data {experiment.data['name']} do not say whose each example is; expected owners "
            "for partition natural; choose another one, for example --set partition=iid"
        )
    owner, test, validation = arrays.owner.copy(), experiment.test, experiment.validation
    by_owner = np.argsort(arrays.owner, kind="stable")
    owners, sizes = np.unique(arrays.owner, return_counts=True)
    small = 0
    for rows in np.split(by_owner, np.cumsum(sizes)[:-1]):
        if not fills(rows, test, validation, arrays.split):
            owner[rows] = -1
            small += 1
    if small == len(owners):
        raise IsthmusError(
            f"none of {small} owners has enough examples for test={test:g} and "
            f"validation={validation:g}; expected at least one in each part; change the shares, or "
            "the partition"
        )
    note = f"{small:,} of {len(owners):,} owners have too few examples to fill three parts"
    return Owners(owner, (note,) if small else ())


def _name(arrays: Arrays, owner: int) -> str:
    name = arrays.names[owner] if arrays.names else str(owner)
    return "".join(letter if letter.isprintable() else " " for letter in name)
