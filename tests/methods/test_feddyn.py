import pytest

from by_hand import Cohort, client, parabola, task, vector
from isthmus.methods.fedavg import FedAvg
from isthmus.methods.feddyn import FedDyn, Model
from isthmus.methods.fedprox import FedProx
from isthmus.methods.fedprox import Server as Shared


def test_two_clients_worked_by_hand() -> None:
    """One step each, lr = 0.1, a = 0.5, from w = (0, 0).

    A (class 0): the penalty's gradient at w is 0, so wA = (0.05, -0.05) and gA = -0.5 wA =
    (-0.025, 0.025); B (class 1) is the mirror. h = -0.5 (wA + wB) / 2 = 0, w = (wA + wB) / 2 = 0.
    Round 2, A: gradient (-0.5, 0.5) - gA = (-0.475, 0.475), so wA = (0.0475, -0.0475) and
    gA = (-0.025, 0.025) - 0.5 (0.0475, -0.0475) = (-0.04875, 0.04875).
    """
    method, job = FedDyn(a=0.5), task()
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    assert clients.own[0].tolist() == pytest.approx([-0.025, 0.025])
    assert server.w.tolist() == server.h.tolist() == [0, 0]
    own, reply = method.local(client(method, job, 1), clients.own[0], Model(server.w))
    assert reply.w.tolist() == pytest.approx([0.0475, -0.0475])
    assert own.tolist() == pytest.approx([-0.04875, 0.04875])


def test_one_client_of_two_worked_by_hand() -> None:
    """Only A answers: h = -0.5 wA / 2 = (-0.0125, 0.0125), w = wA - h / 0.5 = (0.075, -0.075)."""
    method, job = FedDyn(a=0.5), task()
    server = Cohort(method, job, [client(method, job, 0)]).after(1)
    assert server.h.tolist() == pytest.approx([-0.0125, 0.0125])
    assert server.w.tolist() == pytest.approx([0.075, -0.075])


def test_it_converges_where_fedavg_does_not() -> None:
    """As in test_scaffold: the optimum is 0.75, FedAvg's only fixed point 0.5987111."""
    job = task(epochs=10, w0=vector(5.0, 5.0))
    ends = {}
    for method in (FedDyn(a=1.0), FedAvg()):
        here = [
            parabola(client(method, job, 0), a, b)  # type: ignore[arg-type]
            for a, b in ((1.0, 0.0), (3.0, 1.0))
        ]
        ends[type(method)] = Cohort(method, job, here).after(100).w[0]
    assert float(ends[FedAvg]) == pytest.approx(0.5987111, abs=1e-6)
    assert float(ends[FedDyn]) == pytest.approx(0.75, abs=1e-6)


def test_the_limiting_case_of_a_first_round_is_fedprox() -> None:
    job = task(epochs=3)
    method, prox = FedDyn(a=0.7), FedProx(mu=0.7)
    _, mine = method.local(client(method, job, 0), vector(0, 0), Model(vector(0.3, 0.1)))
    _, theirs = prox.local(client(prox, job, 0), (), Shared(vector(0.3, 0.1)))
    assert mine.w.tolist() == pytest.approx(theirs.w.tolist(), abs=1e-15)
