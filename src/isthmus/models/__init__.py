"""Networks by name: functions of the inputs' shape and the number of classes."""

from collections.abc import Callable

from torch import nn

from isthmus.models.adapters import lora, merge
from isthmus.models.attention import transformer
from isthmus.models.convolutional import (
    cnn,
    cnn5,
    lenet5,
    lenet5_sixth,
    simplecnn,
    simplecnn_femnist,
    vgg9,
)
from isthmus.models.imagenet import resnet18, squeezenet
from isthmus.models.plain import mlp, twocnn, twocnn_superfed, twonn, twonn_superfed
from isthmus.models.recurrent import stackedlstm, stackedlstm_superfed
from isthmus.models.residual import mobilenet, mobilenet_superfed, resnet9, resnet9_superfed
from isthmus.models.vit import vit
from isthmus.models.weight_files import start_from

__all__ = ["MODELS", "lora", "merge", "start_from"]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "twonn": twonn,
    "twonn_superfed": twonn_superfed,
    "twocnn": twocnn,
    "twocnn_superfed": twocnn_superfed,
    "cnn": cnn,
    "cnn5": cnn5,
    "lenet5": lenet5,
    "lenet5_sixth": lenet5_sixth,
    "simplecnn": simplecnn,
    "simplecnn_femnist": simplecnn_femnist,
    "vgg9": vgg9,
    "resnet9": resnet9,
    "resnet9_superfed": resnet9_superfed,
    "mobilenet": mobilenet,
    "mobilenet_superfed": mobilenet_superfed,
    "resnet18": resnet18,
    "squeezenet": squeezenet,
    "stackedlstm": stackedlstm,
    "stackedlstm_superfed": stackedlstm_superfed,
    "transformer": transformer,
    "vit": vit,
}
