"""`python -m images`: makes the images."""

import argparse
import sys
import time
from contextlib import closing

from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base
from images.builder import build
from images.errors import BuildError
from images.progress import detail, failure, step
from images.recipes import ROOT, default_recipe, find_recipe
from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.settings import load_settings

PING_SECONDS = 5


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m images", description="The images.")
    commands = parser.add_subparsers(dest="command")
    command = commands.add_parser("build", help="build an image if something in it changed")
    command.add_argument(
        "name", nargs="?", help="which, or a list of packages (default: that of PADDOCK_IMAGE)"
    )
    command.add_argument("--force", action="store_true", help="build even if nothing changed")
    command.add_argument("--tag", help="another name for the image")
    command = commands.add_parser("engine", help="succeed if a Docker engine answers")
    command.add_argument("--wait", type=float, default=0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    if options.command == "build":
        return _build(options.name, options.tag, options.force)
    if options.command == "engine":
        return _engine(options.wait)
    parser.print_help()
    return 0


def _build(name: str | None, tag: str | None, force: bool) -> int:
    started = time.monotonic()
    try:
        default = load_settings().image
        recipe = default_recipe(default) if name is None else find_recipe(name, ROOT, default)
        image = build(tag, recipe=recipe, force=force, report=detail)
    except LookupError:
        failure(f"no image {name}; `paddock images list` shows them")
        return 2
    except (BuildError, ConfigError) as error:
        failure(str(error))
        return 1
    state = f"built in {time.monotonic() - started:.0f} s" if image.built else "is current"
    step(f"image {image.name} {state}")
    return 0


def _engine(seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while True:
        try:
            with closing(base.connect(PING_SECONDS)) as client:
                version = client.version()["Version"]
        except (DockerException, RequestException):
            if time.monotonic() >= deadline:
                return 1
            time.sleep(0.2)  # an engine does not announce when it is ready
        else:
            step(f"Docker engine {version}")
            return 0


if __name__ == "__main__":
    sys.exit(main())
