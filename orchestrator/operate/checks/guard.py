"""Which guard starts commands: the one in C, or, without it, the one in Python."""

from collections.abc import Awaitable, Callable

from orchestrator.ground.check import Check, ok, warning
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.threads import within
from sandbox_agent.decide.facilities import Kernel

GUARD = "guard of commands"


async def check_guard(
    compiled: Callable[[], Awaitable[bool]], kernel: Kernel, seconds: float
) -> Check:
    """`compiled` is `Inside.compiled_guard`, which has so many seconds; `kernel` is a sandbox's."""
    if not (kernel.scopes and kernel.notification):
        return warning(
            GUARD,
            "in Python, with the same promises: that in C needs Landlock scopes and notification",
            "use a kernel of 6.12 or later with both",
        )
    try:
        found = await within(compiled(), seconds, None)
    except PaddockError as error:
        return warning(GUARD, f"it is not known: {error.detail}", "see the engine's checks")
    if found is None:
        return warning(GUARD, f"no answer within {seconds:g} s", "see the engine's checks")
    if found:
        return ok(GUARD, "in C; in Python for context packs and root inside")
    return warning(
        GUARD,
        "in Python, with the same promises: the sandbox image was built without a compiler, and "
        "the start of a command takes about half as long again",
        "where Debian's mirrors can be reached: paddock images build --force",
    )
