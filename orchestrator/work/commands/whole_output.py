"""What a command has printed until its end, within a bound."""

from collections.abc import Iterable, Mapping

from orchestrator.host.link.chunks import Chunk
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from orchestrator.work.commands import running_command
from orchestrator.work.commands.head_and_tail import HeadAndTail


async def whole_output(
    session: Session, command: Command, total: int, most: int
) -> dict[str, HeadAndTail]:
    """The `total` bytes of an ended command by stream, of each at most `most`.

    They were delivered with its end, or are requested page by page. Raises:
    SandboxUnavailableError.
    """
    kept = {name: HeadAndTail(most) for name in ("stdout", "stderr")}
    delivered, command.output = command.output, None
    position = _keep(kept, delivered or (), 0)
    while delivered is None and position < total:
        page = await running_command.read_output(session, command, position, 0)
        position = _keep(kept, page.chunks, position)
        if page.lost or page.next < position or not page.chunks:
            break
    if position < total:
        kept["stdout"].skip(total - position)
    return kept


def _keep(kept: Mapping[str, HeadAndTail], chunks: Iterable[Chunk], position: int) -> int:
    """Keeps chunks of output, of which the agent may leave out the middle; where the next begin."""
    for name, offset, data in chunks:
        if name in kept:
            kept[name].skip(offset - position)
            kept[name].add(data)
        position = offset + len(data)
    return position
