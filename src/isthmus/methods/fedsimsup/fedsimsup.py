"""FedSimSup: personalized federated learning under local supervision (Liu, Li, et al.).

    Server, a model theta_i per client       Client i, own supervisor s_i
    once: p_i <- label counts of each i      local(theta_i):
    for t = 1, 2, ..., T:                        s_i <- SGD on s_i alone, tau_s epochs (phase A)
        N(t) <- K clients, uniformly             theta_i <- SGD on theta_i alone, E epochs (B),
        theta_i <- local(theta_i), i in N(t)         both on the cross-entropy of the sum of
        theta_i <- (1 - a_i) theta_i                 logits q_theta(x) + q_s(x)
            + a_i sum_j sim_ij theta_j           keep s_i; return theta_i
                  / sum_j sim_ij,  i not in N(t), j in N(t)
        a_i = beta M / (M + K m_i),  beta = min(1, c_beta T^gamma / t)^2

Symbols: theta_i inter-learning model; s_i supervisor, a smaller network that never leaves; p_i the
label counts, m_i their sum, M = sum_j m_j; sim_ij cosine of p_i and p_j. The code counts t from 0.
The server's side is replay.py, the two networks two_networks.py. TCL: several `supervisors`.

A client deploys the sum, with the theta that the server has for it now; until it took part, theta
alone. A newcomer tells its p, gets the average of all theta_j by sim, and trains an s. Ablations:
`similarity` "sizes" puts m_j for sim_ij, "none" the plain average of the uploads for theta_i;
`arrangement` "serial" makes theta the body and s the head of one network, "alone" has no s.

Limiting case: alone, and with one client in all, it is FedAvg.

Departures, by the numbers of docs/methods/fedsimsup.md: theta_i stays where nobody is similar (X2);
all theta_i start equal, unless `starts` is "own"; training settings are ours (X8).
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isthmus import streams
from isthmus.client import Client, Point
from isthmus.cohort import Clients
from isthmus.method import About, Delivery, Method, ModelPath, Networks
from isthmus.methods.fedsimsup.replay import Absentees, Server, turn
from isthmus.methods.fedsimsup.two_networks import TwoNetworks
from isthmus.ranges import BelowHalf, Names, NonNegative, NonNegativeInt, Positive, Repeats
from isthmus.task import Task


class Own(NamedTuple):
    """The supervisor, and whether it is heard: whether it was ever trained."""

    s: Tensor
    heard: Tensor


@dataclass(frozen=True)
class FedSimSup(Method):
    """A small private network supervises a model that similar clients share."""

    supervisors: Names = ("auto",)
    supervisor_seed: NonNegativeInt = 0  # draws who has which, where there are several
    tau_s: Repeats = 1
    lr_s: NonNegative = 0.0  # 0: the experiment's lr
    c_beta: Positive = 40.0
    gamma: BelowHalf = 3 / 7
    similarity: Literal["labels", "sizes", "none"] = "labels"
    arrangement: Literal["parallel", "serial", "alone"] = "parallel"
    untrained: Literal["silent", "heard"] = "silent"  # supervisors of those that never took part
    starts: Literal["equal", "own"] = "equal"  # of all theta_i

    def about(self) -> About:
        return About(
            "connected modes",
            down="its shared branch",
            up="its shared branch",
            home="its supervisor" + ", of one of several kinds" * (len(self.supervisors) > 1),
            newcomer="after its labels are counted and its supervisor is trained",
            calls={"local": "", "census": "label counts" if self.similarity == "labels" else ""},
            everybody="once, for the census of labels",
        )

    def absentees(self, task: Task) -> Absentees:
        cut, own = self.pair(task, 0).cut, self.starts == "own"
        starts = (lambda i: task.model.fresh(task.seed_of("start", i))[:cut]) if own else None
        return Absentees(task.w0[:cut], self.similarity, self.c_beta, self.gamma, starts)

    def pair(self, task: Task, kind: int) -> TwoNetworks:
        cut = task.model.body.stop if self.arrangement == "serial" else task.model.size
        return TwoNetworks(task.model, task.others[kind] if task.others else None, cut)

    def init(self, task: Task) -> Server:
        return self.absentees(task).begin(task.clients)

    def own(self, task: Task, i: int) -> Own:
        pair, seed = self.pair(task, self.networks().kind(i)), task.seed_of("supervisor", i)
        s = pair.beside.fresh(seed) if pair.beside else task.w0[pair.cut :]
        return Own(s, torch.tensor(self.untrained == "heard"))

    def round(self, server: Server, clients: Clients) -> Server:
        if clients.t == 0 and len(clients.ids) == clients.total:
            clients.note("all clients take part in every round, so that no model is ever mixed")
        absentees = self.absentees(clients.task)
        ids, theta = clients.map(self.local, each=absentees.models(server, clients))
        return absentees.count(absentees.follow(server, clients, ids, theta), clients, self.census)

    def census(self, client: Client, own: Own) -> tuple[tuple[()], Tensor]:
        p = client.label_counts() if self.similarity == "labels" else client.n[None]
        return (), p.to(torch.int32)

    def local(self, client: Client, own: Own, theta: Tensor) -> tuple[Own, Tensor]:
        own = self.supervise(client, own, theta)  # phase A
        loss = self.pair(client.task, client.kind).loss_of_first(client, own.s)
        return own, client.descend(theta, loss=loss)  # phase B

    def supervise(self, client: Client, own: Own, theta: Tensor) -> Own:
        loss = self.pair(client.task, client.kind).loss_of_second(client, theta)
        epochs = 0 if self.arrangement == "alone" else self.tau_s
        lr = client.lr * (self.lr_s / client.task.lr if self.lr_s else 1)
        return Own(client.descend(own.s, loss=loss, epochs=epochs, lr=lr), torch.tensor(True))

    def join(self, client: Client, theta: Tensor) -> Own:
        return self.supervise(client, client.own, theta)

    def passes(self, task: Task) -> int:
        return self.tau_s + task.epochs

    def schedule(self, rounds: int) -> tuple[int]:
        return (ceil(turn(rounds, self.c_beta, self.gamma)) - 1,)

    def path(self) -> ModelPath:
        return ModelPath("path", self.branches)

    def branches(self, client: Client, own: Own, theta: Tensor) -> Point:
        return self.pair(client.task, client.kind).path(theta, own.s, own.heard)

    def personal(self, client: Client, own: Own, theta: Tensor) -> Tensor:
        return self.branches(client, own, theta).w[-1]  # the sum

    def logits(self, client: Client, params: Tensor, x: Tensor) -> Tensor:
        return self.pair(client.task, client.kind).logits(params, x)

    def deliver(self, server: Server, clients: Clients) -> Delivery:
        absentees = self.absentees(clients.task)
        if clients.newcomers:
            return Delivery(None, each=absentees.for_newcomers(server, clients, self.census))
        return Delivery(None, each=absentees.models(server, clients))

    def networks(self) -> Networks:
        names = self.supervisors if self.arrangement == "parallel" else ()
        return Networks(
            names,
            kind=lambda i: streams.key(self.supervisor_seed, "kind", i) % max(1, len(names)),
            module=lambda task, kind, params: self.pair(task, kind).module(params),
        )
