from math import exp

import pytest

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.fedrep import FedRep

START = vector(1.0, 0.5, -0.5)  # b, h0, h1


def test_two_clients_worked_by_hand() -> None:
    """One epoch on the head, then one on the body, lr = 0.1, from b = 1, h = (0.5, -0.5).

    A (class 0): d = (-0.2689414214, 0.2689414214), so h = (0.5268941421, -0.5268941421), b still 1.
    Then logits (h, -h): p0 = 1 / (1 + exp(-2 * 0.5268941421)), d0 = p0 - 1, db = h @ d = 2 * h0 *
    d0, b = 1 - 0.1 db. B (class 1) likewise with h = (0.4268941421, -0.4268941421) and d0 = p0.
    """
    method, job = FedRep(head_epochs=1, body_epochs=1), task(model=chain(), w0=START)
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    ends = []
    for h0, label in ((0.5268941421369995, 0), (0.4268941421369995, 1)):
        p0 = 1 / (1 + exp(-2 * h0))
        ends.append(1 - 0.1 * 2 * h0 * (p0 - 1 if label == 0 else p0))
        assert clients.own[label].tolist() == pytest.approx([h0, -h0])
    assert server.b.tolist() == pytest.approx([sum(ends) / 2])


def test_without_epochs_for_the_head_it_stays_where_it_was() -> None:
    method, job = FedRep(head_epochs=0, body_epochs=2), task(model=chain(), w0=START)
    clients = Cohort(method, job, [client(method, job, 0)])
    server = clients.after(2)
    assert clients.own[0].tolist() == [0.5, -0.5]
    assert server.b.tolist() != [1.0]


def test_a_newcomer_fits_a_head() -> None:
    method, job = FedRep(head_epochs=1, body_epochs=1), task(model=chain(), w0=START)
    newcomer = client(method, job, 5)
    newcomer.own = method.own(job, 7)
    own = method.join(newcomer, method.init(job))
    assert own.tolist() == pytest.approx([0.5268941421, -0.5268941421])
