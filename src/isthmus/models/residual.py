"""Networks of the SuPerFed code that normalise: ResNet9 and MobileNet.

The ones that end in `_superfed` normalise by batch statistics, in training and in evaluation, as
the authors' do. No layer but the normalisation has a bias; weights are drawn Xavier-normal.
"""

from typing import Literal

from torch import Tensor, nn

from isthmus.models.blocks import (
    Average,
    build_network,
    draw_xavier,
    read_image_shape,
    stack_linear,
)
from isthmus.models.normalisation import NORMS, Norm


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is the identity where the shape stays.

    Its parts are called as in torchvision.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, skip: bool = True):
        nn.Module.__init__(self)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = NORMS[norm](outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = NORMS[norm](outputs)
        self.downsample: nn.Module | None = None
        if (inputs, stride) != (outputs, 1):
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), NORMS[norm](outputs)
            )
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        """Return maps [B, outputs, ...] of maps [B, inputs, ...]."""
        y: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        if self.skip:
            y = y + (x if self.downsample is None else self.downsample(x))
        return y.relu()


def resnet9(
    shape: tuple[int, ...], classes: int, *, norm: Literal["group", "batch"] = "group"
) -> nn.Module:
    """Residual blocks 64-128-256-512 | 256-classes; 5,054,784 on CIFAR-100."""
    return _resnet9("resnet9", shape, classes, norm, skip=True)


def resnet9_superfed(shape: tuple[int, ...], classes: int) -> nn.Module:
    """SuPerFed's ResNet9: batch statistics, no skip in block one."""
    return _resnet9("resnet9_superfed", shape, classes, "batch", skip=False)


def _resnet9(
    name: str, shape: tuple[int, ...], classes: int, norm: Norm, *, skip: bool
) -> nn.Module:
    channels, _, _ = read_image_shape(name, shape, least=8)
    return draw_xavier(
        build_network(
            nn.Sequential(
                nn.Conv2d(channels, 64, 3, 2, padding=1, bias=False),
                NORMS[norm](64),
                nn.ReLU(),
                nn.MaxPool2d(3, 2, padding=1),
                Residual(64, 64, 1, norm, skip),
                Residual(64, 128, 1, norm),
                Residual(128, 256, 2, norm),
                Residual(256, 512, 2, norm),
            ),
            _make_classifier(classes),
        )
    )


def mobilenet(
    shape: tuple[int, ...], classes: int, *, norm: Literal["group", "batch"] = "group"
) -> nn.Module:
    """Separable blocks 64-128-256-512 | 256-classes; 364,480 on TinyImageNet."""
    return _mobilenet("mobilenet", shape, classes, norm)


def mobilenet_superfed(shape: tuple[int, ...], classes: int) -> nn.Module:
    """SuPerFed's MobileNet: batch statistics."""
    return _mobilenet("mobilenet_superfed", shape, classes, "batch")


def _mobilenet(name: str, shape: tuple[int, ...], classes: int, norm: Norm) -> nn.Module:
    channels, _, _ = read_image_shape(name, shape, least=33)  # the 3x3 convolutions are not padded
    layers = [nn.Conv2d(channels, 32, 3, 2, padding=1, bias=False), NORMS[norm](32), nn.ReLU()]
    for inputs, outputs, stride in ((32, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 1)):
        layers += [
            nn.Conv2d(inputs, inputs, 3, stride, groups=inputs, bias=False),
            NORMS[norm](inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            NORMS[norm](outputs),
            nn.ReLU(),
        ]
    return draw_xavier(build_network(nn.Sequential(*layers), _make_classifier(classes)))


def _make_classifier(classes: int) -> nn.Module:
    return nn.Sequential(Average(2, 3), *stack_linear(512, 256, classes, bias=False))
