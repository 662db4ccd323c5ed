"""The steps of a client are counted from a few of them."""

from collections.abc import Callable, Iterator

import pytest
import torch

from isthmus import Experiment
from isthmus.client import Batch
from isthmus.engines.compiled import Compiled, has_compiler, list_known, load_passes
from isthmus.models import MODELS
from isthmus.models.flat import Flat
from isthmus.run import sampler
from isthmus.run.forecast import LASTS, count_rounds
from isthmus.run.sampler import KEPT, MOST, StepSampler


class Stopwatch:
    """A step that takes 2 seconds and 0.1 for each example, 5 more the first time; and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0

    def __call__(self, carry: torch.Tensor, batch: Batch) -> torch.Tensor:
        self.now += 2 + 0.1 * len(batch.y) + (0 if self.steps else 5)
        self.steps += 1
        return carry + 1


def make_batches(count: int) -> Iterator[Batch]:
    y = torch.zeros(10, dtype=torch.int64)
    return (Batch(torch.zeros(10, 3), y, torch.zeros(0), torch.arange(10)) for _ in range(count))


def sample(count: int, will_compile: bool) -> tuple[float, Stopwatch]:
    step = Stopwatch()
    counting = StepSampler(10, Compiled(10, layers=1) if will_compile else None)
    counting.clock = lambda: step.now
    counting.fold(step, torch.zeros(()), make_batches(count), n=100)
    return step.now + counting.ahead, step


def test_all_steps_are_counted_and_few_are_taken() -> None:
    """1,000 steps of 3 seconds; what torch takes to prepare itself is not of every step."""
    seconds, step = sample(1000, will_compile=False)
    assert seconds == pytest.approx(3000)
    assert step.steps <= MOST


def test_compiling_saves_what_does_not_grow_with_the_batch() -> None:
    """Of a step of 3 seconds 1 is for ten examples, and 2 are whatever the batch."""
    seconds, _ = sample(1000, will_compile=True)
    assert seconds == pytest.approx(1000 * (1 + KEPT * 2))


@pytest.mark.skipif(load_passes() is None, reason=f"made for the compiler of {list_known()}")
@pytest.mark.skipif(not has_compiler(), reason="there is no C++ compiler")
def test_pooling_saves_what_it_takes_apart_less_what_it_takes_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LeNet-5 takes 10 seconds, of these its two pooled convolutions 4 and 3, and 1 and 2 fused."""
    given, images = [], torch.randn(2, 3, 32, 32)

    def take(run: Callable[[], torch.Tensor], inputs: list[torch.Tensor]) -> float:
        run()
        given.append(len(inputs))
        return [10.0, 4.0, 1.0, 3.0, 2.0][len(given) - 1]

    monkeypatch.setattr(sampler, "_time_gradient", take)
    assert sampler.pool_time(Flat(lambda: MODELS["lenet5"]((3, 32, 32), 10)), images) == 0.6
    assert given[1:] == [2, 2, 3, 3], "nobody wants the gradient of the data"
    assert sampler.pool_time(Flat(lambda: MODELS["twonn"]((3, 32, 32), 10)), images) == 1.0


def test_what_is_timed_to_tell_what_pooling_saves_is_no_client_s_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the second that ten examples take is saved; timing that took 100 seconds."""
    step = Stopwatch()

    def pool_time(network: Flat, x: torch.Tensor) -> float:
        step.now += 100
        return 0.5

    monkeypatch.setattr(sampler, "pool_time", pool_time)
    network = Flat(lambda: MODELS["lenet5"]((3, 32, 32), 10))
    counting = StepSampler(10, Compiled(10, layers=1), network=network)
    counting.clock = lambda: step.now
    counting.fold(step, torch.zeros(()), make_batches(1000), n=100)
    assert step.now + counting.ahead == pytest.approx(1000 * (0.5 + KEPT * 2))


def test_a_client_without_batches_takes_no_time() -> None:
    assert sample(0, will_compile=True)[0] == 0


@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        ({"name": "local"}, LASTS * 10),
        ({"name": "local", "patience": 3}, LASTS * 3),
        ({"name": "local", "patience": 300}, 500),
        ({"name": "local", "budget": "participation"}, 500),
        ({"name": "fedavg"}, 500),
    ],
)
def test_who_stops_by_itself_does_not_train_to_the_end(
    method: dict[str, object], rounds: float
) -> None:
    assert count_rounds(Experiment(method=method, rounds=500)) == pytest.approx(rounds)
