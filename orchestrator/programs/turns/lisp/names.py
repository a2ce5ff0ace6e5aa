"""Where variables are: each function and each `let` has a frame of them."""

from collections.abc import Sequence
from typing import Final

from orchestrator.programs.turns.lisp.errors import Problem

# The owner of forms that are in no function.
TOP: Final = "program"
# Finding a variable looks through all frames around it; `let*` nests one for each of its own.
_MOST_NESTED: Final = 1000
# Each call makes room for all variables of the function.
MOST_VARIABLES: Final = 1000


class Names:
    """The variables of a function or a `let`, and those around it; `owner` is the function."""

    def __init__(self, around: "Names | None", owner: str, names: Sequence[str] = ()) -> None:
        self.around = around
        self.owner = owner
        self._further_out = 0 if around is None else around.size
        self._depth: int = 1 if around is None else around._depth + 1
        if self._depth > _MOST_NESTED:
            raise Problem(f"variables are nested more than {_MOST_NESTED} deep")
        self._places = {name: number for number, name in enumerate(names, 1)}
        self._check()
        self._defined: set[str] = set()

    def define(self, name: str) -> bool:
        """Adds a variable that has no value yet; returns whether it is new."""
        self._defined.add(name)
        new = name not in self._places
        self._places.setdefault(name, len(self._places) + 1)
        self._check()
        return new

    def _check(self) -> None:
        if len(self._places) > MOST_VARIABLES:
            raise Problem(f"a function or a let has at most {MOST_VARIABLES} variables")

    def defines(self, name: str) -> bool:
        """Whether the body of this function or `let` defines it."""
        return name in self._defined

    @property
    def size(self) -> int:
        """How many variables there are, with those around."""
        return self._further_out + len(self._places) + 1

    def find(self, name: str) -> tuple[int, int, bool] | None:
        """How many frames further out, at which place, and whether it may have no value yet."""
        names: Names | None = self
        depth = 0
        while names is not None:
            if name in names._places:
                return depth, names._places[name], name in names._defined
            names = names.around
            depth += 1
        return None
