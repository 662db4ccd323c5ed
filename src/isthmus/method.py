"""The contract that every method keeps.

A method is a frozen dataclass of hyper-parameters; it stores nothing else. Its server's round is
ordinary code that calls client functions on a cohort; a client function takes the client, what it
keeps at home and what arrives, and returns what it keeps and what leaves.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from isthmus.about import About as About
from isthmus.client import Client, Point
from isthmus.errors import IsthmusError
from isthmus.task import Task

if TYPE_CHECKING:
    from isthmus.cohort import Clients

State = Any  # tensors in NamedTuples: see isthmus.tree
Each = State | Callable[[int], State]  # a message per client: stacked, or as a function of its id


class Delivery(NamedTuple):
    """What clients get to build their personal models from."""

    common: Tensor | None  # the one model that everybody shares, if there is one
    shared: tuple[State, ...] = ()  # what every client receives
    each: Each = None  # what each client alone receives


class ModelPath(NamedTuple):
    """Models among which a client's personal one lies: a line, a simplex, branches."""

    name: str  # what records call its points
    points: Callable[..., Point]  # the client function that gives them: (client, own, *received)
    chosen: bool = False  # whether `personal` is chosen along it by `client.best`
    from_shared: bool = False  # whether it begins at the shared model, `common`


def load_network(task: Task, kind: int, params: Tensor) -> nn.Module:
    """Build the network with these parameters as a plain module."""
    if len(params) != task.model.size:
        raise IsthmusError(
            f"a client's personal model has {len(params):,} parameters, its network "
            f"{task.model.size:,}: the method replaces the head, which must be one linear layer "
            "with a bias; set head=last, or choose another model"
        )
    return task.model.load(params)


class Networks(NamedTuple):
    """The second networks that clients have, who has which, and what is deployed of both."""

    names: tuple[str, ...] = ()  # of each kind of client; empty if clients have only one network
    kind: Callable[[int], int] = lambda i: 0  # clients of one kind have states of one shape
    module: Callable[[Task, int, Tensor], nn.Module] = load_network  # what a kind deploys


class Method:
    """What a method's author writes, and the defaults of the rest."""

    def about(self) -> About:
        """Describe what a user should know before choosing it."""
        return About("custom method", down="undocumented", up="undocumented")

    def init(self, task: Task) -> State:
        """Return the server's state before the first round."""
        raise NotImplementedError

    def round(self, server: State, clients: "Clients") -> State:
        """Return the server's state after one round with this cohort."""
        raise NotImplementedError

    def personal(self, client: Client, own: State, *received: State) -> Tensor | Point:
        """Return the parameters that this client would deploy, from what `deliver` gave it."""
        raise NotImplementedError

    def own(self, task: Task, i: int) -> State:
        """Return what client i holds before its first round: a pure function of (task, i)."""
        return ()

    def common(self, server: State) -> Tensor | None:
        """Return the one model that everybody shares, if there is one."""
        return None

    def deliver(self, server: State, clients: "Clients") -> Delivery:
        """Return what these clients build their personal models from: members, or newcomers."""
        return Delivery(self.common(server), (server,))

    def path(self) -> ModelPath | None:
        """Describe the models among which the personal one lies, where there are such."""
        return None

    def join(self, client: Client, *received: State) -> State:
        """Return what a client that took part in no round builds for itself."""
        return client.own

    def logits(self, client: Client, params: Tensor, x: Tensor) -> Tensor:
        """Evaluate a model on inputs."""
        return client.model.logits(params, x)

    def noise(self, task: Task) -> int:
        """Return how many uniform random numbers each step wants in `batch.u`."""
        return 0

    def passes(self, task: Task) -> int:
        """Return how many passes over the data one call of a client function may make."""
        return task.epochs

    def schedule(self, rounds: int) -> tuple[int, ...]:
        """Return the rounds at which the method changes what it does, in a run of so many."""
        return ()

    def networks(self) -> Networks:
        """Describe second networks, where clients have them."""
        return Networks()
