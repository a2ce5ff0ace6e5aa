"""All built-in functions by their names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from orchestrator.programs.turns.lisp.builtins.controls import CONTROLS
from orchestrator.programs.turns.lisp.builtins.dictionaries import DICTIONARIES
from orchestrator.programs.turns.lisp.builtins.general import GENERAL
from orchestrator.programs.turns.lisp.builtins.json_text import JSON
from orchestrator.programs.turns.lisp.builtins.lists import LISTS
from orchestrator.programs.turns.lisp.builtins.numbers import NUMBERS
from orchestrator.programs.turns.lisp.builtins.outcomes import OUTCOMES
from orchestrator.programs.turns.lisp.builtins.primitive import Control, Primitive
from orchestrator.programs.turns.lisp.builtins.strings import STRINGS

BUILTINS: Final[Mapping[str, Primitive | Control]] = MappingProxyType(
    {
        each.name: each
        for group in (
            *(NUMBERS, GENERAL, LISTS, STRINGS, DICTIONARIES, JSON, OUTCOMES),
            CONTROLS,
        )
        for each in group
    }
)
