"""The base path below which a program serves. Pure functions.

A program is addressed as on its own machine, from `/` on. A program that knows its address
(Jupyter's `base_url`, Streamlit's `baseUrlPath`) answers nothing there, or redirects to its base
path. It is asked again below that, and the port remembers where it answered.
"""

from urllib.parse import urlsplit

from yarl import URL

from api.previews.paths import PreviewPath

# What programs answer outside their base path, apart from a redirect to it.
_ABSENT = 404


def base_paths(path: PreviewPath, known: str | None) -> list[str]:
    """The paths below which the program may serve, in the order of asking; most serve below "".

    `known` is that of its earlier answers. Without one, or if a client begins anew at the port's
    first page, all are asked. At the port's own host name, the program is addressed as it is.
    """
    if path.own_host:
        return [""]
    if known is not None and path.rest != "/":
        return [known]
    found = [*([] if known is None else [known]), "", path.prefix, path.base]
    return list(dict.fromkeys(found))


def program_url(path: PreviewPath, base: str) -> URL:
    """Where the program serves what is requested, below that base path."""
    return URL(f"http://localhost:{path.port}{base}{path.inside}", encoded=True)


def serves_elsewhere(base: str, others: list[str], status: int, location: str | None) -> bool:
    """Whether an answer below `base` says that the program serves below one of the others."""
    if status == _ABSENT:
        return True
    if location is None:
        return False
    target = own_path(location) or ""
    # The longest one, as one may begin with another.
    fitting = [each for each in (base, *others) if each and is_below(target, each)]
    return bool(fitting) and max(fitting, key=len) != base


def outside(location: str, path: PreviewPath, base: str) -> str:
    """The target of a program's redirect, as the client must request it below the port."""
    target = own_path(location, path.port)
    if target is None:
        return location
    for own in sorted({base, path.base, path.prefix} - {""}, key=len, reverse=True):
        if is_below(target, own):
            target = target.removeprefix(own)
            break
    return path.base + (target if target.startswith("/") else f"/{target}")


def own_path(location: str, port: int | None = None) -> str | None:
    """The path, query and fragment of a redirect to the program itself; None: it leads elsewhere.

    `port` None: any port of the sandbox's loopback.
    """
    if location.startswith("/"):
        return None if location.startswith(("//", "/\\")) else location
    try:
        parts = urlsplit(location)
        asked = parts.port or 80
    except ValueError:
        return None
    local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not local or "@" in parts.netloc or (port is not None and asked != port):
        return None
    return location[len("http://") + len(parts.netloc) :] or "/"


def is_below(target: str, base: str) -> bool:
    """Whether a path is the base path or below it."""
    return target.startswith(base) and target[len(base) : len(base) + 1] in ("", "/", "?", "#")
