"""Arguments that all examples have: where the control plane is, and the key."""

import argparse
import os
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.rules.access.admin_key import ADMIN_KEY_FILE
from orchestrator.settings.instance_url import announced_url
from orchestrator.settings.settings import load_settings
from support.client import UnreachableError


def parser_for(description: str) -> argparse.ArgumentParser:
    """A parser with `--url` and `--key-file`; the defaults fit a control plane of `make run`.

    Raises: ConfigError.
    """
    settings = load_settings()
    # The default address is no default here: any program that listens there would get the key.
    url = os.environ.get("PADDOCK_URL") or announced_url(settings)
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument(
        "--url",
        type=_http_url,
        default=url,
        required=url is None,
        help="of the control plane (PADDOCK_URL; default: %(default)s)",
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        default=settings.state_dir / ADMIN_KEY_FILE,
        help="holds the API key, unless PADDOCK_KEY does (default: %(default)s)",
    )
    return parser


def read_key(key_file: Path) -> str:
    """The API key from the environment or the file. Raises: UnreachableError."""
    given = os.environ.get("PADDOCK_KEY") or os.environ.get("PADDOCK_ADMIN_KEY")
    try:
        return (given or key_file.read_text()).strip()
    except OSError as error:
        raise UnreachableError(f"no API key: {key_file}: {error.strerror}") from None


def _http_url(text: str) -> str:
    """Checks that an argument is the address of a server."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError("must look like http://127.0.0.1:8700")
    return text
