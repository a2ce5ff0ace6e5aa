"""The report about a host, made before the control plane's container starts."""

import pytest

from orchestrator.ground.check import CheckStatus
from orchestrator.operate.checks.host_check import sharing_check, users_check

WHOLE = "         0          0 4294967295\n"


@pytest.mark.parametrize(
    ("uid_map", "status"),
    [
        (WHOLE, CheckStatus.OK),
        ("0 100000 65536\n", CheckStatus.FAILURE),  # rootless, or a container's own users
        ("0 0 65536\n", CheckStatus.FAILURE),  # too few
        ("0 1000 1\n1 100000 65536\n", CheckStatus.FAILURE),
    ],
)
def test_workspaces_need_uids_of_the_host(uid_map: str, status: CheckStatus) -> None:
    assert users_check(uid_map, 1_900_000_000, 65_536).status is status


def test_a_refusal_names_what_to_do() -> None:
    assert sharing_check("/state", None).ok
    private = sharing_check("/state", "path /state is mounted on / but it is not a shared mount")
    assert not private.ok
    assert "scripts/shared-state.sh" in str(private.remedy)
    other = sharing_check("/state", "/state is not bound at the host's own path")
    assert not other.ok
    assert "compose.yaml" in str(other.remedy)
