from math import exp
from typing import Any

import pytest
import torch

from by_hand import Cohort, chain, client, task, vector
from isthmus.cohort import Clients, Round
from isthmus.methods import fedpac
from isthmus.methods.fedpac import FedPac, Server, Shared, combine
from isthmus.shelf import Shelf
from small import advance, begin, played, setting

START = vector(1.0, 0.0, 0.0)  # b, h0, h1: the feature of x is z = b x


def state(*p: float, m: tuple[float, ...]) -> Server:
    return Server(Shared(vector(1.0), vector(*p)[:, None], vector(*m)), vector(0.0, 0.0))


@pytest.mark.parametrize(("t", "pull"), [(0, 0.0), (1, -4.0)])
def test_two_clients_worked_by_hand(t: int, pull: float) -> None:
    """From b = 1, u = (0, 0), both rates 0.1; class 1 has prototype 3, class 0 has none.

    B (x = 2, class 1): h = (0, 2), s = (4 - 4) / 1 = 0. Its head: u = -0.1 * 2 (1/2, -1/2) = (-0.1,
    0.1). Its body: p0 = 1 / (1 + exp(0.4)), the cross-entropy's gradient is 2 u @ (p0, -p0) = -0.4
    p0, and from the second round on the pull's is 2 * 2 (2 - 3) = -4. Its prototype is 2 b.

    A (x = 1, class 0) is its mirror with u = (0.05, -0.05), h = (1, 0), s = 0, p1 = 1 / (1 +
    exp(0.1)), gradient -0.1 p1; its class has no prototype, and its own mean, 1, does not pull yet.

    With s = 0 only a client's own head has no error: a is 1 for it, and heads stay as they are.
    """
    method, job = FedPac(), task(model=chain(), w0=START)
    a, b = client(method, job, t), client(method, job, t, x=((2.0,),), y=(1,))
    clients = Cohort(method, job, [a, b])
    server = clients.after(1, state(0.0, 3.0, m=(0, 5)))
    bodies = 1 + 0.01 / (1 + exp(0.1)), 1 + 0.1 * (0.4 / (1 + exp(0.4)) - pull)
    assert server.shared.v.tolist() == pytest.approx([sum(bodies) / 2], abs=1e-12)
    assert server.shared.p[:, 0].tolist() == pytest.approx([bodies[0], 2 * bodies[1]], abs=1e-12)
    assert server.shared.m.tolist() == [1, 1]
    assert server.u.tolist() == pytest.approx([-0.025, 0.025], abs=1e-12)
    assert clients.shelf["head/0"].tolist() == pytest.approx([0.05, -0.05], abs=1e-12)
    assert clients.shelf["head/1"].tolist() == pytest.approx([-0.1, 0.1], abs=1e-12)


def test_moments_worked_by_hand() -> None:
    """x = 1, 3 of class 0 and 2 of class 1, b = 1: p = (2/3, 1/3), means (2, 2).

    h = (4/3, 2/3); s = ((1 + 9 + 4) / 3 - 16/9 - 4/9) / 3 = (42/9 - 20/9) / 3 = 22/27.
    """
    method, job = FedPac(), task(model=chain(), w0=START)
    here = client(method, job, 0, x=((1.0,), (3.0,), (2.0,)), y=(0, 0, 1))
    server = method.init(job)
    _, reply = method.local(here, (), server.shared, server.u)
    assert reply.h[:, 0].tolist() == pytest.approx([4 / 3, 2 / 3], abs=1e-12)
    assert float(reply.s) == pytest.approx(22 / 27, abs=1e-12)


def test_heads_are_combined_by_their_estimated_errors() -> None:
    """With s = (1, 1) and h one apart, client 0 minimises a^2 + (1 + 1) (1 - a)^2: a = 2/3.

    With h a hundred apart the other's share, 1 / 10002, is below 0.001 and is cut off. Of two
    equal clients with s = (1, 3) both take 3/4 and 1/4.
    """
    near = combine(vector(0, 1)[:, None, None], vector(1, 1))
    assert near.flatten().tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3, 2 / 3], abs=1e-5)
    far = combine(vector(0, 100)[:, None, None], vector(1, 1))
    assert far.tolist() == [[1, 0], [0, 1]]
    equal = combine(vector(5, 5)[:, None, None], vector(1, 3))
    assert equal.flatten().tolist() == pytest.approx([0.75, 0.25, 0.75, 0.25], abs=1e-5)


def test_a_client_whose_combination_is_not_found_keeps_its_own_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def second_fails(matrix: torch.Tensor) -> Any:
        return torch.full((2, 2), 0.5).double(), torch.tensor([True, False])

    monkeypatch.setattr(fedpac, "least_on_simplex", second_fails)
    assert combine(vector(0, 1)[:, None, None], vector(1, 1)).tolist() == [[0.5, 0.5], [0, 1]]


def test_the_server_keeps_a_head_for_those_that_took_part() -> None:
    made = setting("fedpac")
    end, done = advance(made, begin(made), evaluate=False)
    assert len(end.shelf) == done.cost.answered == 4
    assert all(head.shape == end.server.u.shape for head in end.shelf.values())


def test_a_newcomer_is_given_the_mean_head_and_nobody_elses() -> None:
    """Newcomer 0 is not client 0: what is kept for that one is not delivered."""
    made = setting("fedpac", clients_per_round=6)
    end = played(made, 2)
    newcomer = Clients([0], Round(made._replace(first=6), end.t, {}, shelf=Shelf(end.shelf)))
    delivery = made.method.deliver(end.server, newcomer)
    (given,) = newcomer.visit(lambda client, own, shared, u: u, delivery)
    assert torch.equal(given[0], end.server.u)
    assert not torch.equal(given[0], end.shelf["head/0"])


def test_a_newcomer_trains_the_mean_head() -> None:
    """One step from u = (0, 0) at x = 1, class 0, head_lr = 0.1; the body is the shared one."""
    method, job = FedPac(), task(model=chain(), w0=START)
    newcomer, server = client(method, job, 9), method.init(job)
    joined = method.join(newcomer, server.shared, server.u)
    found = method.personal(newcomer, joined, server.shared, server.u)
    assert found.tolist() == pytest.approx([1.0, 0.05, -0.05], abs=1e-15)
