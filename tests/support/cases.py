"""Cases of one test that share its fixtures."""

import functools
import inspect
import reprlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., Awaitable[None]]


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but every case is a subtest that uses the same fixtures.

    For cases that leave nothing behind which another could notice. A failure names its case, and
    the others run as well.
    """
    several = (names,) if isinstance(names, str) else names

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        async def run(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
            for case in cases:
                values = (case,) if isinstance(names, str) else case
                with subtests.test(reprlib.repr(case)):
                    await test(**fixtures, **dict(zip(several, values, strict=True)))

        signature = inspect.signature(test)
        own = [value for name, value in signature.parameters.items() if name not in several]
        asked = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        shown = signature.replace(parameters=[*own, asked])
        run.__signature__ = shown  # type: ignore[attr-defined]
        return run

    return decorate
