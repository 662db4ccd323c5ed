"""Networks by name: functions of the inputs' shape and the number of classes."""

from importlib import import_module
from typing import Any

from isthmus.system.plugins import Registry

MODELS = Registry(
    "isthmus.models",
    {
        "mlp": "isthmus.models.plain:mlp",
        "twonn": "isthmus.models.plain:twonn",
        "twonn_superfed": "isthmus.models.plain:twonn_superfed",
        "twocnn": "isthmus.models.plain:twocnn",
        "twocnn_superfed": "isthmus.models.plain:twocnn_superfed",
        "cnn": "isthmus.models.convolutional:cnn",
        "cnn5": "isthmus.models.convolutional:cnn5",
        "lenet5": "isthmus.models.convolutional:lenet5",
        "lenet5_sixth": "isthmus.models.convolutional:lenet5_sixth",
        "simplecnn": "isthmus.models.convolutional:simplecnn",
        "simplecnn_femnist": "isthmus.models.convolutional:simplecnn_femnist",
        "vgg9": "isthmus.models.convolutional:vgg9",
        "resnet9": "isthmus.models.residual:resnet9",
        "resnet9_superfed": "isthmus.models.residual:resnet9_superfed",
        "mobilenet": "isthmus.models.residual:mobilenet",
        "mobilenet_superfed": "isthmus.models.residual:mobilenet_superfed",
        "resnet18": "isthmus.models.imagenet:resnet18",
        "squeezenet": "isthmus.models.imagenet:squeezenet",
        "stackedlstm": "isthmus.models.recurrent:stackedlstm",
        "stackedlstm_superfed": "isthmus.models.recurrent:stackedlstm_superfed",
        "transformer": "isthmus.models.attention:transformer",
        "vit": "isthmus.models.vit:vit",
    },
)

_HOMES = {
    "lora": "isthmus.models.adapters",
    "merge": "isthmus.models.adapters",
    "start_from": "isthmus.models.weight_files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isthmus.models' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
