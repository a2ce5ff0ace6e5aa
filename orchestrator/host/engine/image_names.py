"""Names of images: their spelling on the engine, and how an image gets there. Pure functions."""

import re
from collections.abc import Sequence

# The images that `paddock images build` makes by name. Others under `paddock/` are made from an
# author's own list of packages, whose place only the author knows.
RECIPES = frozenset(
    {
        *("sandbox", "dev", "node", "python", "control-plane"),
        *("claude-code", "codex", "opencode", "aider", "mini-swe-agent"),
    }
)
_OURS = re.compile(r"paddock/([a-z0-9][a-z0-9._-]*)(?::([\w.-]+))?")
_HUB = re.compile(r"(?:index\.)?docker\.io/(?:library/)?|library/")


def short_name(image: str) -> str:
    """An image's name without registry, folders, tag and digest: `dev` for `paddock/dev:latest`."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def named_in(names: Sequence[str] | None, image: str) -> bool:
    """Whether one of them is the image's name or short name; None names every image."""
    return names is None or image in names or short_name(image) in names


def familiar(image: str) -> str:
    """The name as the engine lists it: without the default registry, and with a tag or digest."""
    plain = _HUB.sub("", image, count=1) if _HUB.match(image) else image
    if plain.startswith("sha256:"):
        return plain
    name, _, digest = plain.partition("@")
    folders, slash, last = name.rpartition("/")
    repository, colon, tag = last.partition(":")
    if digest:
        return f"{folders}{slash}{repository}@{digest}"
    return f"{folders}{slash}{repository}:{tag if colon else 'latest'}"


def recipe_of(image: str) -> str | None:
    """The name of the recipe that makes the image; None for an image that has none here."""
    found = _OURS.fullmatch(image)
    return found[1] if found is not None and found[1] in RECIPES else None


def build_command(image: str) -> str | None:
    """The command that builds the image; None for an image that is not Paddock's own."""
    found = _OURS.fullmatch(image)
    if found is None:
        return None
    source = found[1] if found[1] in RECIPES else f"./{found[1]}.toml"
    more = "" if found[2] in (None, "latest") else f" --tag {image}"
    return f"paddock images build {source}{more}"


def how_to_get(image: str) -> str:
    """How to bring a missing image to the engine, in words."""
    command = build_command(image)
    if command is None:
        return f"get it with `docker pull {image}`, or build it there"
    if "./" in command:
        return f"build it from its list of packages (`{command}`), or as it was built before"
    return f"get it with `{command}`"
