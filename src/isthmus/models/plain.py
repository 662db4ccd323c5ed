"""Plain networks. "|" marks where the classifier block begins: body | head.

The ones that end in `_superfed` are those of the SuPerFed authors' code: without biases, drawn
Xavier-normal. The others are the networks that their names mean in the literature.
"""

from math import prod

from torch import nn

from isthmus.models.blocks import build_network, draw_xavier, pool, read_image_shape, stack_linear
from isthmus.ranges import PositiveInt


def mlp(shape: tuple[int, ...], classes: int, *, hidden: PositiveInt = 64) -> nn.Module:
    """One hidden layer: inputs-hidden | hidden-classes, ReLU, biases."""
    return build_network(
        nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), hidden), nn.ReLU()),
        nn.Linear(hidden, classes),
    )


def twonn(shape: tuple[int, ...], classes: int, *, hidden: PositiveInt = 200) -> nn.Module:
    """McMahan's 2NN: inputs-200-200 | 200-classes, ReLU, biases; 199,210 parameters on MNIST."""
    return build_network(
        nn.Sequential(nn.Flatten(), *stack_linear(prod(shape), hidden, hidden), nn.ReLU()),
        nn.Linear(hidden, classes),
    )


def twonn_superfed(shape: tuple[int, ...], classes: int) -> nn.Module:
    """SuPerFed's TwoNN: inputs-200-200 | 200-200-classes; 238,800 parameters on MNIST."""
    return draw_xavier(
        build_network(
            nn.Sequential(
                nn.Flatten(), *stack_linear(prod(shape), 200, 200, bias=False), nn.ReLU()
            ),
            nn.Sequential(*stack_linear(200, 200, classes, bias=False)),
        )
    )


def twocnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """McMahan's CNN: conv5x5-32, pool, conv5x5-64, pool, 512 | classes; ReLU, biases, padding 2."""
    channels, height, width = read_image_shape("twocnn", shape, least=4)
    return build_network(
        nn.Sequential(
            *pool(nn.Conv2d(channels, 32, 5, padding=2)),
            *pool(nn.Conv2d(32, 64, 5, padding=2)),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), 512),
            nn.ReLU(),
        ),
        nn.Linear(512, classes),
    )


def twocnn_superfed(shape: tuple[int, ...], classes: int) -> nn.Module:
    """SuPerFed's TwoCNN: two 5x5 convolutions | 200-200-classes; 722,800 on 3x28x28."""
    channels, height, width = read_image_shape("twocnn_superfed", shape, least=6)

    def halve(size: int) -> int:
        return (size - 2) // 2 + 1  # 5x5 with padding 1, then pooling by 2 with padding 1

    features = 64 * halve(halve(height)) * halve(halve(width))
    return draw_xavier(
        build_network(
            nn.Sequential(
                *pool(nn.Conv2d(channels, 32, 5, padding=1, bias=False), padding=1),
                *pool(nn.Conv2d(32, 64, 5, padding=1, bias=False), padding=1),
                nn.Flatten(),
            ),
            nn.Sequential(*stack_linear(features, 200, 200, classes, bias=False)),
        )
    )
