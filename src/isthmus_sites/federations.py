"""The data of a deployed run as either side sees them: made up, or those of one client."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.data.arrays import SUMS
from isthmus.data.federation import Federation, Splits, cut_splits
from isthmus.data.own.newcomer_files import read_arrays
from isthmus.data.own.sites import make_blank
from isthmus.errors import IsthmusError
from isthmus.experiment.settings import Experiment

EXAMPLES = 8  # made up: five to train on, one to choose on, two to be tested on


class SyntheticFederation(Federation):
    """Clients that hold the same few examples, none of them real.

    What a run needs to know of data besides their numbers is learned from it: what networks take
    and give, what messages look like. Records say nothing of what the clients hold.
    """

    def count_holdings(self, i: int) -> tuple[int, int, int, list[int]]:
        """Return zeros: nothing is known of them."""
        return 0, 0, 0, [0] * self.classes


def synthesize(experiment: Experiment) -> SyntheticFederation:
    """Return synthetic data for an experiment whose data are at sites."""
    names, schema = experiment.data.get("names"), experiment.data.get("schema")
    if not names or not schema:
        raise IsthmusError(
            "the experiment names no sites or no schema; write data.names and data.schema with "
            "`isthmus data schema`"
        )
    if experiment.model.get("weights") and not experiment.model.get("weights_digest"):
        raise IsthmusError(
            "model.weights needs model.weights_digest, so that all sites begin with the same file; "
            "take it from the experiment.toml of a simulated run"
        )
    blank = make_blank(schema)
    x = np.zeros((EXAMPLES, *blank.x.shape[1:]), np.float32)
    if np.issubdtype(blank.x.dtype, np.floating):
        x += np.sin(np.arange(x.size)).reshape(x.shape)
    arrays = blank._replace(x=x.astype(blank.x.dtype), y=np.arange(EXAMPLES) % blank.classes)
    rows = np.arange(EXAMPLES)
    parts = Splits(rows[:5], rows[5:6] if experiment.validation else rows[:0], rows[6:])
    return SyntheticFederation(arrays, [parts] * len(names), _shares(experiment), names=names)


def synthesize_newcomers(members: Federation, count: int = 1) -> Federation:
    """Return synthetic data of newcomers, like those of the clients."""
    data = SyntheticFederation(members.arrays, [members.splits[0]] * count, members.shares)
    return data.scale_by(members.scales(0)) if members.arrays.scaled_by == SUMS else data


def read_client(
    experiment: Experiment, i: int, path: Path, options: Mapping[str, Any]
) -> Federation:
    """Return the data of client i at its site, as the schema wants them; no other client has any.

    `options` are those of the kind of file: which column has the labels, say.
    """
    blank = make_blank(experiment.data["schema"])
    arrays = read_arrays(path, blank, blank.x.shape[1:], options)
    share = np.arange(len(arrays.y))
    seed, test, validation = experiment.dividing_seed, experiment.test, experiment.validation
    nothing = np.zeros(0, np.int64)
    parts = [Splits(nothing, nothing, nothing)] * len(experiment.data["names"])
    parts[i] = cut_splits(share, test, validation, seed, i, arrays.split)
    return Federation(arrays, parts, _shares(experiment), arrays.notes, experiment.data["names"])


def read_newcomer(experiment: Experiment, path: Path, options: Mapping[str, Any]) -> Federation:
    """Return the data of a site that is no client of the run, divided as by `isthmus adapt`."""
    blank = make_blank(experiment.data["schema"])
    arrays = read_arrays(path, blank, blank.x.shape[1:], options)._replace(owner=None, names=())
    return Federation.from_owners(arrays, experiment.test, experiment.validation, seed=0)


def _shares(experiment: Experiment) -> dict[str, float]:
    return {"test": experiment.test, "validation": experiment.validation}
