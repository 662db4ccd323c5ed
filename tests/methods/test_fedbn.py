import pytest
import torch
from torch import nn

from by_hand import Cohort, client, task, vector
from golden import check
from isthmus.methods.fedbn import FedBn, Server
from isthmus.models.flat import Flat
from small import advance, begin, setting


class Scaled(nn.Module):
    """One weight that belongs to a normalisation layer, between two that do not."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.first = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        self.norm = nn.RMSNorm(1, dtype=torch.float64)
        self.last = nn.Linear(1, 2, bias=False, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.norm(self.first(x)))
        return logits


START = vector(2.0, 1.0, 0.5, -0.5)  # first, g, h0, h1


def test_two_clients_worked_by_hand() -> None:
    """RMSNorm of one number is its sign, so the logits are g (h0, h1): those of chain() in b = g.

    The steps are those of test_fedper: A's g is 1.0268941421, B's 0.9268941421, and each stays at
    home; the heads' mean is (0.4768941421, -0.4768941421); `first` has no gradient.
    """
    method, job = FedBn(), task(model=Flat(Scaled), w0=START)
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    assert [own.tolist() for own in clients.own] == [
        pytest.approx([1.0268941421]),
        pytest.approx([0.9268941421]),
    ]
    assert server.w.tolist() == pytest.approx([2.0, 0.4768941421, -0.4768941421])
    deployed = method.personal(client(method, job, 0), clients.own[0], server)
    expected = [2.0, 1.0268941421, 0.4768941421, -0.4768941421]
    assert deployed.tolist() == pytest.approx(expected)


def test_a_newcomer_fits_its_normalisation_alone() -> None:
    method, job = FedBn(), task(model=Flat(Scaled), w0=START)
    newcomer = client(method, job, 5)
    newcomer.own = method.own(job, 7)
    own = method.join(newcomer, Server(vector(2.0, 0.5, -0.5)))
    assert own.tolist() == pytest.approx([1.0268941421])


def test_normalisation_layers_of_all_kinds_are_found() -> None:
    kinds = [nn.GroupNorm(1, 3), nn.LayerNorm(3), nn.BatchNorm1d(3, track_running_stats=False)]
    for kind in kinds:
        network = nn.Sequential(nn.Linear(2, 3), kind, nn.Linear(3, 2))
        found = Flat(lambda network=network: network).stretches
        assert found == [(False, 9), (True, 6), (False, 8)]


def test_without_normalisation_layers_the_user_is_told() -> None:
    made = setting("fedbn")
    middle, step = advance(made, begin(made), evaluate=False)
    check(*step.notes)
    assert advance(made, middle, evaluate=False)[1].notes == ()
