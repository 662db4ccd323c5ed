import pytest
import torch

from by_hand import Cohort, client, parabola, task, vector
from isthmus.methods.pfedme import Own, PFedMe, Server


def test_two_clients_worked_by_hand() -> None:
    """One batch, two inner steps of 0.1 with lam = 2, outer lr = 0.1, from (0, 0).

    A (class 0): theta = (0.05, -0.05); then p0 = 0.5249791875, pull 2 (0.05, -0.05): theta =
    (0.0875020813, -0.0875020813), as in test_fedprox. w = 0 - 0.1 * 2 (0 - theta) = 0.2 theta =
    (0.0175004163, -0.0175004163). B is the mirror, so the shared model stays.
    """
    method, job = PFedMe(lam=2.0, inner=2, inner_lr=0.1), task()
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    theta = [0.08750208125, -0.08750208125]
    assert clients.own[0].theta.tolist() == pytest.approx(theta, abs=1e-10)
    assert server.w.tolist() == pytest.approx([0, 0])
    _, reply = method.local(client(method, job, 0), method.own(job, 0), method.init(job))
    assert reply.w.tolist() == pytest.approx([0.2 * theta[0], 0.2 * theta[1]])
    deployed = method.personal(client(method, job, 0), clients.own[0], server)
    assert deployed.tolist() == clients.own[0].theta.tolist()


@pytest.mark.parametrize("lam", [1.0, 15.0, 1000.0])
def test_the_own_model_lies_where_lambda_says(lam: float) -> None:
    """F = 1/2 (z - 1)^2: theta is near (1 + lam w) / (1 + lam), the minimum of the envelope.

    With the outer step at 0 the shared copy stays at w = 0.
    """
    method, job = PFedMe(lam=lam, inner=3000, inner_lr=0.0005), task(lr=1e-12)
    here = parabola(client(method, job, 0), 1.0, 1.0)
    own, _ = method.local(here, method.own(job, 0), method.init(job))
    expected = (1 - (1 - 0.0005 * (1 + lam)) ** 3000) / (1 + lam)
    assert own.theta.tolist() == pytest.approx([expected] * 2, abs=1e-9)
    if lam == 1000.0:
        assert own.theta.abs().max() < 0.001  # it coincides with w


def test_the_limiting_case_without_a_pull_trains_every_client_alone() -> None:
    """With lam = 0 the shared model stays, and theta takes plain steps: two of them, by hand."""
    method, job = PFedMe(lam=0.0, inner=1, inner_lr=0.1), task(epochs=2)
    clients = Cohort(method, job, [client(method, job, 0)])
    server = clients.after(1)
    assert server.w.tolist() == [0, 0]
    second = 0.05 + 0.1 * (1 - 0.52497918747894)
    assert clients.own[0].theta.tolist() == pytest.approx([second, -second])


def test_the_servers_step() -> None:
    """beta = 0.5 goes half the way to the clients' mean."""
    job = task()
    whole, half = (
        Cohort(method, job, [client(method, job, 0)]).after(1).w
        for method in (PFedMe(beta=1.0), PFedMe(beta=0.5))
    )
    assert half.tolist() == pytest.approx((whole / 2).tolist())


def test_who_never_took_part_deploys_the_shared_model_and_a_newcomer_begins_there() -> None:
    method, job = PFedMe(lam=2.0, inner=1, inner_lr=0.1), task()
    server = Server(vector(0.05, -0.05))
    never = method.own(job, 0)
    assert torch.equal(method.personal(client(method, job, 3), never, server), server.w)
    newcomer = client(method, job, 3)
    newcomer.own = never
    joined: Own = method.join(newcomer, server)
    step = 0.05 + 0.1 * (1 - 0.52497918747894)  # no pull: it begins at w
    assert joined.theta.tolist() == pytest.approx([step, -step])
