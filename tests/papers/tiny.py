"""A paper of a few small runs, for recipes that are made up, and records that are."""

from isthmus_papers.recipe import Preset, TableCell
from isthmus_papers.record import MeasuredNumber, RunRecord

PAPER = """
paper = "Tiny"
seeds = [1]
[settings]
data = { name = "synthetic", samples = 80 }
rounds = 2
clients = 4
clients_per_round = 2
epochs = 1
model = { name = "mlp", hidden = 4 }
[methods]
local = { label = "Local" }
fedavg = { label = "FedAvg" }
fedprox = { label = "FedProx", settings = { method.mu = 0.5 } }
superfed-mm = { label = "SuPerFed-MM", number.selection = "oracle-common" }
"""


def a_record(cell: TableCell, value: float, seed: int = 1, preset: Preset = "paper") -> RunRecord:
    """Make a record of a cell's run whose top-1 is this value."""
    experiment = cell.experiment(seed, preset).table()
    number = MeasuredNumber("top1", "personal", "clients", "mean", "all", value, 0.02, value, 0.0)
    return RunRecord(experiment, "d", "f", 2, 9.0, "machine", {"isthmus": "0"}, (number,))
