"""Which files a patch of a program concerns, for the session's policy. Pure."""

from typing import NamedTuple

from sandbox_agent.decide.files import patches

# What is read at once, on the event loop.
MOST_PATCH = 256 * 1024


class PatchedRefs(NamedTuple):
    """The paths that a patch reads, writes and deletes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    deletes: tuple[str, ...]


def patched_refs(text: str) -> PatchedRefs:
    """The paths in a patch; none if it is too long or malformed, which its operation refuses."""
    if len(text) > MOST_PATCH:
        return PatchedRefs((), (), ())
    try:
        files = patches.parse(text)
    except patches.PatchError:
        return PatchedRefs((), (), ())
    removed = [each for each in files if each.old != each.new and not each.copies]
    return PatchedRefs(
        tuple(each.old for each in files if each.old is not None),
        tuple(each.new for each in files if each.new is not None),
        tuple(each.old for each in removed if each.old is not None),
    )
