from math import exp
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from by_hand import client, task, vector
from golden import check
from isthmus import Experiment, federate, tree
from isthmus.cohort import Clients, Round
from isthmus.engines.stacked import Stacked
from isthmus.methods.floco import server as placing
from isthmus.methods.floco import simplex
from isthmus.methods.floco.floco import Floco
from isthmus.methods.floco.server import Reply
from isthmus.methods.floco.simplex import Region, Simplex
from isthmus.models.flat import Flat
from isthmus.run.newcomers import join
from isthmus.run.store import Progress
from isthmus.shelf import Shelf
from odd_engines import Flaky
from small import advance, begin, federation, network, played, setting

NONE = torch.zeros(0, dtype=torch.float64)


def options(**changes: Any) -> dict[str, Any]:
    return {"name": "floco", "vertices": 3, "tau": 2} | changes


def evenly(method: Floco) -> list[list[float]]:
    """Uniforms of one step that are all alike: on the whole simplex they give the centre."""
    return [[0.5] * simplex.noise(method.vertices, method.sampler)]


def test_a_round_worked_by_hand() -> None:
    """Two vertices (1, 0) and (0, 1), one step of lr 0.1 at their centre, x = 1 and label 0.

    w = (1/2, 1/2), so p = (1/2, 1/2) and the gradient is (-1/2, 1/2); each vertex gets half of it:
    (1.025, -0.025) and (0.025, 0.975). Averaged with a client of three times as many examples that
    sends (1, 1) and (0, 0): (1.00625, 0.74375) and (0.00625, 0.24375); centre (0.50625, 0.49375).
    """
    method = Floco(vertices=2)
    start = Simplex(NONE, torch.eye(2, dtype=torch.float64), NONE)
    _, reply = method.local(client(method, task(), 0, u=evenly(method)), (), start)
    assert reply.theta.vertices.flatten().tolist() == pytest.approx(
        [1.025, -0.025, 0.025, 0.975], abs=1e-12
    )
    other = Simplex(NONE, vector(1, 1, 0, 0).view(2, 2), NONE)

    class Answers:
        t, rounds, shelf = 0, 200, Shelf()

        def map(self, f: Any, *shared: Any, each: Any) -> Any:
            assert each is None  # before tau nothing is sent besides the simplex
            both = tree.stack([reply, Reply(other, 3 * reply.n)])
            return torch.tensor([0, 1]), both

    server = method.round(placing.begin(start, 2), Answers())  # type: ignore[arg-type]
    expected = [1.00625, 0.74375, 0.00625, 0.24375]
    assert server.theta.vertices.flatten().tolist() == pytest.approx(expected, abs=1e-12)
    assert method.common(server).tolist() == pytest.approx([0.50625, 0.49375], abs=1e-12)
    assert not server.places.placed.any()


def test_each_vertex_gets_its_share_of_the_gradient_at_the_mixture() -> None:
    """One step shows the gradient: body and bias get it whole, vertex m times alpha_m.

    In float64; the gradient is read off as (before - after) / lr, which costs three digits.
    """
    torch.set_default_dtype(torch.float64)
    try:
        model, method = Flat(network), Floco(vertices=3)
        settings = task(model=model, w0=model.fresh(1), lr=1e-3)
        theta = simplex.start(settings, 3)
        u = torch.rand(1, simplex.noise(3, "uniform"), generator=torch.Generator().manual_seed(0))
        alpha = simplex.uniform(u[:, :3])[0]
        x, y = torch.tensor([[1.0, -1.0, 2.0, 0.5, 0.0, 1.0]]), torch.tensor([2])
        here = client(method, settings, 0, x=x.tolist(), y=y.tolist(), u=u.tolist())
        _, reply = method.local(here, (), theta)
        w = theta.at(alpha).requires_grad_()
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(model.logits(w, x), y), w)
        found = tree.map(lambda a, b: (a - b) / 1e-3, theta, reply.theta)
        weight = model.weight
        assert torch.allclose(found.body, g[: weight.start], atol=1e-11)
        assert torch.allclose(found.bias, g[weight.stop :], atol=1e-11)
        assert torch.allclose(found.vertices, alpha[:, None] * g[weight], atol=1e-11)
        assert found.vertices.abs().max() > 1e-3
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_placed_client_trains_near_its_point() -> None:
    """At alpha_k = (1, 0) with rho = 0.2 the second vertex has a share a of at most 0.1.

    One step at w = (1 - a) (1, 0) + a (0, 1): the second vertex moves by 0.1 a (1 - p0), (p0 - 1)
    with p0 = 1 / (1 + exp(2 a - 1)), which gives a away.
    """
    method = Floco(vertices=2, rho=0.2)
    start = Simplex(NONE, torch.eye(2, dtype=torch.float64), NONE)
    region = Region(vector(1, 0), vector(0.2)[0])
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        u = torch.rand(1, simplex.noise(2, "uniform"), generator=random, dtype=torch.float64)
        here = client(method, task(), 0, u=u.tolist())
        _, reply = method.local(here, (), start, region)
        a = simplex.around(region, u)[0, 1].item()
        assert 0 <= a <= 0.1 + 1e-12
        moved = (reply.theta.vertices - start.vertices)[1, 0].item()
        assert moved == pytest.approx(0.1 * a * (1 - 1 / (1 + exp(2 * a - 1))), abs=1e-12)


class TestPlaces:
    def test_before_tau_everybody_is_at_the_centre(self) -> None:
        """Local equals shared, for every client and every figure, to the bit."""
        made = setting(options())
        _, done = advance(made, played(made, 1), evaluate=True)
        personal, shared = done.evaluation("personal"), done.evaluation("shared")
        assert personal.at == pytest.approx(np.full((6, 3), 1 / 3), abs=1e-7)
        for own, common in zip(personal.figures, shared.figures, strict=True):
            assert (own == common).all()

    def test_tau_places_everybody_once(self) -> None:
        made = setting(options())
        before = played(made, 2)
        assert not before.server.places.placed.any()
        assert not before.shelf
        after, done = advance(made, before, evaluate=True)
        places = after.server.places
        assert places.placed.all()
        assert torch.allclose(places.points.sum(1), torch.ones(6))
        assert len(places.points.unique(dim=0)) > 1
        assert (done.evaluation("personal").at == places.points.double().numpy()).all()
        assert (done.cost.asked, done.cost.answered) == (6, 6)
        assert [note.startswith("placed 6 of 6 clients; z = ") for note in done.notes] == [True]
        later, done = advance(made, after, evaluate=False)
        assert (done.cost.asked, done.notes) == (4, ())
        assert torch.equal(later.server.places.points, places.points)

    def test_the_pass_at_tau_sends_vertices_up_and_regions_down(self) -> None:
        """4 of 6 clients train, 24 weights in the last layer, 83 parameters, 4 bytes each."""
        made = setting(options())
        _, done = advance(made, played(made, 2), evaluate=False)
        whole = 83 + 2 * 24
        assert done.cost.down_bytes == 4 * ((6 + 4) * whole + 4 * (3 + 1))
        assert done.cost.up_bytes == 4 * (6 * 3 * 24 + 4 * (whole + 1))

    def test_the_pass_at_tau_has_no_effect_but_places(self) -> None:
        """The round of tau trains as one that finds its clients placed already."""
        made = setting(options())
        before = played(made, 2)
        after, _ = advance(made, before, evaluate=False)
        told = Progress(
            2, before.server._replace(places=after.server.places), before.own, after.shelf
        )
        again, done = advance(made, told, evaluate=False)
        assert done.cost.asked == 4
        assert tree.digest([again.server]) == tree.digest([after.server])
        assert not after.own

    def test_the_places_do_not_depend_on_the_engine(self) -> None:
        """Moves differ by 1e-6 at most, and scores as much; divided by z = 0.01 or more, 1e-3."""
        loop, stacked = setting(options()), setting(options(), Stacked(block=4))
        middle = played(loop, 2)
        ends = [advance(made, middle, evaluate=False)[0] for made in (loop, stacked)]
        first, second = (end.server.places.points for end in ends)
        assert ends[0].shelf["projection/z"] > 0.01
        assert (first - second).abs().max() < 1e-3

    def test_who_is_lost_at_tau_trains_everything_and_is_placed_by_its_first_answer(self) -> None:
        made = setting(options(), Flaky(lambda t, i: t == 2 and i in (0, 1)))
        progress = played(made, 3)
        places = progress.server.places
        assert places.placed.tolist() == [False, False, True, True, True, True]
        assert places.region(0, 0.1).radius == simplex.WHOLE
        assert places.region(2, 0.1).radius == pytest.approx(0.1)
        projection = placing.read_projection(progress.shelf)
        assert projection is not None
        asked = Clients([0, 2], round := Round(made, 3, {}, shelf=Shelf(progress.shelf)))
        server = made.method.round(progress.server, asked)
        assert server.places.placed.tolist() == [True, False, True, True, True, True]
        again = Clients([0], Round(made, 3, {}))
        region = progress.server.places.region(0, 0.1)
        _, reply = again.map(made.method.local, progress.server.theta, each=lambda i: region)
        expected = projection(reply.theta.moves(progress.server.theta))[0]
        assert torch.equal(server.places.points[0], expected)
        assert torch.equal(server.places.points[2:], places.points[2:])
        assert not round.notes

    def test_if_nobody_answers_at_tau_the_next_round_places(self) -> None:
        made = setting(options(tau=1), Flaky(lambda t, i: t == 1))
        progress = played(made, 2)
        assert not progress.server.places.placed.any()
        assert not progress.shelf
        progress = played(made, 1, progress)
        assert progress.server.places.placed.all()

    def test_a_run_that_ends_before_tau_says_so(self) -> None:
        made = setting(options(tau=4))  # of 4 rounds
        _, done = advance(made, begin(made), evaluate=False)
        check(*done.notes)
        made = setting(options(tau=3))
        assert advance(made, begin(made), evaluate=False)[1].notes == ()

    def test_fewer_clients_than_vertices_are_placed_with_a_remark(self) -> None:
        made = setting(options(vertices=8))
        end, done = advance(made, played(made, 2), evaluate=True)
        assert end.server.places.placed.all()
        check(done.notes[0])


class TestNewcomers:
    def at(self, rounds: int) -> Any:
        made = setting(options())
        progress = played(made, rounds)
        newcomers = federation(sizes=(9, 40, 23, 31, 14, 20, 30), seed=6)  # more than the run has
        ((_, scores),) = join(made, progress, newcomers, [None])
        return made, progress, scores[0]

    def test_before_tau_they_are_at_the_centre(self) -> None:
        _, _, score = self.at(2)
        assert score.at == pytest.approx(np.full((7, 3), 1 / 3), abs=1e-7)

    def test_after_tau_they_place_themselves(self) -> None:
        """Each by its own pass; none has the point of the run's client of the same number."""
        _, progress, score = self.at(3)
        assert score.model == "newcomer"
        assert score.at.min() >= 0
        assert score.at.sum(1) == pytest.approx(np.ones(7), abs=1e-6)
        taken = progress.server.places.points.double().numpy()
        assert (np.abs(score.at[:6] - taken).sum(1) > 1e-3).all()
        assert np.ptp(score.at, 0).max() > 0.01


class TestSelection:
    @pytest.mark.parametrize("selection", ["common", "fixed", "oracle", "oracle-common"])
    def test_no_rule_moves_a_client(self, selection: str) -> None:
        evaluations = []
        for rule in ("validation", selection):
            made = setting(options(tau=0), selection=rule)
            evaluations.append(advance(made, played(made, 1), evaluate=True)[1].evaluation)
        assert repr(evaluations[0]) == repr(evaluations[1])

    def test_nothing_is_said_to_be_chosen(self) -> None:
        experiment = Experiment(
            method=options(tau=0), data="synthetic", rounds=1, epochs=1, selection="oracle"
        )
        run = federate(experiment)
        assert "path" not in repr(run)
        assert "simplex" not in repr(run)
        assert {score.model for score in run.evaluation.scores} == {
            "personal",
            "shared",
            "simplex",
        }
        assert run.evaluation("simplex").at.shape == (20, 16, 3)


class Squeezed(nn.Module):
    """Ends as SqueezeNet does: a 1x1 convolution to the classes, ReLU, the mean over places."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(1, 4, (1, 2))
        self.classifier = nn.Conv2d(4, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.squeeze(x.view(-1, 1, 2, 3)))
        return torch.relu(self.classifier(h)).mean((2, 3))


@pytest.mark.parametrize("engine", [None, Stacked(block=4)], ids=["loop", "stacked"])
def test_the_simplex_may_be_of_a_convolution(engine: Any) -> None:
    made = setting(options(tau=1), engine, build=Squeezed)
    end, done = advance(made, played(made, 2), evaluate=True)
    assert end.server.theta.vertices.shape == (3, 12)
    assert end.server.places.placed.all()
    assert np.isfinite(done.evaluation("personal").figures.loss).all()
    before = made.method.init(made.task).theta
    assert (before.vertices != end.server.theta.vertices).any(1).all()


def test_with_the_authors_sampler_it_trains_too() -> None:
    made = setting(options(sampler="authors", tau=1))
    assert made.method.noise(made.task) == 4
    end = played(made, 3)
    assert torch.isfinite(end.server.theta.flat()).all()
    assert tree.digest([end.server]) != tree.digest([played(setting(options(tau=1)), 3).server])


def test_presets_are_the_papers_and_the_releases() -> None:
    """CIFAR-10 with SimpleCNN: spec tables of the paper, and of the Flower release, Dir(0.5)."""
    paper, release = (Experiment(preset=name, method="floco") for name in ("paper", "release"))
    for e, tau, vertices, rho, sampler in (
        (paper, 100, 7, 0.1, "uniform"),
        (release, 250, 10, 0.3, "authors"),
    ):
        method = e.method
        assert (method["tau"], method["vertices"], method["rho"]) == (tau, vertices, rho)
        assert (method["sampler"], method["kappa_scale"]) == (sampler, "none")
        assert (e.lr, e.lr_decay, e.momentum, e.epochs, e.batch_size) == (0.02, 1.0, 0.5, 5, 50)
    assert (paper.weight_decay, release.weight_decay) == (1e-5, 5e-4)
    plus = Experiment(preset="release", method="floco-plus").method
    assert (plus["lam"], plus["pull"], plus["tau"], plus["rho"]) == (1.0, "all", 250, 0.3)


def test_a_step_keeps_the_shelf_of_the_round_that_placed() -> None:
    """The projection is written once: a later round changes nothing on the shelf."""
    made = setting(options())
    progress = played(made, 2)
    shelves = []
    for _ in range(2):
        progress, done = advance(made, progress, evaluate=False)
        shelves.append(sorted(done.shelf))
    names = [f"projection/{field}" for field in ("components", "mean", "scale", "z")]
    assert shelves == [names, []]
