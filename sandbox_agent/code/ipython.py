"""What a kernel of IPython shows besides its own forms: data frames and figures as data."""

from collections.abc import Callable
from typing import Any

from sandbox_agent.code import figures
from sandbox_agent.code.values import table_of
from sandbox_agent.decide.code_frames import CHART_TYPE, TABLE_TYPE


class _Formatter:
    """A form of values, as IPython asks for it; None: the value does not have it."""

    enabled = True

    def __init__(self, form: Callable[[object], str | None]) -> None:
        self._form = form

    def __call__(self, value: object) -> str | None:
        return self._form(value)

    def pop(self, *_kind: object) -> None:
        """Forgets nothing: matplotlib takes its kinds of figures back from every form."""


def register(shell: Any) -> None:
    """Has the kernel's shell show these forms, too."""
    formatters = shell.display_formatter.formatters
    formatters[TABLE_TYPE] = _Formatter(table_of)
    formatters[CHART_TYPE] = _Formatter(figures.chart_of_value)
