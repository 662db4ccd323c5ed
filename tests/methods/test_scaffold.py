import pytest

from by_hand import Cohort, client, parabola, task, vector
from isthmus.methods.fedavg import FedAvg
from isthmus.methods.scaffold import Scaffold, Server


def test_two_clients_worked_by_hand() -> None:
    """One step each, lr = 0.1, from w = (0, 0), on paper.

    Round 1, c = cA = cB = 0: A (class 0) has g = (-0.5, 0.5), so dy = (0.05, -0.05) and cA =
    (w - y) / (1 * 0.1) = (-0.5, 0.5): its gradient. B is the mirror. w stays (0, 0); c = 0.
    Round 2: A moves by -0.1 (g - cA + c) = -0.1 ((-0.5, 0.5) - (-0.5, 0.5)) = 0, B likewise: the
    drift is gone. cA stays cA - 0 + 0 / 0.1 = cA.
    """
    method, job = Scaffold(), task()
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    assert clients.own[0].tolist() == pytest.approx([-0.5, 0.5])
    assert clients.own[1].tolist() == pytest.approx([0.5, -0.5])
    assert server.w.tolist() == server.c.tolist() == [0, 0]
    own, reply = method.local(client(method, job, 1), clients.own[0], server)
    assert reply.dy.tolist() == pytest.approx([0, 0])
    assert own.tolist() == pytest.approx([-0.5, 0.5])


def test_it_converges_where_fedavg_does_not() -> None:
    """F_A = 1/2 (z - 0)^2, F_B = 3/2 (z - 1)^2; lr = 0.1, ten steps a round, both clients.

    The optimum of F_A + F_B is z = (1 * 0 + 3 * 1) / (1 + 3) = 0.75. Ten steps of FedAvg's client k
    multiply its distance to its own minimum by q_k = (1 - 0.1 a_k)^10: q_A = 0.9^10 = 0.3486784401,
    q_B = 0.7^10 = 0.0282475249. The mean of the two ends is w again where
    w = (q_A w + 1 - q_B + q_B w) / 2, so w = (1 - q_B) / (2 - q_A - q_B) = 0.5987111: FedAvg's
    only fixed point, and the map contracts towards it.
    """
    job = task(epochs=10, w0=vector(5.0, 5.0))
    ends = {}
    for method in (Scaffold(), FedAvg()):
        here = [
            parabola(client(method, job, 0), a, b)  # type: ignore[arg-type]
            for a, b in ((1.0, 0.0), (3.0, 1.0))
        ]
        ends[type(method)] = Cohort(method, job, here).after(60).w[0]
    assert float(ends[FedAvg]) == pytest.approx(0.5987111, abs=1e-6)
    assert float(ends[Scaffold]) == pytest.approx(0.75, abs=1e-6)


def test_controls_of_absent_clients_stay_in_the_mean() -> None:
    """Of two clients one answers: c moves by half of what that client's control moved."""
    method, job = Scaffold(), task()
    alone = Cohort(method, job, [client(method, job, 0)])
    server = alone.after(1, Server(vector(0, 0), vector(0, 0)))
    assert server.c.tolist() == pytest.approx([-0.25, 0.25])
    assert server.w.tolist() == pytest.approx([0.05, -0.05])


def test_the_experiments_momentum_is_not_used() -> None:
    ends = []
    for momentum in (0.0, 0.9):
        method, job = Scaffold(), task(epochs=5, momentum=momentum)
        ends.append(Cohort(method, job, [client(method, job, 0)]).after(2).w.tolist())
    assert ends[0] == ends[1]


def test_with_momentum_the_control_is_still_about_the_mean_gradient() -> None:
    """A constant gradient 1 with momentum 0.5: of 40 steps all but the first few have length 2."""
    method, job = Scaffold(momentum=0.5), task(epochs=40)
    here = client(method, job, 0)
    here.loss = lambda z, batch: z.sum()  # type: ignore[method-assign]
    own, _ = method.local(here, vector(0, 0), Server(vector(0, 0), vector(0, 0)))
    assert own.tolist() == pytest.approx([1, 1], rel=0.03)
