"""The data of an experiment."""

from pathlib import Path

from isthmus.data.build import build_federation
from isthmus.data.federation import Federation
from isthmus.errors import IsthmusError
from isthmus.experiment import registry
from isthmus.experiment.registry import OWN
from isthmus.experiment.settings import Experiment


def read_federation(experiment: Experiment, data_root: Path) -> Federation:
    """Reads and divides the data as the experiment says."""
    if OWN in (experiment.data["name"], experiment.partition["name"]):
        raise IsthmusError(
            "the experiment's data are somebody's own; expected them as an argument; call "
            "federate(experiment, data=...) from Python"
        )
    return build_federation(
        registry.build("data", experiment.data),
        registry.build("partition", experiment.partition),
        registry.build("noise", experiment.noise),
        clients=experiment.clients,
        clients_per_round=experiment.clients_per_round,
        test=experiment.test,
        validation=experiment.validation,
        divides_test_set=experiment.test_set == "clients",
        seed=experiment.dividing_seed,
        data_root=data_root,
    )
