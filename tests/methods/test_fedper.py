import pytest

from by_hand import Cohort, chain, client, task, vector
from isthmus.methods.fedavg import FedAvg
from isthmus.methods.fedper import FedPer

START = vector(1.0, 0.5, -0.5)  # b, h0, h1


def test_two_clients_worked_by_hand() -> None:
    """One step each, lr = 0.1, from b = 1, h = (0.5, -0.5): logits (0.5, -0.5).

    p0 = 1 / (1 + exp(-1)) = 0.7310585786. A (class 0) has d = (p0 - 1, p1) =
    (-0.2689414214, 0.2689414214): db = h @ d = -0.2689414214, dh = d. B (class 1) has d =
    (0.7310585786, -0.7310585786): db = 0.7310585786. b = 1 - 0.1 (-0.2689414214 + 0.7310585786) / 2
    = 0.9768941421; A's head is (0.5268941421, -0.5268941421), B's (0.4268941421, -0.4268941421).
    """
    method, job = FedPer(), task(model=chain(), w0=START)
    clients = Cohort(method, job, [client(method, job, 0, y=(label,)) for label in (0, 1)])
    server = clients.after(1)
    assert server.b.tolist() == pytest.approx([0.9768941421])
    assert clients.own[0].tolist() == pytest.approx([0.5268941421, -0.5268941421])
    assert clients.own[1].tolist() == pytest.approx([0.4268941421, -0.4268941421])
    deployed = method.personal(client(method, job, 0), clients.own[0], server)
    assert deployed.tolist() == pytest.approx([0.9768941421, 0.5268941421, -0.5268941421])


def test_with_a_head_of_no_parameters_it_is_fedavg() -> None:
    model = chain()
    model.body, model.head = slice(0, 3), slice(3, 3)
    ends = []
    for method in (FedPer(), FedAvg()):
        job = task(model=model, w0=START, epochs=3)
        here = [client(method, job, 0, y=labels) for labels in ((0,), (1, 1, 0))]  # type: ignore[arg-type]
        ends.append(Cohort(method, job, here).after(3)[0].tolist())  # type: ignore[arg-type]
    assert ends[0] == ends[1]


def test_a_newcomer_fits_a_head_and_leaves_the_body() -> None:
    """One step on the head alone: A's head of above."""
    method, job = FedPer(), task(model=chain(), w0=START)
    newcomer = client(method, job, 5)
    newcomer.own = method.own(job, 7)
    server = method.init(job)
    own = method.join(newcomer, server)
    assert own.tolist() == pytest.approx([0.5268941421, -0.5268941421])
    assert method.personal(newcomer, own, server)[0] == 1.0
