import pytest
import torch

from by_hand import Cohort, client, parabola, task, vector
from isthmus.methods.ditto import Ditto


def test_two_clients_worked_by_hand() -> None:
    """One step of w and two of v, lr = 0.1, lam = 2, from (0, 0).

    A (class 0): wA = (0.05, -0.05). v after its first step is the same; then p0 = 0.5249791875 and
    the pull is 2 (0.05, -0.05), so v = (0.0875020813, -0.0875020813), as in test_fedprox with mu =
    2. B (class 1) is the mirror; w = (wA + wB) / 2 = (0, 0).
    """
    method, job = Ditto(lam=2.0, own_epochs=2), task()
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    assert server.w.tolist() == [0, 0]
    assert clients.own[0].v.tolist() == pytest.approx([0.08750208125, -0.08750208125], abs=1e-10)
    assert clients.own[1].v.tolist() == pytest.approx([-0.08750208125, 0.08750208125], abs=1e-10)
    deployed = method.personal(client(method, job, 0), clients.own[0], server)
    assert deployed.tolist() == clients.own[0].v.tolist()


@pytest.mark.parametrize("lam", [0.0, 1.0, 3.0, 1000.0])
def test_the_own_model_lies_where_lambda_says(lam: float) -> None:
    """F = 1/2 (z - 1)^2 and w = 0: the minimum of F + lam/2 z^2 is z = 1 / (1 + lam)."""
    method, job = Ditto(lam=lam, own_epochs=1000), task(lr=0.0015)
    here = parabola(client(method, job, 0), 1.0, 1.0)
    server = method.init(job)
    own = method.nearby(here, vector(0.5, 0.5), server)
    expected = 1 / (1 + lam) + (0.5 - 1 / (1 + lam)) * (1 - 0.0015 * (1 + lam)) ** 1000
    assert own.v.tolist() == pytest.approx([expected] * 2, abs=1e-9)
    if lam == 1000.0:
        assert own.v.abs().max() < 0.001  # it coincides with w


def test_the_sum_of_norms_pulls_with_constant_length() -> None:
    """Inputs are 0, so that nothing else pulls: from w + (3, 4) by lr * lam * (0.6, 0.8)."""
    method, job = Ditto(lam=2.0, own_epochs=1, proximity="sum_of_norms"), task()
    server = method.init(job)
    own = method.nearby(client(method, job, 0, x=[[0.0]]), server.w + vector(3, 4), server)
    assert (own.v - server.w).tolist() == pytest.approx([3 - 0.12, 4 - 0.16])


def test_a_client_that_never_took_part_deploys_the_shared_model() -> None:
    method, job = Ditto(), task()
    server = method.init(job)._replace(w=vector(1, 2))
    deployed = method.personal(client(method, job, 3), method.own(job, 0), server)
    assert torch.equal(deployed, server.w)


def test_a_newcomer_trains_from_the_shared_model() -> None:
    """One step of length 0.05 from (0, 0), where the pull is 0."""
    method, job = Ditto(own_epochs=1), task()
    assert method.join(client(method, job, 3), method.init(job)).v.tolist() == [0.05, -0.05]
