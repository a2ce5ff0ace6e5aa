"""What programs may read of the image, besides their session's pack. No I/O."""

from orchestrator.rules.policy.levels import Level

# Programs, their libraries and data, and views of the kernel.
_PROGRAMS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/proc", "/sys")
# What Debian's programs read when they start or use the network, besides what every command may
# read (`sandbox_agent/decide/baseline.py`). An image lists more in its own baseline.
_SETTINGS = (
    "/etc/bash.bashrc",
    "/etc/ca-certificates.conf",
    "/etc/debian_version",
    "/etc/environment",
    "/etc/gai.conf",
    "/etc/gitconfig",
    "/etc/hostname",
    "/etc/inputrc",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/lsb-release",
    "/etc/magic",
    "/etc/mailcap",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/npmrc",
    "/etc/os-release",
    "/etc/perl",
    "/etc/pip.conf",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/protocols",
    "/etc/python3",
    "/etc/rpc",
    "/etc/services",
    "/etc/shells",
    "/etc/terminfo",
    "/etc/timezone",
    "/etc/wgetrc",
    "/etc/xattr.conf",
)


def baseline(level: Level) -> tuple[str, ...]:
    """Absolute paths of files and directories; other levels have what their commands need."""
    return () if level.confinement.paths else (*_PROGRAMS, *_SETTINGS)
