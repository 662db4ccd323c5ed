from math import exp

import pytest
import torch

from by_hand import Cohort, client, task, vector
from isthmus.methods.apfl import Apfl, Own, Server
from isthmus.methods.fedavg import FedAvg


def test_two_clients_worked_by_hand() -> None:
    """Two steps, lr = 0.1, alpha = 0.25, from w = v = (0, 0).

    A (class 0), step 1: both gradients are (-0.5, 0.5): w = (0.05, -0.05), v = 0.25 * that =
    (0.0125, -0.0125). Step 2: at w the margin is 0.1, p0 = 1 / (1 + exp(-0.1)); at the mixture
    0.25 * 0.0125 + 0.75 * 0.05 = 0.040625 the margin is 0.08125, q0 = 1 / (1 + exp(-0.08125)).
    w0 = 0.05 + 0.1 (1 - p0), v0 = 0.0125 + 0.1 * 0.25 (1 - q0). B (class 1) is the mirror.
    """
    method, job = Apfl(), task(epochs=2)
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    p0, q0 = 1 / (1 + exp(-0.1)), 1 / (1 + exp(-0.08125))
    v0 = 0.0125 + 0.025 * (1 - q0)
    assert clients.own[0].v.tolist() == pytest.approx([v0, -v0])
    assert clients.own[1].v.tolist() == pytest.approx([-v0, v0])
    assert server.w.tolist() == pytest.approx([0, 0])
    _, reply = method.local(client(method, job, 0), method.own(job, 0), method.init(job))
    w0 = 0.05 + 0.1 * (1 - p0)
    assert reply.w.tolist() == pytest.approx([w0, -w0])
    deployed = method.personal(client(method, job, 0), clients.own[0], server)
    assert deployed.at.tolist() == [0.25]
    assert deployed.w.tolist() == pytest.approx([0.25 * v0, -0.25 * v0])


def test_with_alpha_0_it_is_fedavg() -> None:
    """Also what is deployed: the own model's share is nothing, and it never moves."""
    ends = []
    for method in (Apfl(alpha=0.0), FedAvg()):
        job = task(epochs=3)
        here = [client(method, job, 0, y=labels) for labels in ((0,), (1, 1, 0))]  # type: ignore[arg-type]
        clients = Cohort(method, job, here)  # type: ignore[arg-type]
        server = clients.after(3)
        ends.append(server.w.tolist())
        if isinstance(method, Apfl):
            assert clients.own[0].v.tolist() == [0, 0]
            deployed = method.personal(here[0], clients.own[0], server)
            assert deployed.w.tolist() == server.w.tolist()
    assert ends[0] == ends[1]


def test_the_share_adapts_by_its_derivative() -> None:
    """After one step from w = (0, 0), v = (1, -1), a = 0.5 at class 0, lr = 0.1.

    At w: g = (-0.5, 0.5), w = (0.05, -0.05). At the mixture (0.5, -0.5) p0 = 1 / (1 + exp(-1)), so
    v = (1 + 0.05 (1 - p0), ...). Then a <- a - 0.1 <v - w, grad at the new mixture>: v - w =
    (m, -m), the gradient (q0 - 1, 1 - q0), so a grows by 0.1 * 2 m (1 - q0).
    """
    method, job = Apfl(adaptive=True), task()
    own = Own(vector(1, -1), vector(0.5)[0], torch.tensor(True))
    new, _ = method.local(client(method, job, 0), own, Server(vector(0, 0)))
    v = 1 + 0.05 * (1 - 1 / (1 + exp(-1)))
    mixture = 0.5 * v + 0.5 * 0.05
    q0 = 1 / (1 + exp(-2 * mixture))
    assert float(new.a) == pytest.approx(0.5 + 0.1 * 2 * (v - 0.05) * (1 - q0))


def test_the_share_stays_a_share() -> None:
    """A long step in the same direction ends at 1."""
    method, job = Apfl(adaptive=True), task(lr=100.0)
    own = Own(vector(1, -1), vector(0.5)[0], torch.tensor(True))
    new, _ = method.local(client(method, job, 0), own, Server(vector(-200, 200)))
    assert 0 <= float(new.a) <= 1


def test_who_never_took_part_deploys_the_shared_model() -> None:
    method, job = Apfl(), task()
    deployed = method.personal(client(method, job, 3), method.own(job, 0), Server(vector(1, 2)))
    assert deployed.w.tolist() == [1, 2]
    assert deployed.at.tolist() == [0]
