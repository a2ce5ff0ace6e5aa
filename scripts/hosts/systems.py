"""The systems that are booted, and what a stock installation of each has."""

from dataclasses import dataclass

# A server's installation, and what is needed to start `make run` in a clone of the repository. No
# engine: `make run` installs it. `python3-venv` and the compiler are for the environment of the
# tests, which is made before the boot.
STOCK = (
    *("systemd-sysv", "linux-image-amd64", "ca-certificates"),
    *("git", "make", "python3", "python3-venv", "gcc", "libc6-dev"),
)


@dataclass(frozen=True, slots=True)
class System:
    """A stock system; `python` is the version of its interpreter, such as `3.11`."""

    name: str
    title: str
    suite: str
    python: str

    def sources(self, mirror: str, security: str) -> list[str]:
        """The lines of apt's sources, as the installer writes them."""
        return [
            f"deb {mirror} {self.suite} main",
            f"deb {mirror} {self.suite}-updates main",
            f"deb {security} {self.suite}-security main",
        ]


SYSTEMS = {
    each.name: each
    for each in (
        System("debian-12", "Debian 12", "bookworm", "3.11"),
        System("debian-13", "Debian 13", "trixie", "3.13"),
    )
}
