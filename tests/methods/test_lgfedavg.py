import pytest

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.lgfedavg import LgFedAvg

START = vector(1.0, 0.5, -0.5)  # b, h0, h1


def test_two_clients_worked_by_hand() -> None:
    """The steps of test_fedper, with body and head exchanged.

    A's body is 1 + 0.1 * 0.2689414214 = 1.0268941421, B's 1 - 0.1 * 0.7310585786 = 0.9268941421;
    the shared head is the mean of (0.5268941421, -0.5268941421) and (0.4268941421, -0.4268941421).
    """
    method, job = LgFedAvg(), task(model=chain(), w0=START)
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    assert [own.tolist() for own in clients.own] == [
        pytest.approx([1.0268941421]),
        pytest.approx([0.9268941421]),
    ]
    assert server.h.tolist() == pytest.approx([0.4768941421, -0.4768941421])
    deployed = method.personal(client(method, job, 0), clients.own[1], server)
    assert deployed.tolist() == pytest.approx([0.9268941421, 0.4768941421, -0.4768941421])


def test_larger_clients_weigh_more() -> None:
    """A with three examples and B with one: the head is (3 hA + hB) / 4."""
    method, job = LgFedAvg(), task(model=chain(), w0=START)
    big, small = client(method, job, 0, y=(0, 0, 0)), client(method, job, 0, y=(1,))
    ends = [Cohort(method, job, [one]).after(1).h for one in (big, small)]
    both = Cohort(method, job, [big, small]).after(1).h
    assert both.tolist() == pytest.approx(((3 * ends[0] + ends[1]) / 4).tolist())


def test_a_newcomer_trains_a_body_of_its_own() -> None:
    method, job = LgFedAvg(), task(model=chain(), w0=START)
    newcomer = client(method, job, 5)
    newcomer.own = method.own(job, 7)
    assert method.join(newcomer, method.init(job)).tolist() == pytest.approx([1.0268941421])
