"""A level whose commands are root inside, for tests."""

from pathlib import Path

from orchestrator.rules.policy import levels

LEVEL = "rooted"
_PACKAGED = Path(levels.__file__).with_name("levels")


def write_root_level(directory: Path, *members: str, network: str = "none") -> None:
    """Writes the level's file: `high` with `user = "root"` and these further members."""
    text = (_PACKAGED / "high.toml").read_text()
    lines = "\n".join(("rank = 400", 'user = "root"', *members))
    text = text.replace("rank = 300", lines)
    text = text.replace('network = "open"', f'network = "{network}"')
    (directory / f"{LEVEL}.toml").write_text(text)
