"""The URLs that the control plane may call for others: those below the operator's. Pure."""

import re
from collections.abc import Iterable

# Plain enough that no server can read the path as another one.
_PLAIN = re.compile(
    r"https?://([0-9a-z.-]{1,255}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?"
)


def check_plain_url(url: str) -> str:
    """Returns it. Raises: ValueError unless it has only a host and a path that mean one thing."""
    if not _is_plain(url):
        raise ValueError(
            "must look like https://host/path, without a user, query, escapes or dots as segments"
        )
    return url


def is_permitted(url: str, prefixes: Iterable[str]) -> bool:
    """Whether it is a plain URL that is one of the prefixes, or below one."""
    return _is_plain(url) and any(
        url == each or url.startswith(f"{each.rstrip('/')}/") for each in prefixes
    )


def _is_plain(url: str) -> bool:
    return _PLAIN.fullmatch(url) is not None and not {".", ".."} & set(url.split("/"))
