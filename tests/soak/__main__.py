"""Uses sessions at random and checks that nothing grows: `python -m tests.soak`."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from docker.errors import DockerException

from images.progress import detail, failure, step
from tests.soak.run import soak


def main() -> int:
    """Runs it and returns the exit status: 0 if nothing failed and nothing has grown."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Uses sessions at random for a long time."
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long (60)")
    parser.add_argument("--lives", type=int, help="how many sessions, instead of a time")
    parser.add_argument("--seed", type=int, help="repeats the choices of an earlier run")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    seconds = None if arguments.lives is not None else 60 * arguments.minutes
    step(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="paddock-soak-") as directory:
        try:
            done = asyncio.run(
                soak(
                    Path(directory) / "state", seed, detail, lives=arguments.lives, seconds=seconds
                )
            )
        except (AssertionError, DockerException, OSError) as error:
            failure(str(error))
            return 1
    for complaint in done.complaints:
        failure(complaint)
    verdict = "failed" if done.complaints else "flat"
    step(f"{verdict}: {done.lives} sessions, {done.steps} steps, seed {seed}")
    return 1 if done.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
