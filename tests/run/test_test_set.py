"""`test_set=clients`: the data's own test examples are divided among the clients."""

from pathlib import Path

import numpy as np

from golden import raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.run.build import read_federation

SETTINGS = {"data": "digits", "partition": "iid", "clients": 10, "rounds": 1, "epochs": 1}


def count(test_set: str) -> tuple[int, int]:
    federation = read_federation(Experiment(**SETTINGS, test_set=test_set), Path())
    held = sum(sum(federation.sizes(i)) for i in range(len(federation)))
    return held, len(federation.server_test().y)


def test_all_examples_are_the_clients() -> None:
    """The bundled digits: 1,497 to be divided, and 300 of the server's."""
    assert count("server") == (1497, 300)
    assert count("clients") == (1797, 0)


def test_the_server_then_has_no_numbers(tmp_path: Path) -> None:
    run = federate(Experiment(**SETTINGS, test_set="clients"), out=tmp_path / "run")
    rows = (tmp_path / "run" / "clients.csv").read_text().splitlines()
    assert not [row for row in rows if ",server," in row]
    assert np.isfinite(run.evaluation("shared").figures.top1).all()
    settings = Experiment.load(tmp_path / "run" / "experiment.toml")
    assert settings.test_set == "clients"


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,who,label\n" + "\n".join(f"{i},{i % 3},{i % 2}" for i in range(60)))
    own = {"name": "table", "path": str(table), "label": "label", "client": "who"}
    with raises(IsthmusError):
        read_federation(Experiment(data=own, test_set="clients", clients_per_round=2), Path())


def test_data_that_are_divided_already_are_refused() -> None:
    x, y = np.zeros((8, 2), np.float32), np.arange(8) % 2
    data = Federation.of(x, y, np.repeat([0, 1], 4), test=0.25, validation=0.25)
    experiment = Experiment(test_set="clients", rounds=1, clients_per_round=2)
    with raises(IsthmusError):
        federate(experiment, data=data)
