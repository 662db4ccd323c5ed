"""The simplex: draws from its regions, and clients' places in it."""

from itertools import permutations
from math import log, sqrt

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from golden import check
from isthmus.formulas.barycentric import lattice
from isthmus.formulas.vector import onto_simplex
from isthmus.methods.floco import server as placing
from isthmus.methods.floco import simplex
from isthmus.methods.floco.simplex import Region
from small import setting

F64 = torch.float64
CENTRE, EDGE, VERTEX = "centre", "edge", "vertex"
NEAR = "near a vertex"


def point(where: str, vertices: int) -> Tensor:
    alpha = {
        CENTRE: [1 / vertices] * vertices,
        EDGE: [0.5, 0.5] + [0.0] * (vertices - 2),
        VERTEX: [1.0] + [0.0] * (vertices - 1),
        NEAR: [0.9, 0.06, 0.04] + [0.0] * (vertices - 3),
    }[where]
    return torch.tensor(alpha, dtype=F64)


def region(alpha: Tensor, radius: float) -> Region:
    return Region(alpha, torch.tensor(radius, dtype=alpha.dtype))


def uniforms(count: int, vertices: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.rand(count, simplex.noise(vertices, "uniform"), generator=random, dtype=dtype)


def rejected(alpha: Tensor, radius: float, count: int) -> Tensor:
    """Draws from the whole simplex until enough draws are in the ball: slow, and plainly right."""
    random = torch.Generator().manual_seed(1)
    found = alpha.new_zeros(0, len(alpha))
    while len(found) < count:
        x = -torch.rand(10**6, len(alpha), generator=random, dtype=F64).log()
        x = x / x.sum(1, keepdim=True)
        found = torch.cat([found, x[(x - alpha).abs().sum(1) <= radius]])
    return found[:count]


class TestDraws:
    @pytest.mark.parametrize("vertices", [3, 4])
    @pytest.mark.parametrize("where", [CENTRE, EDGE, VERTEX, NEAR])
    def test_a_region_is_drawn_from_as_by_rejection(self, vertices: int, where: str) -> None:
        """Kolmogorov-Smirnov for every coordinate and the distance; chi^2 for which ones gained.

        6 tests at most in each of 8 cases, each with a false-alarm rate of 1e-6: a right sampler
        and another seed would fail once in 20,000 times. Of n = 5,000 draws of each kind, the
        distribution functions differ by more than sqrt(-log(p / 2) / n) = 0.054 at that rate, and
        chi^2 of k cells exceeds k + 2 sqrt(k x) + 2 x, with x = -log p, at less.
        """
        alpha, n, x = point(where, vertices), 5000, -log(1e-6)
        draws = [
            simplex.around(region(alpha, 0.5), uniforms(n, vertices)),
            rejected(alpha, 0.5, n),
        ]
        figures = [torch.cat([d, (d - alpha).abs().sum(1, keepdim=True)], 1).T for d in draws]
        for ours, plain in zip(*figures, strict=True):
            both = torch.cat([ours, plain]).sort().values
            shares = [
                torch.searchsorted(d.sort().values, both, right=True) / n for d in (ours, plain)
            ]
            assert (shares[0] - shares[1]).abs().max() < sqrt((x + log(2)) / n)
        bits = 2 ** torch.arange(vertices)
        gained = [((d > alpha) * bits).sum(1).bincount(minlength=2**vertices) for d in draws]
        often = gained[0] + gained[1] >= 20
        ours, plain = gained[0][often], gained[1][often]
        chi2, k = ((ours - plain) ** 2 / (ours + plain)).sum(), len(ours)
        assert chi2 < k + 2 * sqrt(k * x) + 2 * x

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_no_draw_leaves_the_simplex_or_the_ball(self, dtype: torch.dtype) -> None:
        """Sums of 7 numbers of about 1 err by 1e-15 in float64, and by 5e-7 in float32."""
        exact = 1e-12 if dtype == F64 else 1e-6
        random = torch.Generator().manual_seed(3)
        for seed in range(40):
            vertices = 2 + seed % 9
            alpha = torch.rand(vertices, generator=random, dtype=dtype) ** (1 + seed % 5)
            alpha = alpha * (torch.rand(vertices, generator=random) < 0.7)
            alpha[0] += 1e-3
            alpha = alpha / alpha.sum()
            radius = (0.01, 0.1, 0.5, 2.0)[seed % 4]
            draws = simplex.around(region(alpha, radius), uniforms(50, vertices, seed, dtype))
            assert draws.min() >= 0
            assert (draws.sum(1) - 1).abs().max() < exact
            assert (draws - alpha).abs().sum(1).max() <= radius + exact

    def test_uniforms_of_zero_and_one_are_points_too(self) -> None:
        """Double-precision uniforms become 1 in single precision once in 2^25 times."""
        for u in (torch.zeros, torch.ones):
            for alpha in (torch.full((4,), 0.25), torch.eye(4)[1]):
                draws = simplex.around(region(alpha, 0.1), u(1, simplex.noise(4, "uniform")))
                assert draws.sum() == pytest.approx(1, abs=1e-6)
                assert (draws - alpha).abs().sum() <= 0.1 + 1e-6
            assert simplex.uniform(u(1, 4))[0].tolist() == [0.25] * 4

    def test_where_no_proposal_is_inside_the_nearest_is_drawn_in(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A proposal (1.2, -0.2) from alpha = (0.8, 0.2) may go half its way, to (1, 0)."""
        outside = torch.tensor([[[1.2, -0.2], [1.4, -0.4]]], dtype=F64)
        monkeypatch.setattr(simplex, "PROPOSALS", 2)
        monkeypatch.setattr(simplex, "cover", lambda *_: outside)
        alpha = torch.tensor([0.8, 0.2], dtype=F64)
        draw = simplex.around(region(alpha, 1.0), torch.zeros(1, 14, dtype=F64))
        assert draw[0].tolist() == pytest.approx([1, 0], abs=1e-12)

    @pytest.mark.parametrize("drawn", ["uniform", "a ball that holds everything"])
    def test_the_whole_simplex_has_the_moments_of_the_uniform_law(self, drawn: str) -> None:
        """Mean 1/V, covariance (delta_ij / V - 1 / V^2) / (V + 1): here 1/4, 3/80 and -1/80.

        With n = 20,000 the means' deviation is sqrt(3/80/n) = 0.0014, that of the covariances below
        0.0005; five deviations of 14 numbers: a false alarm once in 100,000 seeds.
        """
        if drawn == "uniform":
            draws = simplex.uniform(uniforms(20_000, 4)[:, :4])
        else:
            draws = simplex.around(region(point(CENTRE, 4), simplex.WHOLE), uniforms(20_000, 4))
        assert (draws.mean(0) - 1 / 4).abs().max() < 0.007
        expected = (torch.eye(4) / 4 - 1 / 16) / 5
        assert (torch.cov(draws.T) - expected).abs().max() < 0.0025

    def test_a_block_of_clients_draws_as_each_of_them(self) -> None:
        alphas = torch.stack([point(w, 4) for w in (CENTRE, EDGE, VERTEX, NEAR)])
        radii = torch.tensor([0.1, 0.3, simplex.WHOLE, 0.1], dtype=F64)
        u = torch.stack([uniforms(20, 4, seed) for seed in range(4)])
        together = vmap(lambda alpha, radius, u: simplex.around(Region(alpha, radius), u))
        draws = together(alphas, radii, u)
        for k in range(4):
            apart = simplex.around(Region(alphas[k], radii[k]), u[k])
            assert (draws[k] - apart).abs().max() < 1e-14

    def test_the_authors_sampler_leaves_the_simplex(self) -> None:
        """At V = 7 and rho = 0.1 sums have deviation 0.025; at a vertex most draws are negative.

        Six coordinates are zero there: 63 of 64 draws push at least one of them below it.
        """
        u = torch.rand(5000, 8, generator=torch.Generator().manual_seed(0), dtype=F64)
        draws = simplex.as_released(region(point(VERTEX, 7), 0.1), u)
        assert draws.sum(1).std().item() == pytest.approx(0.025, abs=0.002)
        assert (draws.min(1).values < 0).double().mean().item() == pytest.approx(63 / 64, abs=0.01)
        assert (draws - point(VERTEX, 7)).abs().sum(1).max() <= 0.1
        whole = simplex.as_released(region(point(CENTRE, 7), simplex.WHOLE), u)
        assert torch.equal(whole, simplex.uniform(u[:, :7]))

    def test_a_lattice_has_the_vertices_and_begins_at_the_centre(self) -> None:
        for vertices, count in ((1, 1), (2, 15), (3, 16), (4, 11), (5, 16), (7, 8), (20, 21)):
            grid = lattice(vertices)
            assert grid.shape == (count, vertices)
            assert (grid[0] == 1 / vertices).all()
            assert torch.allclose(grid.sum(1), torch.ones(count))
            for vertex in torch.eye(vertices):
                assert (grid == vertex).all(1).any()


class TestProjection:
    def test_it_is_the_nearest_point(self) -> None:
        """It satisfies the conditions of the quadratic program: beta = max(kappa - tau, 0).

        That is: one tau for all positive entries, and kappa <= tau where beta is 0.
        """
        random = torch.Generator().manual_seed(0)
        kappa = torch.randn(50, 1, 6, generator=random, dtype=F64)
        z = torch.tensor([1e-4, 0.3, 1.0], dtype=F64)
        beta = onto_simplex(kappa, z)
        assert beta.shape == (50, 3, 6)
        assert beta.min() >= 0
        assert (beta.sum(-1) - z).abs().max() < 1e-12
        gap = kappa - beta
        tau = torch.where(beta > 0, gap, -torch.inf).amax(-1, keepdim=True)
        assert torch.where(beta > 0, (gap - tau).abs(), 0).max() < 1e-12
        assert torch.where(beta > 0, -torch.inf, gap - tau).max() < 1e-12

    def test_a_point_of_the_simplex_stays(self) -> None:
        alpha = simplex.uniform(uniforms(20, 5)[:, :5])
        again = onto_simplex(alpha, torch.tensor(1.0, dtype=F64))
        assert (again - alpha).abs().max() < 1e-14

    def test_the_energy_of_three_points_by_hand(self) -> None:
        """Squared distances 2, 1/2 and 1/2: the mean of 1/2, 2 and 2 is 3/2."""
        points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=F64)
        assert placing.energy(points).exp().item() == pytest.approx(1.5)
        both = placing.energy(points[[0, 0]])  # clipped at 1e-4
        assert both.exp().item() == pytest.approx(1e8)


def moves(clients: int = 12, width: int = 40, seed: int = 0) -> Tensor:
    """Two groups of clients whose vertices moved in two directions, and some noise."""
    random = torch.Generator().manual_seed(seed)
    groups = torch.randn(2, width, generator=random, dtype=F64)
    noise = torch.randn(clients, width, generator=random, dtype=F64)
    return 0.1 * groups[torch.arange(clients) % 2] + 0.01 * noise


class TestPlacing:
    def test_two_groups_of_clients_end_in_two_clusters(self) -> None:
        """Every client lies nearer to all of its group than to any of the other."""
        points, _ = placing.place(moves(), 4, "none")
        gaps = torch.cdist(points, points)
        same = (torch.arange(12)[:, None] - torch.arange(12)) % 2 == 0
        assert gaps[same].max() < gaps[~same].min()

    def test_points_follow_their_clients(self) -> None:
        order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
        points, projection = placing.place(moves(), 4, "none")
        permuted, other = placing.place(moves()[order], 4, "none")
        assert projection.z == other.z
        assert (permuted - points[order]).abs().max() < 1e-9

    def test_what_all_clients_have_in_common_changes_nothing(self) -> None:
        shift = torch.randn(40, generator=torch.Generator().manual_seed(2), dtype=F64)
        points, projection = placing.place(moves(), 4, "none")
        shifted, other = placing.place(moves() + shift, 4, "none")
        assert projection.z == other.z
        assert (shifted - points).abs().max() < 1e-9

    def test_the_largest_score_of_each_component_is_positive(self) -> None:
        """So -G gives the points of G: its scores get the same signs."""
        points, projection = placing.place(moves(), 4, "none")
        negative, other = placing.place(-moves(), 4, "none")
        assert (negative - points).abs().max() < 1e-9
        kappa = (moves() - projection.mean) @ projection.components.T
        assert (kappa.amax(0) == kappa.abs().amax(0)).all()
        assert (other.components + projection.components).abs().max() < 1e-9

    def test_three_clients_and_two_vertices_by_hand(self) -> None:
        """Moves (7, 8), (-2, -4), (-2, -4) have mean (1, 0): (6, 8) and twice (-3, -4) are left.

        The component is (0.6, 0.8), the scores are 10, -5 and -5; there is no second one. From
        (10, 0) all of beta goes to the first vertex, from (-5, 0) to the second, whatever z <= 1
        is: of equal energies the first, z = 1e-4, is taken. The mean move is at the centre.
        """
        three = torch.tensor([[7.0, 8.0], [-2.0, -4.0], [-2.0, -4.0]])
        points, projection = placing.place(three, 2, "none")
        assert points.tolist() == [[1, 0], [0, 1], [0, 1]]
        assert projection.z.item() == pytest.approx(1e-4)
        assert projection.components[0].tolist() == pytest.approx([0.6, 0.8])
        assert projection.components[1].tolist() == [0, 0]
        assert projection(torch.tensor([1.0, 0.0])).tolist() == [0.5, 0.5]

    def test_z_is_the_one_of_least_energy_on_the_grid(self) -> None:
        """Sought again without any vectors: one z and one client at a time."""
        points, projection = placing.place(moves(6), 3, "max")
        kappa = ((moves(6) - projection.mean) @ projection.components.T / projection.scale).tolist()

        def projected(scores: list[float], z: float) -> list[float]:
            ordered = sorted(scores, reverse=True)
            q = max(j for j in (1, 2, 3) if ordered[j - 1] - (sum(ordered[:j]) - z) / j > 0)
            tau = (sum(ordered[:q]) - z) / q
            return [max(score - tau, 0) / z for score in scores]

        def energy(places: list[list[float]]) -> float:
            pairs = [
                sum((a - b) ** 2 for a, b in zip(*pair, strict=True))
                for pair in permutations(places, 2)
            ]
            return sum(1 / max(gap, 1e-8) for gap in pairs)

        grid = torch.linspace(1e-4, 1, 1000, dtype=F64).tolist()
        best = min(grid, key=lambda z: energy([projected(scores, z) for scores in kappa]))
        assert projection.z.item() == pytest.approx(best, abs=1e-12)
        expected = torch.tensor([projected(scores, best) for scores in kappa], dtype=F64)
        assert (points - expected).abs().max() < 1e-9

    def test_scaled_scores_place_moves_of_any_size_alike(self) -> None:
        points, _ = placing.place(moves(), 4, "max")
        larger, projection = placing.place(1000 * moves(), 4, "max")
        assert (larger - points).abs().max() < 1e-6
        assert (projection(1000 * moves()) - points).abs().max() < 1e-6

    def test_scores_that_are_large_against_z_send_clients_to_vertices(self) -> None:
        points, projection = placing.place(1000 * moves(), 4, "none")
        assert (points.amax(1) > 0.999).sum() > 8
        check(placing.remarks(points, 15, projection))

    def test_an_end_of_the_grid_is_remarked_on(self) -> None:
        points, projection = placing.place(moves(), 4, "none")
        for end, warned in ((1e-4, True), (0.5, False), (1.0, True)):
            here = projection._replace(z=torch.tensor(end))
            assert ("end of the grid" in placing.remarks(points, 12, here)) == warned

    def test_fewer_clients_than_vertices_differ_in_fewer_ways(self) -> None:
        """Three clients differ in two directions: the other coordinates are all the same."""
        points, projection = placing.place(moves(3), 5, "none")
        assert points.shape == (3, 5)
        assert (projection.components[2:] == 0).all()
        assert (points[:, 3] == points[:, 4]).all()
        check(placing.remarks(points, 3, projection))

    def test_one_client_is_placed_at_the_centre(self) -> None:
        points, _ = placing.place(moves(1), 4, "max")
        assert points.tolist() == [[0.25] * 4]

    def test_the_kept_projection_places_clients_as_they_were(self) -> None:
        points, projection = placing.place(moves().float(), 4, "none")
        assert (projection(moves().float()) - points).abs().max() < 1e-4


def test_a_simplex_has_no_weight_that_nobody_uses() -> None:
    """P parameters, of which H are there V times."""
    task = setting("floco").task
    theta = simplex.start(task, 5)
    size = task.model.weight.stop - task.model.weight.start
    assert theta.flat().shape == (task.model.size + 4 * size,)
    assert torch.equal(theta.at(torch.eye(5)[0]), task.w0)
    first, second = theta.vertices[0], theta.vertices[1]
    assert not torch.equal(first, second)
