from typing import Any

import pytest
import torch
from torch import nn

from by_hand import client, task, vector
from isthmus import tree
from isthmus.engines.stacked import Stacked
from isthmus.methods.floco import simplex
from isthmus.methods.floco.floco_plus import FlocoPlus, Own
from isthmus.methods.floco.simplex import Region, Simplex
from isthmus.models.flat import Flat
from isthmus.run.newcomers import join
from isthmus.task import Task
from odd_engines import Flaky
from small import advance, federation, network, played, setting

NONE, NO = torch.zeros(0, dtype=torch.float64), torch.tensor(False)


def options(**changes: Any) -> dict[str, Any]:
    return {"name": "floco-plus", "vertices": 3, "tau": 2} | changes


def trained(
    method: FlocoPlus, p: Simplex, theta: Simplex, settings: Task, region: Region | None = None
) -> tuple[Own, Any]:
    """One participation of a client that draws the centre of the simplex in every step."""
    u = [[0.5] * simplex.noise(method.vertices, "uniform")] * (2 * settings.epochs)
    here = client(method, settings, 0, u=u)
    return method.local(here, Own(p, NO), theta, region)


def vertices(*entries: float) -> Simplex:
    return Simplex(NONE, vector(*entries).view(2, 2), NONE)


def test_one_step_worked_by_hand() -> None:
    """Shared vertices (1, 0), (0, 1), private ones (3, 0), (-1, 2); lam = 2, lr = 0.1.

    At the centres w = (1/2, 1/2) and (1, 1), so p = (1/2, 1/2) in both, the gradient is (-1/2, 1/2)
    and each vertex gets (-1/4, 1/4). The shared ones become (1.025, -0.025), (0.025, 0.975). The
    private ones are pulled too, by 2 (2, 0) and 2 (-1, 1): (3, 0) - 0.1 (3.75, 0.25) and
    (-1, 2) - 0.1 (-2.25, 2.25).
    """
    method = FlocoPlus(vertices=2, lam=2.0)
    own, reply = trained(method, vertices(3, 0, -1, 2), vertices(1, 0, 0, 1), task())
    shared, private = reply.theta.vertices.flatten(), own.p.vertices.flatten()
    assert shared.tolist() == pytest.approx([1.025, -0.025, 0.025, 0.975], abs=1e-12)
    assert private.tolist() == pytest.approx([2.625, -0.025, -0.775, 1.775], abs=1e-12)
    assert bool(own.seen)


def test_without_a_pull_the_private_simplex_trains_alone() -> None:
    """Whatever the server sends."""
    method = FlocoPlus(vertices=2, lam=0.0)
    ends = [
        trained(method, vertices(3, 0, -1, 2), theta, task(epochs=3, momentum=0.5))[0]
        for theta in (vertices(1, 0, 0, 1), vertices(50, -7, 0, 1))
    ]
    assert torch.equal(ends[0].p.vertices, ends[1].p.vertices)
    assert not torch.equal(ends[0].p.vertices, vertices(3, 0, -1, 2).vertices)


def test_with_a_strong_pull_it_goes_to_the_received_simplex() -> None:
    """lam = 1e4, lr lam = 1/2: 40 steps leave 2^-40 of the way; the loss holds 1/lam against it."""
    method = FlocoPlus(vertices=2, lam=1e4)
    theta = vertices(1, 0, 0, 1)
    own, _ = trained(method, vertices(3, 0, -1, 2), theta, task(epochs=40, lr=0.5e-4))
    assert (own.p.vertices - theta.vertices).abs().max() < 1e-4
    assert (own.p.vertices - theta.vertices).abs().max() > 1e-6


@pytest.mark.parametrize(("pull", "body"), [("all", 0.9), ("vertices", 1.0)])
def test_the_pull_covers_all_parameters_or_the_vertices_alone(pull: Any, body: float) -> None:
    """Inputs of 0 and no biases: nothing but the pull from 1 towards 0 moves, 0.1 of the way."""
    method = FlocoPlus(vertices=2, lam=1.0, pull=pull)
    theta = Simplex(vector(0, 0), torch.zeros(2, 4, dtype=torch.float64), NONE)
    layers = ((1, 2), (2, 2))
    model = Flat(
        lambda: nn.Sequential(*(nn.Linear(*s, bias=False, dtype=torch.float64) for s in layers))
    )
    u = [[0.5] * simplex.noise(2, "uniform")]
    here = client(method, task(model=model), 0, x=[[0.0]], u=u)
    p = method.private(here, tree.map(torch.ones_like, theta), theta).p
    assert p.body.tolist() == pytest.approx([body] * 2, abs=1e-12)
    assert p.vertices.flatten().tolist() == pytest.approx([0.9] * 8, abs=1e-12)


def test_the_private_simplex_trains_the_clients_region() -> None:
    """At alpha_k = (1, 0) the second vertex has a share of at most rho / 2, and moves as little."""
    method, start = FlocoPlus(vertices=2, lam=0.0), vertices(1, 0, 0, 1)
    region = Region(vector(1, 0), vector(0.1)[0])
    own, _ = trained(method, start, start, task(epochs=5), region)
    first, second = (own.p.vertices - start.vertices).abs().amax(1)
    assert second < first / 15


class TestStates:
    def test_a_private_simplex_begins_at_the_common_start_and_waits_for_its_client(self) -> None:
        made = setting(options(tau=9))
        start = made.method.init(made.task).theta
        own = made.method.own(made.task, 3)
        assert torch.equal(own.p.flat(), start.flat())
        end = played(made, 1)
        assert len(end.own) == 4
        assert all(bool(own.seen) for own in end.own.values())

    def test_who_never_took_part_deploys_the_shared_simplex(self) -> None:
        made = setting(options(tau=0), clients_per_round=2, rounds=1)
        end, done = advance(made, played(made, 0), evaluate=True)
        personal, shared = done.evaluation("personal"), end.server.theta
        never = [i for i in range(6) if i not in end.own]
        assert len(never) == 4
        for i in never:
            x, y = made.federation.split(i, "test")
            w = shared.at(end.server.places.points[i])
            loss = torch.nn.functional.cross_entropy(made.task.model.logits(w, x), y)
            assert personal.figures.loss[i] == pytest.approx(loss.item(), abs=1e-6)
            assert (personal.at[i] == end.server.places.points[i].double().numpy()).all()

    def test_the_pass_at_tau_leaves_private_simplices_alone(self) -> None:
        made = setting(options())
        before = played(made, 2)
        after, done = advance(made, before, evaluate=False)
        assert (done.cost.asked, done.cost.answered) == (6, 6)
        told = before._replace(
            server=before.server._replace(places=after.server.places), shelf=after.shelf
        )
        again, done = advance(made, told, evaluate=False)
        assert done.cost.asked == 4
        assert tree.digest([again.server]) == tree.digest([after.server])
        for i, own in after.own.items():
            other = again.own.get(i, made.method.own(made.task, i))
            assert torch.equal(own.p.flat(), other.p.flat())
            assert own.seen == other.seen

    def test_a_client_lost_at_tau_is_placed_later(self) -> None:
        made = setting(options(tau=1), Flaky(lambda t, i: t == 1 and i == 0), clients_per_round=6)
        progress = played(made, 2)
        assert progress.server.places.placed.tolist() == [False] + [True] * 5
        assert played(made, 1, progress).server.places.placed.all()

    def test_newcomers_place_themselves_and_train_a_copy(self) -> None:
        made = setting(options(tau=1), rounds=3)
        progress = played(made, 3)
        for engine in (None, Stacked(block=2)):
            here = made if engine is None else made._replace(engine=engine)
            ((_, scores),) = join(here, progress, federation(sizes=(40, 23), seed=6), [None])
            newcomer, shared = (
                next(s for s in scores if (s.model, s.split) == (model, "test"))
                for model in ("newcomer", "shared")
            )
            assert newcomer.at.sum(1) == pytest.approx([1, 1], abs=1e-6)
            assert (newcomer.figures.loss != shared.figures.loss).all()


def test_personal_models_gain_after_tau() -> None:
    """Clients that prefer one class of three overlapping clouds: the shared model cannot."""
    noisy = federation(sizes=(60,) * 6, spread=3.0)
    for name in ("floco", "floco-plus"):
        made = setting(options(name=name, tau=5), data=noisy, rounds=12, build=network)
        _, done = advance(made, played(made, 11), evaluate=True)
        personal, shared = done.evaluation("personal"), done.evaluation("shared")
        assert personal.figures.loss.mean() < shared.figures.loss.mean(), name
