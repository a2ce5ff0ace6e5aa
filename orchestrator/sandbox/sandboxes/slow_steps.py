"""Which steps of a start took long: for errors of a host that is busy. Pure."""

from collections.abc import Mapping

from orchestrator.ground.errors import EngineUnavailableError, PaddockError, SandboxUnavailableError

# Below, a step explains nothing.
_LONG_SECONDS = 1.0
# Errors with which a start ends when something takes too long.
_LATE = (SandboxUnavailableError, EngineUnavailableError)


def with_steps(error: PaddockError, seconds: Mapping[str, float]) -> PaddockError:
    """The error with the steps that took long, slowest first; itself without such steps.

    `seconds` is what each step took, by its name; the last one may be the one that failed.
    """
    found = sorted(((each, name) for name, each in seconds.items()), reverse=True)
    long = [f"{name} {each:.0f} s" for each, name in found if each >= _LONG_SECONDS]
    if not long or type(error) not in _LATE:
        return error
    return type(error)(f"{error.detail} (its start: {', '.join(long)})", **error.fields)
