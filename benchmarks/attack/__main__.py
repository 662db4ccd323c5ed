"""Attacks the program and lists what did not hold; exit code 1 if anything did not.

python -m benchmarks.attack --seconds 60 --seed 1
python -m benchmarks.attack --surface tables --case 17 --seed 1     # one case again, in full
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.attack.case import Case, Ending, attempt, judge
from benchmarks.attack.samples import Samples, write_samples
from benchmarks.attack.surfaces import SURFACES


def attack(surface: str, seed: int, number: int, samples: Samples) -> tuple[Case, Ending]:
    """Make one attempt, which its three names decide."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        rng = random.Random(f"{surface} {seed} {number}")
        case = SURFACES[surface](rng, folder, samples)
        end = attempt(case, folder)
        wrong = judge(case, end)
        return case, end._replace(out=wrong, error=end.error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Attack the surfaces in turn until the time is up or the attempts are made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--attempts", type=int, help="this many, however long they take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--surface", choices=SURFACES, action="append")
    parser.add_argument("--case", type=int, help="only this one, shown in full")
    wanted = parser.parse_args()
    import isthmus.batch.comparison
    import isthmus.cli.driver
    import isthmus.report.figures.printing
    import isthmus.report.page
    import isthmus.report.show
    import isthmus.run.export
    import isthmus.run.landscape
    import isthmus.run.open  # noqa: F401

    surfaces = wanted.surface or list(SURFACES)
    with tempfile.TemporaryDirectory(prefix="attack-") as place:
        samples = write_samples(Path(place))
        ends, number, wrong = time.monotonic() + wanted.seconds, 0, 0
        if wanted.case is not None:
            case, end = attack(surfaces[0], wanted.seed, wanted.case, samples)
            print(case.arguments, end.out, end.error, sep="\n")
            sys.exit(bool(end.out))
        while time.monotonic() < ends if wanted.attempts is None else number < wanted.attempts:
            surface = surfaces[number % len(surfaces)]
            case, end = attack(surface, wanted.seed, number, samples)
            if end.out:
                wrong += 1
                shown = [a if len(a) < 60 else f"{a[:57]}..." for a in case.arguments]
                print(f"{surface} {number}: {end.out}\n    {shown}", flush=True)
            number += 1
        print(f"{number} attempts, {wrong} did not hold")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
