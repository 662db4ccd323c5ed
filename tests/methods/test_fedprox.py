import pytest

from by_hand import client, task, vector
from isthmus.methods.fedprox import FedProx, Server


def test_two_clients_worked_by_hand() -> None:
    """Two steps from w = (0, 0) with lr = 0.1, mu = 2: the first as in FedAvg, the second pulled.

    Client A (class 0): w = (0.05, -0.05) after the first step. Then p0 = 1 / (1 + exp(-0.1)) =
    0.5249791875, g = (p0 - 1, 1 - p0) + 2 * (0.05, -0.05) = (-0.3750208125, 0.3750208125), so w =
    (0.05 + 0.03750208125, ...) = (0.08750208125, -0.08750208125). Client B (class 1) is its mirror.
    """
    method, w = FedProx(mu=2.0), Server(vector(0, 0))
    ends = []
    for label in (0, 1):
        here = client(method, task(epochs=2), 0, y=(label,), u=((), ()))
        ends.append(method.local(here, (), w)[1].w.tolist())
    assert ends[0] == pytest.approx([0.08750208125, -0.08750208125], abs=1e-10)
    assert ends[1] == pytest.approx([-0.08750208125, 0.08750208125], abs=1e-10)


def test_a_strong_pull_holds_the_copy_at_the_shared_model() -> None:
    """With lr * mu = 1 the second step returns to w, up to its own gradient step of length 0.05."""
    method, w = FedProx(mu=10.0), Server(vector(0, 0))
    here = client(method, task(epochs=2), 0, u=((), ()))
    free = client(FedProx(mu=0.0), task(epochs=2), 0, u=((), ()))
    held = method.local(here, (), w)[1].w
    assert held[0] < 0.05 < FedProx(mu=0.0).local(free, (), w)[1].w[0]


def test_fedprox_lu_keeps_its_pull_while_tuning() -> None:
    """With two epochs at 0.01 from (0, 0), mu = 100: 0.005, then 0.005 + 0.01 (1 - p0 - 0.5).

    p0 = 1 / (1 + exp(-0.01)) = 0.50249998: w0 = 0.005 + 0.01 * (0.49750002 - 0.5) = 0.0049750002.
    """
    method = FedProx(mu=100.0, tune=2)
    tuned = method.personal(client(method, task(epochs=2), 9, u=((), ())), (), Server(vector(0, 0)))
    assert float(tuned[0]) == pytest.approx(0.0049750002, abs=1e-9)
