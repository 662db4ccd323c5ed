"""What every method promises at real sites: the bits of the simulation, and nothing else sent."""

from pathlib import Path

import pytest

from deployed import Deployment, experiment_at_sites, simulate
from golden import raises
from isthmus import tree
from isthmus.errors import IsthmusError
from isthmus.methods import METHODS
from isthmus.run.store import digest_of
from isthmus_sites.engine import name_state
from odd_engines import Flaky
from small import advance, begin, federation, played
from table import ROWS, Row

FEDERATED = [row for row in ROWS if METHODS[row.name].about().federated]


def test_a_method_that_pools_data_is_refused_at_sites(tmp_path: Path) -> None:
    data = federation()
    experiment = experiment_at_sites({"name": "pooled"}, data)
    with raises(IsthmusError):
        Deployment(tmp_path, experiment, data)


@pytest.mark.parametrize("row", FEDERATED, ids=[row.name for row in FEDERATED])
def test_a_deployed_run_is_the_simulated_run_to_the_bit(row: Row, tmp_path: Path) -> None:
    """Two sites are away in the second round: that is as if their replies had been lost."""
    data = federation()
    experiment = experiment_at_sites(row.method, data)
    alone = simulate(experiment, data)
    flaky = alone._replace(engine=Flaky(lambda t, i: t == 1 and i in (1, 3)))
    with Deployment(tmp_path, experiment, data) as deployed:
        here, there = begin(deployed.setting), begin(alone)
        for t in range(3):
            deployed.corridor.away = {"site-1", "site-3"} if t == 1 else set()
            here, there = played(deployed.setting, 1, here), played(flaky, 1, there)
        assert digest_of(here._replace(own={})) == digest_of(there._replace(own={}))
        assert {i: name_state(own) for i, own in here.own.items()} == {
            i: tree.digest([own]) for i, own in there.own.items()
        }
        scores = [
            advance(made, end, evaluate=True)[1].evaluation.scores
            for made, end in ((deployed.setting, here), (alone, there))
        ]
        assert repr(scores[0]) == repr(scores[1])
