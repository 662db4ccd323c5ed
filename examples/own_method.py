"""Your own method: the server's box and the client's box, and it runs in every engine.

FedAvgM (Hsu et al. 2019): FedAvg whose server takes steps with momentum.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus import Client, Clients, Experiment, Method, Task, federate
from isthmus.formulas.vector import mean


class Server(NamedTuple):
    w: Tensor
    v: Tensor


class Reply(NamedTuple):
    d: Tensor
    n: Tensor


@dataclass(frozen=True)
class FedAvgM(Method):
    """Averages what the clients change, and keeps going in that direction."""

    beta: float = 0.7

    def init(self, task: Task) -> Server:
        return Server(task.w0, torch.zeros_like(task.w0))

    def round(self, server: Server, clients: Clients) -> Server:
        _, reply = clients.map(self.local, server.w)
        v = self.beta * server.v + mean(reply.d, reply.n)
        return Server(server.w + v, v)

    def local(self, client: Client, own: tuple[()], w: Tensor) -> tuple[tuple[()], Reply]:
        return own, Reply(client.descend(w) - w, client.n)

    def personal(self, client: Client, own: tuple[()], server: Server) -> Tensor:
        return server.w

    def common(self, server: Server) -> Tensor:
        return server.w


for engine in ("loop", "stacked"):
    experiment = Experiment(data="digits", rounds=10, epochs=2, lr=0.05, engine=engine)
    print(engine, federate(experiment, method=FedAvgM()))
