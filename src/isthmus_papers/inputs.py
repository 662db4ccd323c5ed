"""The data sets behind published numbers: how much of them there must be."""

from isthmus.experiment.settings import Experiment

EXAMPLES = {
    "mnist": 60_000,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "tinyimagenet": 100_000,
    "emnist": 697_932,
}


def list_inputs(experiment: Experiment) -> dict[str, int]:
    """List what the data of a run must have, so that its numbers can be the published ones.

    >>> list_inputs(Experiment(data="mnist"))
    {'examples': 60000}
    """
    name, wanted = experiment.data["name"], {}
    if name in EXAMPLES and experiment.test_set == "server":
        wanted["examples"] = EXAMPLES[name]
    if experiment.partition["name"] == "natural" and experiment.clients:
        wanted["clients"] = experiment.clients
    return wanted
