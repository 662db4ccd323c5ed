"""Convolutional networks without normalisation. "|" marks where the classifier block begins."""

from math import sqrt

from torch import nn

from isthmus.errors import IsthmusError
from isthmus.models.blocks import (
    build_network,
    draw_xavier,
    pool,
    read_image_shape,
    stack_linear,
    zero_biases,
)

POOL_AND_KERNEL = {28: (2, 2), 32: (2, 3), 64: (3, 2)}  # of cnn5, by the side of the image
LENET5 = (6, 16, 120)  # channels, channels, hidden width


def cnn5(shape: tuple[int, ...], classes: int) -> nn.Module:
    """SuPerFed v1's CNN: conv-32-64-32, 512 | classes; 94,186 on CIFAR-10."""
    channels, height, width = read_image_shape("cnn5", shape, least=28)
    if height != width or height not in POOL_AND_KERNEL:
        raise IsthmusError(
            f"cnn5 was given images of {height} x {width}, and takes 28 x 28, 32 x 32 or 64 x "
            "64; set model=cnn"
        )
    size, kernel = POOL_AND_KERNEL[height]
    body = nn.Sequential(
        *pool(nn.Conv2d(channels, 32, 5), size),
        *pool(nn.Conv2d(32, 64, 5), size),
        *pool(nn.Conv2d(64, 32, kernel), size),
        nn.Flatten(),
        nn.Linear(32, 512),  # the authors' 1x1 convolution: the map is one place wide
        nn.ReLU(),
    )
    return zero_biases(draw_xavier(build_network(body, nn.Linear(512, classes))))


def lenet5(shape: tuple[int, ...], classes: int) -> nn.Module:
    """FedSimSup's LeNet-5: conv5x5-6-16, 120 | classes; 52,202 on CIFAR-10."""
    return _lenet5("lenet5", shape, classes, LENET5)


def lenet5_sixth(shape: tuple[int, ...], classes: int) -> nn.Module:
    """FedSimSup's supervisor, a sixth of LeNet-5; 8,744 on CIFAR-10.

    Parameters grow with the square of the widths, so channels shrink by sqrt(1/6), to multiples of
    three: 6 and 16 become 3 and 6. The hidden width is the multiple of ten that brings the count
    closest to a sixth: 50 on CIFAR-10, 40 on CIFAR-100. No factor that all three share rounds to
    these: 3 of 6 channels ask for one above 0.41, 6 of 16 for one below.
    """
    read_image_shape("lenet5_sixth", shape, least=16)
    first, second = (3 * round(width * sqrt(1 / 6) / 3) for width in LENET5[:2])
    wanted = _lenet5_size(shape, classes, LENET5) / 6

    def distance(hidden: int) -> float:
        return abs(_lenet5_size(shape, classes, (first, second, hidden)) - wanted)

    hidden = min(range(10, LENET5[2], 10), key=distance)
    return _lenet5("lenet5_sixth", shape, classes, (first, second, hidden))


def _lenet5(
    name: str, shape: tuple[int, ...], classes: int, widths: tuple[int, int, int]
) -> nn.Module:
    channels, height, width = read_image_shape(name, shape, least=16)
    first, second, hidden = widths
    return build_network(
        nn.Sequential(
            *pool(nn.Conv2d(channels, first, 5)),
            *pool(nn.Conv2d(first, second, 5)),
            nn.Flatten(),
            nn.Linear(second * _halve_twice(height) * _halve_twice(width), hidden),
            nn.ReLU(),
        ),
        nn.Linear(hidden, classes),
    )


def _lenet5_size(shape: tuple[int, ...], classes: int, widths: tuple[int, int, int]) -> int:
    channels, height, width = shape
    first, second, hidden = widths
    places = _halve_twice(height) * _halve_twice(width)
    convolutions = (25 * channels + 1) * first + (25 * first + 1) * second
    return convolutions + (places * second + 1) * hidden + (hidden + 1) * classes


def _halve_twice(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2  # 5x5 without padding and pooling by 2, twice


def simplecnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """FLOCO's CNN: conv-16-32-64, 128 | classes; 107,690 on CIFAR-10."""
    channels, height, width = read_image_shape("simplecnn", shape, least=16)

    def reduce(size: int) -> int:
        return ((size - 4) // 2 - 2) // 4  # 5x5; 5x5 with padding 1; 3x3 with padding 1

    return draw_xavier(
        build_network(
            nn.Sequential(
                *pool(nn.Conv2d(channels, 16, 5), activation=nn.LeakyReLU),
                *pool(nn.Conv2d(16, 32, 5, padding=1), activation=nn.LeakyReLU),
                *pool(nn.Conv2d(32, 64, 3, padding=1), activation=nn.LeakyReLU),
                nn.Flatten(),
                nn.Linear(64 * reduce(height) * reduce(width), 128),
                nn.LeakyReLU(),
            ),
            nn.Linear(128, classes),
        )
    )


def simplecnn_femnist(shape: tuple[int, ...], classes: int) -> nn.Module:
    """FLOCO's CNN for FEMNIST: conv5x5-16-32 | classes; 45,054."""
    channels, height, width = read_image_shape("simplecnn_femnist", shape, least=16)
    return draw_xavier(
        build_network(
            nn.Sequential(
                *pool(nn.Conv2d(channels, 16, 5), activation=nn.LeakyReLU),
                *pool(nn.Conv2d(16, 32, 5), activation=nn.LeakyReLU),
                nn.Flatten(),
            ),
            nn.Linear(32 * _halve_twice(height) * _halve_twice(width), classes),
        )
    )


def vgg9(shape: tuple[int, ...], classes: int) -> nn.Module:
    """SuPerFed's VGG9: 3x3 convolutions | 256-classes; 1,718,416 on FEMNIST."""
    channels, height, width = read_image_shape("vgg9", shape, least=16)
    layers: list[nn.Module] = []
    for stage in ((16,), (32,), (64, 128), (256, 512)):
        for outputs in stage:
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.ReLU()]
            channels = outputs
        layers.append(nn.MaxPool2d(2))
    return draw_xavier(
        build_network(
            nn.Sequential(*layers, nn.Flatten()),
            nn.Sequential(
                *stack_linear(512 * (height // 16) * (width // 16), 256, classes, bias=False)
            ),
        )
    )


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Small, of 3x3 convolutions: 16-32-64 | classes; 33,834 on CIFAR-10."""
    channels, height, width = read_image_shape("cnn", shape, least=8)
    return build_network(
        nn.Sequential(
            *pool(nn.Conv2d(channels, 16, 3, padding=1)),
            *pool(nn.Conv2d(16, 32, 3, padding=1)),
            *pool(nn.Conv2d(32, 64, 3, padding=1)),
            nn.Flatten(),
        ),
        nn.Linear(64 * (height // 8) * (width // 8), classes),
    )
