"""The contract that every method keeps.

A method is a frozen dataclass of hyper-parameters; it stores nothing else. Its server's round is
ordinary code that calls client functions on a cohort; a client function takes the client, what it
keeps at home and what arrives, and returns what it keeps and what leaves.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from isthmus.client import Client, Point
from isthmus.task import Task

if TYPE_CHECKING:
    from isthmus.cohort import Clients
    from isthmus.evaluation import Evaluation

State = Any  # tensors in NamedTuples: see isthmus.tree


class Method:
    """What a method's author writes, and the defaults of the rest."""

    selects: ClassVar[bool] = True  # where there is a path, `personal` is chosen along it
    points: ClassVar[str] = "path"  # what the records call the points of its path
    departs: ClassVar[bool] = False  # whether its path begins at the shared model, `common`

    def init(self, task: Task) -> State:
        """Gives the server's state before the first round."""
        raise NotImplementedError

    def round(self, server: State, clients: "Clients") -> State:
        """Gives the server's state after one round with this cohort."""
        raise NotImplementedError

    def personal(self, client: Client, own: State, *received: State) -> Tensor | Point:
        """Gives the parameters that this client would deploy."""
        raise NotImplementedError

    def own(self, task: Task, i: int) -> State:
        """Gives what client i holds before its first round: a pure function of (task, i)."""
        return ()

    def common(self, server: State) -> Tensor | None:
        """Gives the one model that everybody shares, if there is one."""
        return None

    def path(self, client: Client, own: State, *received: State) -> Point | None:
        """Gives points to draw: a lambda grid, a simplex grid; None if the method has no path."""
        return None

    def join(self, client: Client, *received: State) -> State:
        """Gives what a client that took part in no round builds for itself."""
        return client.own

    def logits(self, client: Client, params: Tensor, x: Tensor) -> Tensor:
        """Evaluates a model on inputs."""
        return client.model.logits(params, x)

    def evaluate(self, server: State, clients: "Clients") -> "Evaluation":
        """Delivers the server's state to all clients and scores what each would deploy."""
        return clients.score(self.common(server), server)

    def head(self, task: Task, reply: State) -> Tensor | None:
        """Gives the last layer's part [K, H] of stacked replies, where they hold such a part."""
        return None

    def welcome(self, server: State, clients: "Clients") -> "Evaluation":
        """Delivers to clients that took part in no round, and scores what each builds of it."""
        return self.evaluate(server, clients)

    def module(self, task: Task, kind: int, params: Tensor) -> nn.Module:
        """Builds what a client of this kind deploys as a plain module."""
        return task.model.load(params)

    def noise(self, task: Task) -> int:
        """Gives how many uniform random numbers each step wants in `batch.u`."""
        return 0

    def passes(self, task: Task) -> int:
        """Gives how many passes over the data one call of a client function may make."""
        return task.epochs

    def schedule(self, rounds: int) -> tuple[int, ...]:
        """Gives the rounds at which the method changes what it does, in a run of so many."""
        return ()

    def kind(self, i: int) -> int:
        """Gives client i's kind: clients of one kind have states of one shape."""
        return 0

    def others(self) -> tuple[str, ...]:
        """Names the second network of each kind of client; empty if clients have only one."""
        return ()

    def discloses(self) -> str:
        """Names what clients tell the server of their data, besides models and how many there are.

        In a simulation nobody is asked; clients in the world must have agreed to it by name.
        """
        return ""
