"""A model as two files: its parameters or its program, and a card in JSON that says what it is.

    predict = load("models/client-7.json")  # or .onnx, .pt2, or a folder with one model
    predict({"age": [41, 63], "ward": ["x", "z"]})  # [2, C]; predict.labels names the classes

Reading them needs torch, safetensors and the network's definition, and nothing that trains.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import nn

from isthmus.errors import IsthmusError
from isthmus.models import MODELS
from isthmus.models.ensemble import Ensemble
from isthmus.models.imagenet import drop_weights_file
from isthmus.models.portable import FORMATS, Deployed, read_program, run_module
from isthmus.models.predictor import Predictor
from isthmus.system.files import write_bytes, write_text


def pack(module: nn.Module) -> bytes:
    """Write the tensors of a module as safetensors."""
    tensors = {key: value.clone() for key, value in module.state_dict().items()}  # none is shared
    return safetensors.torch.save(tensors)


def save(packed: bytes, card: Mapping[str, Any], folder: Path, name: str) -> Path:
    """Write a model's file and NAME.json into a folder; return the card's path."""
    path = folder / f"{name}.json"
    write_bytes(folder / card["file"], packed)
    write_text(path, json.dumps(card, indent=2) + "\n")
    return path


def load(path: Path | str, build: Callable[[], nn.Module] | None = None) -> Predictor:
    """Read an exported model: its card, its file, or a folder that has one of them alone.

    It takes data as they came to probabilities. `build` makes a custom network, as in
    `load_network`; files of `torch` and `onnx` need none.
    """
    place = Path(path)
    if place.is_dir():
        found = sorted(place.glob("*.json"))
        if len(found) != 1:
            raise IsthmusError(f"{place} has {len(found)} model cards; name the one to load")
        (place,) = found
    try:
        card = json.loads(place.with_suffix(".json").read_text("utf-8"))
        form = {end: name for name, end in FORMATS.items()}.get(place.suffix)
        form = form or card.get("format", "safetensors")
        if form == "safetensors":
            network = load_network(place.with_suffix(".json"), build)
            return Predictor(card, run_module(Deployed(network, card)))
        packed = place.with_suffix(FORMATS[form]).read_bytes()
    except IsthmusError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IsthmusError(
            f"{place} cannot be read ({error}); a model card and its file must lie side by side; "
            "export the model again"
        ) from None
    return Predictor(card, read_program(packed, form))


def load_network(card: Path | str, build: Callable[[], nn.Module] | None = None) -> nn.Module:
    """Read a network from its card and the file beside it; `build` makes a custom one.

    Of two networks side by side it makes both: load_network(card, lambda: Ensemble(first(),
    second())). Its inputs are those of the data divided by the card's `scale`.
    """
    path = Path(card)
    try:
        content = json.loads(path.read_text("utf-8"))
        wanted = [content["model"], *([content["beside"]] if content.get("beside") else [])]
        names = {each["name"] for each in wanted}
        tensors = safetensors.torch.load_file(path.with_suffix(".safetensors"))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise IsthmusError(
            f"{path} cannot be read ({error}); a model card and its .safetensors file must lie "
            "side by side; export the model again"
        ) from None
    if build is None and not MODELS.keys() >= names:
        raise IsthmusError(
            f"{path} describes a custom network; pass the function that builds it as build=..."
        )
    module = build() if build else _build(wanted, tuple(content["shape"]), content["classes"])
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise IsthmusError(
            f"{path} does not fit its network ({reason[:120]}); export the model again"
        ) from None
    return module.eval()


def _build(wanted: Sequence[Mapping[str, Any]], shape: tuple[int, ...], classes: int) -> nn.Module:
    networks = [
        MODELS[each["name"]](
            shape, classes, **drop_weights_file({k: v for k, v in each.items() if k != "name"})
        )
        for each in wanted
    ]
    return Ensemble(networks[0], networks[1]) if len(networks) > 1 else networks[0]
