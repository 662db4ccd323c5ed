"""Adapters of low rank, a vision transformer, and weights from files for networks of one's own."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import isthmus
from golden import check, raises
from isthmus import Experiment, Federation, IsthmusError, federate
from isthmus.models import MODELS, lora, merge, start_from
from isthmus.models.flat import Flat
from isthmus.run.export import export
from isthmus.run.record import read

SHAPE = (1, 8, 8)


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_adapters_and_the_head_are_all_that_is_trained() -> None:
    """Rank 2: 2 * (6 + 5) + 2 * (5 + 4) = 40, and the head's 4 * 3 + 3 = 15."""
    flat = Flat(lora(layers, rank=2))
    assert flat.size == 55
    assert flat.head == slice(40, 55)


def test_a_network_with_fresh_adapters_is_the_network_itself() -> None:
    torch.manual_seed(0)
    network, x = layers(), draw(7, 6)
    assert torch.equal(lora(network, rank=2)()(x), network(x))


def test_merged_adapters_compute_the_same() -> None:
    flat, x = Flat(lora(layers, rank=2)), draw(7, 6)
    module = flat.load(draw(55, seed=2))
    merged = merge(module)
    assert (merged(x) - module(x)).abs().max() < 1e-5
    assert [type(part) for part in merged] == [type(part) for part in layers()]


def test_targets_choose_layers_by_name() -> None:
    module = lora(layers, rank=2, targets=["2"])()
    trained = [name for name, p in module.named_parameters() if p.requires_grad]
    assert trained == ["2.down", "2.up", "4.weight", "4.bias"]
    with raises(IsthmusError):
        lora(layers, targets=["*.qkv"])()
    with raises(IsthmusError):
        lora(layers, rank=0)


class Reader(nn.Module):
    """What people write for texts: torch's own encoder over tokens [B, 6]."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.2)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.encoder(self.embed(x)).mean(1))
        return outputs


def test_what_attention_reads_and_never_calls_has_adapters_too() -> None:
    """In evaluation torch reads the matrices of a whole encoder layer and calls none of it."""
    torch.manual_seed(0)
    network, x = Reader().eval(), torch.arange(12).view(2, 6)
    build = lora(network, rank=1)
    held = (
        "linear1",
        "linear2",
        "self_attn.out_proj",
        "self_attn.parametrizations.in_proj_weight.0",
    )
    adapted = [n for n, _ in build().named_parameters() if n.endswith("down")]
    assert sorted(adapted) == [f"encoder.layers.{k}.{name}.down" for k in (0, 1) for name in held]
    flat = Flat(build)
    assert flat.size == 2 * ((8 + 24) + (8 + 8) + (8 + 16) + (16 + 8)) + 18
    module = flat.load(draw(flat.size))
    for grad in (False, True):  # torch takes another way where gradients may be asked for
        with torch.set_grad_enabled(grad):
            assert torch.equal(build().eval()(x), network(x))
            assert (module(x) - network(x)).abs().max() > 0.1
            merged = merge(module)
            assert (merged(x) - module(x)).abs().max() < 1e-5
    assert {type(part) for part in merged.modules()} == {type(part) for part in network.modules()}


def test_attention_of_three_matrices_has_three_adapters() -> None:
    attention = nn.MultiheadAttention(8, 2, kdim=4, vdim=6)
    network = nn.ModuleDict({"attention": attention, "head": nn.Linear(8, 2)})
    module = lora(network, rank=1, targets=["*.q_proj", "*.v_proj"])()
    trained = [name for name, p in module.named_parameters() if p.requires_grad]
    assert [name.split(".")[2] for name in trained[:4:2]] == ["q_proj_weight", "v_proj_weight"]
    query, key, value = draw(3, 1, 8), draw(5, 1, 4), draw(5, 1, 6)
    given = module["attention"](query, key, value)[0]
    assert torch.equal(given, attention(query, key, value)[0])
    assert merge(module)["attention"].q_proj_weight.shape == (8, 8)


@pytest.mark.parametrize("method", ["fedavg", "superfed-mm", "floco", "ditto"])
def test_methods_train_adapters_of_a_text_transformer(method: str, tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 20, (90, 6))
    data = Federation.of(x, (x[:, 2] > 9).astype(int), np.arange(90) % 3, tokens=True)
    given = {"rounds": 1, "epochs": 1, "clients_per_round": 3, "batch_size": 30}
    experiment, build = Experiment(method=method, data="own", **given), lora(Reader, rank=2)
    run = federate(experiment, data=data, model=build, workers=1, out=tmp_path / "run")
    assert run.setting.task.model.size < 0.5 * Flat(Reader).size
    with isthmus.open(tmp_path / "run", data=data, model=build) as opened:
        assert opened.client(1).top1() == run.evaluation("personal").figures.top1[1]


@pytest.mark.parametrize("method", ["fedavg", "superfed-mm", "floco", "ditto"])
def test_methods_train_adapters_and_send_no_more(method: str, tmp_path: Path) -> None:
    model = {"name": "vit", "width": 16, "depth": 2, "heads": 2}
    given = {"method": method, "data": "digits", "rounds": 1, "epochs": 1, "clients": 4}
    given |= {"clients_per_round": 2, "batch_size": 100}
    runs = {
        train: federate(
            Experiment(**given, model=model | {"train": train, "rank": 2}),
            out=tmp_path / train,
            workers=1,
        )
        for train in ("all", "adapters")
    }
    sizes = {train: run.setting.task.model.size for train, run in runs.items()}
    body = 2 * 2 * ((16 + 48) + (16 + 16) + (16 + 64) + (64 + 16))  # rank 2, two blocks
    assert sizes["adapters"] == body + 16 * 10 + 10
    assert sizes["all"] > 5 * sizes["adapters"]
    sent = {train: read(tmp_path / train).rounds.up_bytes[0] for train in runs}
    assert sent["adapters"] < sent["all"] / 2, "FLOCO sends seven heads"
    assert runs["adapters"].evaluation("personal").figures.loss.max() < 10


def test_a_vision_transformer_takes_the_names_of_timm(tmp_path: Path) -> None:
    module = MODELS["vit"](SHAPE, 3, width=16, depth=1, heads=2)
    named = {
        name.removeprefix("body.").replace("classifier.", "head."): draw(*tensor.shape)
        for name, tensor in module.state_dict().items()
    }
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.bias"} <= {
        *named
    }
    assert {"blocks.0.norm1.weight", "blocks.0.mlp.fc2.weight", "norm.bias", "head.bias"} <= {
        *named
    }
    safetensors.torch.save_file(named, tmp_path / "vit.safetensors")
    options = {"width": 16, "depth": 1, "heads": 2, "weights": str(tmp_path / "vit.safetensors")}
    loaded = MODELS["vit"](SHAPE, 3, **options)
    assert torch.equal(loaded.state_dict()["body.pos_embed"], named["pos_embed"])
    other = MODELS["vit"](SHAPE, 5, **options)
    assert torch.equal(other.state_dict()["body.pos_embed"], named["pos_embed"])
    with raises(IsthmusError):
        MODELS["vit"](SHAPE, 3, **options | {"width": 32})


def test_a_network_that_makes_no_sense_is_refused() -> None:
    with raises(IsthmusError):
        MODELS["vit"](SHAPE, 3, patch=3)
    with raises(IsthmusError):
        MODELS["vit"](SHAPE, 3, width=10)


def save(path: Path, prefix: str = "", **changes: Tensor) -> dict[str, Tensor]:
    tensors = {name: draw(*t.shape, seed=9) for name, t in layers().state_dict().items()} | changes
    safetensors.torch.save_file({prefix + name: t for name, t in tensors.items()}, path)
    return tensors


def test_weights_of_a_file_enter_a_network_of_one_s_own(tmp_path: Path) -> None:
    for prefix in ("", "model."):
        tensors = save(tmp_path / "w.safetensors", prefix)
        loaded = start_from(layers, tmp_path / "w.safetensors")().state_dict()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_a_file_that_is_written_again_at_once_is_read_again(tmp_path: Path) -> None:
    """Though it is as long as before, and as old, as far as the file system's clock can tell."""
    path, now = tmp_path / "w.safetensors", time.time_ns()
    for seed in (1, 2):
        tensors = {name: draw(*t.shape, seed=seed) for name, t in layers().state_dict().items()}
        safetensors.torch.save_file(tensors, path)
        os.utime(path, ns=(now, now))
        loaded = start_from(layers, path)().state_dict()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_weights_enter_a_network_that_is_wrapped(tmp_path: Path) -> None:
    """As networks of transformers are, whose outputs are more than logits; also of a body alone."""

    def wrap() -> nn.Module:
        return nn.ModuleDict({"net": nn.ModuleDict({"body": layers(), "head": nn.Linear(3, 2)})})

    path = tmp_path / "w.safetensors"
    for prefix in ("", "body.", "module.body."):
        tensors = save(path, prefix)
        loaded = start_from(wrap, path)().state_dict()
        assert all(torch.equal(loaded[f"net.body.{name}"], t) for name, t in tensors.items())
    tensors = save(path, **{"cls.weight": draw(2)})
    with raises(IsthmusError):
        start_from(wrap, path)()
    loaded = start_from(wrap, path, partly=True)().state_dict()
    assert torch.equal(loaded["net.body.2.bias"], tensors["2.bias"])


def test_a_head_of_another_size_stays_as_it_was_drawn(tmp_path: Path) -> None:
    outputs = {"4.weight": draw(1000, 4), "4.bias": draw(1000)}
    tensors = save(tmp_path / "w.safetensors", **outputs)
    build = start_from(layers, tmp_path / "w.safetensors")
    assert torch.equal(build().state_dict()["0.weight"], tensors["0.weight"])
    flat = Flat(build)
    assert not torch.equal(flat.fresh(1)[flat.head], flat.fresh(2)[flat.head])
    assert torch.equal(flat.fresh(1)[flat.body], flat.fresh(2)[flat.body])


def test_what_does_not_fit_is_listed(tmp_path: Path) -> None:
    save(tmp_path / "w.safetensors", **{"0.weight": draw(7, 6), "9.weight": draw(2)})
    path = tmp_path / "w.safetensors"
    with pytest.raises(IsthmusError) as error:
        start_from(layers, path)()
    said = str(error.value)
    check(said)
    assert "\n" not in said
    part = start_from(layers, path, partly=True)().state_dict()
    assert torch.equal(part["2.bias"], draw(4, seed=9))
    with raises(IsthmusError):
        start_from(lambda: nn.Conv2d(1, 2, 3), path, partly=True)()


def test_a_pretrained_body_may_be_frozen_under_adapters(tmp_path: Path) -> None:
    tensors = save(tmp_path / "w.safetensors")
    flat = Flat(lora(start_from(layers, tmp_path / "w.safetensors"), rank=1))
    module = flat.load(flat.fresh(4))
    assert torch.equal(module.state_dict()["0.layer.weight"], tensors["0.weight"])
    assert flat.size == (6 + 5) + (5 + 4) + 15


def test_a_run_wants_the_weights_that_it_began_with(tmp_path: Path) -> None:
    """Frozen layers are in no store and no message: another file would change the model unseen."""
    path = tmp_path / "vit.safetensors"
    options = {"width": 16, "depth": 1, "heads": 2}

    def write(seed: int) -> None:
        module = MODELS["vit"](SHAPE, 10, **options)
        tensors = {
            name.removeprefix("body.").replace("classifier.", "head."): draw(*t.shape, seed=seed)
            for name, t in module.state_dict().items()
        }
        safetensors.torch.save_file(tensors, path)

    write(1)
    model = {"name": "vit", "train": "head", "weights": str(path), **options}
    given = {"data": "digits", "clients": 4, "clients_per_round": 2, "rounds": 1, "epochs": 1}
    run = federate(Experiment(method="fedavg", model=model, **given), workers=1)
    assert run.experiment.model["weights_digest"]
    write(1)
    assert federate(run.experiment, workers=1).digest == run.digest
    write(2)
    with raises(IsthmusError):
        federate(run.experiment, workers=1)


def test_adapters_are_exported_as_a_program(tmp_path: Path) -> None:
    model = {"name": "vit", "train": "adapters", "width": 16, "depth": 1, "heads": 2}
    given = {"data": "digits", "clients": 4, "clients_per_round": 2, "rounds": 1, "epochs": 1}
    federate(Experiment(method="fedavg", model=model, **given), out=tmp_path / "run", workers=1)
    with isthmus.open(tmp_path / "run") as run:
        (path,) = export(run, tmp_path / "models", [0], form="torch")
        x = run.setting.federation.split(0, "test").x[:3]
    program = torch.export.load(path.with_suffix(".pt2")).module()
    scaled = 16 * x  # the data as they came
    assert program(scaled).shape == (3, 10)
    assert (program(scaled).sum(1) - 1).abs().max() < 1e-5
