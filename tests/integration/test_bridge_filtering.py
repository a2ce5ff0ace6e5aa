"""Whether sandboxes are kept apart depends on a setting of the host that anyone may change."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.host.engine.docker_network import RULES_SCRIPT

BRIDGE = "pdk0a1b2c3d"
# A network of its own, with a bridge, in which the setting can be changed.
ELSEWHERE = f"""\
set -e
{{ [ "$2" = absent ] || ip link add {BRIDGE} type bridge; }}
echo "$1" >/proc/sys/net/bridge/bridge-nf-call-iptables
exec sh -c "$RULES" rules install {BRIDGE}
"""
FAKE_IPTABLES = """\
#!/bin/sh
echo "$*" >>"$ASKED"
case "$*" in
*"-C FORWARD -j DOCKER-USER"*) exit 0 ;;
*-C* | *-D*) exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("setting", "bridge", "installed"),
    [("1", "there", True), ("0", "there", False), ("0", "absent", True)],
)
def test_an_unfiltered_bridge_is_refused(
    tmp_path: Path, setting: str, bridge: str, *, installed: bool
) -> None:
    for name in ("iptables-nft", "ip6tables-nft"):
        (tmp_path / name).write_text(FAKE_IPTABLES)
        (tmp_path / name).chmod(0o755)
    asked = tmp_path / "asked"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", ELSEWHERE, "elsewhere", setting, bridge],
        env={
            "PATH": f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin",
            "ASKED": str(asked),
            "RULES": RULES_SCRIPT,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) == installed, done.stderr
    assert (" -I INPUT" in asked.read_text()) == installed
    if not installed:
        assert "set net.bridge.bridge-nf-call-iptables to 1" in done.stderr
