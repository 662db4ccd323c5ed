"""Flower's simulation: its FedAvg strategy over Ray actors, one per core, of one thread each.

A client's examples are tensors that its actor holds; it trains with the plain loop's own inner
loop. The strategy is Flower's, evaluation is off; it waits for its turn where a round begins. Each
of the nodes that Flower chooses is told whose examples to take, so that cohorts are everybody's.
"""

import sys
from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.networks import train
from benchmarks.peers.work import PeerWork, Turns, read


class InTurns(FedAvg):
    """Flower's FedAvg, which waits for its turn where a round begins, with cohorts as given."""

    def __init__(self, turns: Turns, work: PeerWork):
        FedAvg.__init__(
            self,
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=work.cohort,
            min_available_nodes=work.cohort,
        )
        self._turns, self._work = turns, work

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Wait, then let Flower choose nodes, and tell each its client."""
        self._turns.wait()
        messages = FedAvg.configure_train(self, server_round, arrays, config, grid)
        for message, i in zip(messages, self._work.cohorts[server_round - 1], strict=True):
            own = {"client": ConfigRecord({"id": i})}  # what Flower sends is one object for all
            message.content = RecordDict({**message.content, **own})
            yield message

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate what all of them answered: Flower itself would go on without some."""
        replies = list(replies)
        wrong = [reply.error for reply in replies if reply.has_error()]
        if wrong:
            raise RuntimeError(f"of {len(replies)} replies these are errors: {wrong}")
        trained = sorted(int(reply.content["metrics"]["num-examples"]) for reply in replies)
        cohort = self._work.cohorts[server_round - 1]
        expected = sorted(len(self._work.data(i)[1]) for i in cohort)
        if trained != expected:
            raise RuntimeError(f"trained on {trained} examples; expected {expected}")
        return FedAvg.aggregate_train(self, server_round, replies)


def client_app(folder: str) -> ClientApp:
    """Make what runs in the actors."""
    app = ClientApp()

    @app.train()
    def local(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        work = read(folder)
        x, y = work.data(int(message.content["client"]["id"]))
        module = work.module()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        orders = (torch.randperm(len(y)) for _ in range(work.sgd.epochs))
        train(module, x, y, orders, work.sgd)
        reply = {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def main(folder: str) -> None:
    """Run the simulation."""
    work = read(folder)
    turns = Turns(work.rounds)
    server = ServerApp()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        strategy = InTurns(turns, work)
        start = ArrayRecord(work.module().state_dict())
        strategy.start(grid, start, num_rounds=work.rounds)
        turns.wait()

    run_simulation(
        server,
        client_app(folder),
        num_supernodes=work.cohort,
        backend_config={
            "init_args": {"num_cpus": work.processes},
            "client_resources": {"num_cpus": 1.0},
        },
    )


if __name__ == "__main__":
    main(sys.argv[1])
