"""What programs may read of the image, besides their session's pack. No I/O."""

from orchestrator.policy.levels import Level

# At levels that allow any command: the image's programs and their data, and views of the kernel.
# Operators put nothing confidential into images.
_IMAGE = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/opt", "/etc"),
    *("/proc", "/sys"),
)


def baseline(level: Level) -> tuple[str, ...]:
    """Absolute paths of files and directories; other levels have what their commands need."""
    return () if level.confinement.paths else _IMAGE
