"""The script that restricts the bridge, with fake iptables that print their arguments."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.host.engine.docker_network import RULES_SCRIPT

# Docker's rule appears after it has been looked for `looks` times.
IPTABLES = """\
#!/bin/sh
echo "$0 $*" >>"$ASKED"
case "$*" in
*"-C FORWARD -j DOCKER-USER"*)
    echo >>"$ASKED.looks"
    [ "$(wc -l <"$ASKED.looks")" -ge "$LOOKS" ]
    ;;
*-C*) exit 1 ;;
*-D*) exit 1 ;;
esac
"""


@pytest.mark.parametrize(("looks", "backend"), [(1, "nft"), (2, "legacy"), (7, "nft")])
def test_the_engines_rule_may_be_gone_for_a_moment(
    tmp_path: Path, looks: int, backend: str
) -> None:
    done, asked = rules(tmp_path, looks)
    assert done.returncode == 0, done.stderr
    installed = [line for line in asked if " -I " in line]
    assert installed
    assert all(f"tables-{backend} " in line for line in installed)


def test_without_the_engines_rule_nothing_is_installed(tmp_path: Path) -> None:
    done, asked = rules(tmp_path, looks=1000)
    assert done.returncode == 1
    assert "DOCKER-USER chain was not found: it must filter by iptables" in done.stderr
    assert '"firewall-backend": "nftables"' in done.stderr
    assert not [line for line in asked if " -I " in line or " -N " in line]


def rules(directory: Path, looks: int) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The script's result, and its calls of iptables."""
    for name in ("iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"):
        (directory / name).write_text(IPTABLES)
        (directory / name).chmod(0o755)
    (directory / "sleep").symlink_to("/bin/true")
    asked = directory / "asked"
    done = subprocess.run(
        ["sh", "-c", RULES_SCRIPT, "rules", "install", "pdk0a1b2c3d"],
        env={"PATH": f"{directory}:/usr/bin:/bin", "ASKED": str(asked), "LOOKS": str(looks)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, asked.read_text().splitlines()
