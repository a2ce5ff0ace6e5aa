"""Levels whose commands are root inside, for tests."""

from pathlib import Path

from orchestrator.rules.policy import levels

LEVEL = "rooted"
_PACKAGED = Path(levels.__file__).with_name("levels")


def write_root_level(
    directory: Path, *members: str, name: str = LEVEL, rank: int = 400, network: str = "none"
) -> None:
    """Writes the level's file: `high` with `user = "root"` and these further members."""
    text = (_PACKAGED / "high.toml").read_text()
    lines = "\n".join((f"rank = {rank}", 'user = "root"', *members))
    text = text.replace("rank = 300", lines)
    text = text.replace('network = "open"', f'network = "{network}"')
    (directory / f"{name}.toml").write_text(text)
