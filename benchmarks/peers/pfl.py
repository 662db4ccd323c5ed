"""Apple's pfl: its simulation of FedAvg in one process per core, of one thread each.

A user's examples are tensors; pfl cuts them into batches once, and takes these in the same order in
every epoch: it is spared the shuffling and gathering that the others do. Evaluation is off, but for
the first round. The processes wait for each other where a round ends, and rank 0 for its turn. The
cohorts are everybody's; pfl knows how large users are, and spreads them over the processes by it.
"""

import os
import socket
import subprocess
import sys
from itertools import chain, cycle
from typing import Any

import numpy as np
import torch

from benchmarks.networks import list_trained, make_optimiser
from benchmarks.peers.work import PeerWork, Turns, read

NEVER = 10**9


def launch(folder: str) -> None:
    """Start a process for every other core, and is itself the first, as under torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    work = read(folder)
    processes = work.processes
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "TORCHELASTIC_RUN_ID": "benchmark",
    }
    others = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.pfl", folder],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=2,
        )
        for rank in range(1, processes)
    ]
    os.environ.update(shared | {"RANK": "0", "LOCAL_RANK": "0"})
    try:
        simulate(work, Turns(work.rounds))
    finally:
        for other in others:
            other.terminate()
            other.wait()


def simulate(work: PeerWork, turns: Turns | None) -> None:
    """Run the simulation; the one with `turns` waits for them."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(1)
    np.random.seed(0)  # the processes draw the same cohorts

    def wait_for_all() -> None:
        if turns is not None:
            turns.wait()
        torch.distributed.barrier()

    class InTurns(TrainingProcessCallback):
        def on_train_begin(self, *, model: Any) -> Metrics:
            wait_for_all()
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            wait_for_all()
            return False, Metrics()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.network = work.module()

        def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.network(x), y)

        def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
            with torch.no_grad():
                return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}

    users = [PyTorchTensorDataset(work.data(i), str(i)) for i in range(len(work.ends))]
    ids = cycle(chain.from_iterable(work.cohorts))  # pfl draws cohorts ahead, and never ends
    sizes = {i: len(work.data(i)[1]) for i in range(len(users))}
    data = FederatedDataset(users.__getitem__, ids.__next__, sizes)
    network = Network()
    model = PyTorchModel(
        network,
        lambda parameters, lr: make_optimiser(parameters, work.sgd._replace(lr=lr)),
        central_optimizer=torch.optim.SGD(list_trained(network), lr=1.0),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=NEVER,
            train_cohort_size=work.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=work.sgd.epochs,
            local_learning_rate=work.sgd.lr,
            local_batch_size=work.sgd.batch_size,
        ),
        callbacks=[InTurns()],
    )


if __name__ == "__main__":
    if "RANK" in os.environ:
        simulate(read(sys.argv[1]), None)
    else:
        launch(sys.argv[1])
