"""The limits of a program, and what it has used of them."""

from collections.abc import Generator
from dataclasses import dataclass

from orchestrator.programs.turns.lisp.errors import Problem
from orchestrator.programs.turns.programs import Breath

# What a cell of a list, a text without its characters, a function, … take at most, in bytes.
CELL = 96
TEXT = 64
FUNCTION = 128
# A character of a program that is read.
FORM = 16

# Built-in functions count the things that they look at: so many cost one step. After more than
# `BURST` of them, others may run first.
PER_STEP = 8
BURST = 20_000
# A function that would look at more without a break is refused, so that others never wait long.
_MOST_AT_ONCE = 150_000


@dataclass(frozen=True, slots=True)
class LispLimits:
    """What a program may use; nothing of it can be given back."""

    program_characters: int = 256 * 1024
    nesting: int = 500  # of a program's lists
    steps: int = 1_000_000
    depth: int = 10_000  # evaluations that wait for another one's value
    memory_bytes: int = 64 * 1024 * 1024  # of all values that it makes
    output_characters: int = 64 * 1024
    list_length: int = 50_000
    text_characters: int = 4 * 1024 * 1024
    # Of values that the driver takes or gives.
    value_nesting: int = 200
    value_elements: int = 100_000
    stored_characters: int = 256 * 1024  # of definitions that are kept for the next turn


class Allowance:
    """What a program has used. Everything is counted before it is made."""

    def __init__(self, limits: LispLimits) -> None:
        self.limits = limits
        self.steps = 0
        self.memory = 0
        self.burst = 0
        self._output: list[str] = []
        self._printed = 0
        self._looked_at = 0  # things that are not enough for a step yet

    @property
    def output(self) -> str:
        """What the program has printed."""
        return "".join(self._output)

    def hold(self, count: int) -> None:
        """Counts bytes of values. Raises: Problem at the limit."""
        self.memory += count
        if self.memory > self.limits.memory_bytes:
            raise Problem(f"the program needs more than {self.limits.memory_bytes} bytes of memory")

    def cells(self, length: int) -> None:
        """Counts a list that is made. Raises: Problem at a limit."""
        if length > self.limits.list_length:
            raise Problem(f"a list has at most {self.limits.list_length} elements")
        self.hold(CELL * length)
        self.work(length)

    def text(self, characters: int, *, wide: bool) -> None:
        """Counts a text that is made; `wide` if it may have more than ASCII. Raises: Problem."""
        if characters > self.limits.text_characters:
            raise Problem(f"a text has at most {self.limits.text_characters} characters")
        self.hold(TEXT + (4 * characters if wide else characters))
        self.work(characters >> 6)

    def work(self, count: int) -> None:
        """Counts things that a function looks at. Raises: Problem at the limit of steps."""
        self.burst += count
        if self.burst > _MOST_AT_ONCE:
            raise Problem("this is too much for one call of a function")
        steps, self._looked_at = divmod(self._looked_at + count, PER_STEP)
        self.spend(steps)

    def rest(self) -> Generator[Breath, object, None]:
        """Lets others run, if much was looked at since they could run last."""
        if self.burst > BURST:
            self.burst = 0
            yield Breath()

    def spend(self, steps: int) -> None:
        """Counts steps. Raises: Problem at the limit."""
        self.steps += steps
        if self.steps > self.limits.steps:
            raise Problem(f"the program needs more than {self.limits.steps} steps")

    def say(self, text: str) -> None:
        """Adds to the output. Raises: Problem at the limit."""
        self._printed += len(text)
        if self._printed > self.limits.output_characters:
            raise Problem(
                f"the program prints more than {self.limits.output_characters} characters"
            )
        self._output.append(text)
