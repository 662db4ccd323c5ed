import pytest
import torch
from torch import nn

from by_hand import Cohort, client, task, vector
from golden import raises
from isthmus import IsthmusError
from isthmus.methods.fedavg import FedAvg
from isthmus.methods.fedrod import FedRod, Server
from isthmus.models.flat import Flat


def test_two_clients_worked_by_hand() -> None:
    """One pass over classes 0, 0, 1 with lr = 0.1 from w = p = (0, 0); counts 2 and 1.

    Balanced logits are w + (log 2, log 1), so p0 = 2 exp(w0) / (2 exp(w0) + exp(w1)). Step 1
    (class 0): p0 = 2/3, g = (-1/3, 1/3), w = (0.0333.., -0.0333..). The own head sees w + p =
    (0, 0): g = (-0.5, 0.5), p = (0.05, -0.05). The next steps go on like this with the margins
    m = w0 - w1 and w0 + p0 - w1 - p1, as the loop below does in plain arithmetic.
    """
    method, job = FedRod(), task()
    own, reply = method.local(client(method, job, 0, y=(0, 0, 1)), vector(0, 0), method.init(job))
    w = p = 0.0  # first entries; the second ones are their negatives
    for label in (0, 0, 1):
        odds = torch.tensor([2 * w, 2 * (w + p)], dtype=torch.float64).exp()
        balanced, plain = float(2 * odds[0] / (2 * odds[0] + 1)), float(odds[1] / (odds[1] + 1))
        w, p = w - 0.1 * (balanced - (label == 0)), p - 0.1 * (plain - (label == 0))
    assert reply.w.tolist() == pytest.approx([w, -w])
    assert own.tolist() == pytest.approx([p, -p])
    assert w == pytest.approx(-0.0007, abs=0.01)  # two of three against a prior of two of three
    mirror = [client(method, job, 0, y=labels) for labels in ((0, 0, 1), (1, 1, 0))]
    server = Cohort(method, job, mirror).after(1)
    assert server.w.tolist() == pytest.approx([0, 0], abs=1e-15)
    deployed = method.personal(client(method, job, 0), own, server)
    assert deployed.tolist() == pytest.approx([p, -p])


def test_the_limiting_case_of_equal_counts_is_fedavg() -> None:
    """Adding the same number to all logits changes no gradient."""
    job = task(epochs=3)
    ends = []
    for method in (FedRod(), FedAvg()):
        here = [client(method, job, 0, y=(0, 1)), client(method, job, 0, y=(1, 0, 0, 1))]  # type: ignore[arg-type]
        ends.append(Cohort(method, job, here).after(3).w.tolist())  # type: ignore[arg-type]
    assert ends[0] == pytest.approx(ends[1], abs=1e-14)


def test_who_never_took_part_deploys_the_shared_model() -> None:
    method, job = FedRod(), task()
    deployed = method.personal(client(method, job, 3), method.own(job, 0), Server(vector(1, 2)))
    assert deployed.tolist() == [1, 2]


def test_a_head_of_several_layers_is_refused() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.body = nn.Linear(1, 2)
            self.classifier = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.classifier(self.body(x))
            return logits

    with raises(IsthmusError):
        FedRod().init(task(model=Flat(Deep, head="classifier")))
