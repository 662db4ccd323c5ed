"""Writes small run directories in the format that a run records, with numbers from a formula."""

import json
from pathlib import Path

import numpy as np

HEADER = "round,client,model,at,split,n,top1,top5,loss,brier,ece,mce"
OLDER = HEADER.replace("brier,", "")
METHODS = ("local", "fedavg", "fedavg-lu", "superfed-mm", "superfed-lm")
LAMBDAS = np.linspace(0, 1, 11)


def toml(method: str, **changes: object) -> str:
    """Returns an experiment as a run keeps it."""
    flat = {
        "preset": "clean",
        "clients": 20,
        "rounds": 50,
        "clients_per_round": 5,
        "epochs": 5,
        "batch_size": 10,
        "lr": 0.01,
        "eval_every": 10,
        "selection": "validation",
        "engine": "loop",
        "seed": 1,
    } | changes
    options = 'mix = "model"\nstart = 0.4\nmu = 0.01\nnu = 1.0\n' if "superfed" in method else ""
    lines = [f"{key} = {json.dumps(value)}" for key, value in flat.items()]
    tables = {
        "method": f"name = {json.dumps(method)}\n{options}",
        "data": 'name = "digits"\n',
        "partition": 'name = "dirichlet"\nalpha = 0.3\n',
        "model": 'name = "twonn"\n',
    }
    return "\n".join(lines) + "".join(f"\n\n[{name}]\n{body}" for name, body in tables.items())


def commented(experiment: str, header: str, rows: list[str]) -> str:
    comment = "".join(f"# {line}".rstrip() + "\n" for line in experiment.splitlines())
    return comment + "\n".join([header, *rows]) + "\n"


def write(
    directory: Path,
    method: str,
    clients: int = 20,
    classes: int = 10,
    federation: str = "a1b2c3d4",
    evaluations: tuple[int, ...] = (10, 20, 30, 40, 50),
    without_own_end: int = 2,
    **changes: object,
) -> Path:
    """Writes a whole run whose numbers are a smooth function of method, round, client and place."""
    directory.mkdir(parents=True)
    experiment = toml(method, clients=clients, **changes)
    (directory / "experiment.toml").write_text(experiment)
    split = np.random.default_rng(0)
    shares = split.dirichlet(np.full(classes, 0.3), size=clients)
    sizes = split.integers(40, 240, size=clients)
    counts = np.floor(shares * sizes[:, None]).astype(int)
    counts[:, 0] += sizes - counts.sum(1)
    rows = [
        f"{i},{n - 2 * (n // 5)},{n // 5},{n // 5},{' '.join(map(str, counts[i]))}"
        for i, n in enumerate(sizes)
    ]
    header = "client,train,validation,test,labels"
    (directory / "federation.csv").write_text(commented(experiment, header, rows))

    traffic = 0 if method == "local" else 3_180_000
    rows = [
        f"{t},{0.01 * 0.99**t:.6g},5,5,{traffic},{traffic},"
        f"{'' if method == 'local' else 1 / t},{1.5 + 0.01 * t:.4g},"
        f"{0.8 if t in evaluations else 0}"
        for t in range(1, evaluations[-1] + 1)
    ]
    header = (
        "round,lr,asked,answered,down_bytes,up_bytes,head_variance,train_seconds,evaluate_seconds"
    )
    (directory / "rounds.csv").write_text(commented(experiment, header, rows))

    rows = []
    for t in evaluations:
        rows += _evaluation(method, t / 50, t, sizes, shares, without_own_end)
    (directory / "clients.csv").write_text(commented(experiment, HEADER, rows))
    rows = [
        f"{t},personal,test,{b},{(b - 1) / 15:.8g},{b / 15:.8g},{_bin(b)}"
        for t in evaluations
        for b in range(1, 16)
    ]
    header = "round,model,split,bin,lower,upper,n,top1,confidence"
    (directory / "reliability.csv").write_text(commented(experiment, header, rows))
    summary = {
        "status": "finished",
        "rounds": evaluations[-1],
        "digest": f"{hash_of(method):016x}",
        "federation": federation,
        "isthmus": "0.1.0",
        "torch": "2.9.0",
        "seconds": 91.5,
    }
    (directory / "summary.json").write_text(json.dumps(summary))
    return directory


def _bin(b: int) -> str:
    """Nobody is less sure than a fifth; the surer, the more often too sure."""
    return "0,," if b < 4 else f"{10 * b},{0.9 * (b - 0.5) / 15:.6f},{(b - 0.5) / 15:.6f}"


def hash_of(text: str) -> int:
    return sum(31**place * byte for place, byte in enumerate(text.encode()[:12]))


def _evaluation(
    method: str,
    progress: float,
    t: int,
    sizes: np.ndarray,
    shares: np.ndarray,
    without_own_end: int,
) -> list[str]:
    draw = np.random.default_rng(int(1000 * progress) + hash_of(method) % 997)
    level = {"local": 0.78, "fedavg": 0.68, "fedavg-lu": 0.80}.get(method, 0.84)
    wobble = draw.normal(0, 0.04, len(sizes))
    # Clients of few classes are easy alone; clients of many gain most from the others.
    easy = (shares.max(1) - 0.6) * (0.35 if method != "fedavg" else 0.05)
    rows = []
    for i, n in enumerate(sizes // 5):
        top = np.clip((level + easy[i] + wobble[i]) * (1 - np.exp(-4 * progress)), 0.05, 1)
        shared = np.clip((0.70 + 0.5 * wobble[i]) * (1 - np.exp(-3 * progress)), 0.05, 1)
        path_method = method.startswith("superfed")
        has_own_end = path_method and i >= without_own_end and progress > 0.4
        bend = 0.12 + wobble[i]
        curve = shared + (top - 0.05 - shared) * LAMBDAS + bend * np.sin(np.pi * LAMBDAS)
        best = int(np.argmax(curve)) if has_own_end else 0
        lambdas = LAMBDAS if has_own_end else np.zeros(11)
        curve = np.clip(curve if has_own_end else np.full(11, shared), 0, 1)
        for split in ("validation", "test"):
            shift = 0.01 if split == "validation" else 0.0
            if path_method:
                rows += [
                    _row(t, i, "path", f"{at:g}", split, n, value + shift)
                    for at, value in zip(lambdas, curve, strict=True)
                ]
                rows.append(
                    _row(t, i, "personal", f"{lambdas[best]:g}", split, n, curve[best] + shift)
                )
            else:
                own = shared if method == "fedavg" else top
                rows.append(_row(t, i, "personal", "", split, n, own + shift))
            if method != "local":
                at = "0" if path_method else ""
                rows.append(_row(t, i, "shared", at, split, n, shared + shift))
    if method != "local":
        server = 0.72 * (1 - np.exp(-3 * progress))
        rows.append(_row(t, "server", "shared", "0" if path_method else "", "test", 1000, server))
    return rows


def _row(t: int, client: int | str, model: str, at: str, split: str, n: int, right: float) -> str:
    top1 = min(round(float(right) * n) / n, 1.0)
    top5 = min(1.0, 0.5 + top1 / 2)
    loss = 0.1 + 1.8 * (1 - top1)
    return (
        f"{t},{client},{model},{at},{split},{n},{top1:.6f},{top5:.6f},{loss:.6f},"
        f"{1.2 * (1 - top1):.6f},"
        f"{0.05 + 0.1 * (1 - top1):.6f},{0.3 + 0.1 * (1 - top1):.6f}"
    )
