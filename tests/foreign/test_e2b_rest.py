"""E2B's SDKs outside of sandboxes: trials of what they offer, written from their documents."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.foreign.conftest import Keep
from tests.foreign.environments import environment
from tests.foreign.node_packages import installed, trials
from tests.foreign.outcomes import judged
from tests.foreign.suites import PROGRAMS, outcomes
from tests.foreign.tls_front import front
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE = {"e2b": "2.51.0", "@e2b/code-interpreter": "2.8.0"}
SUITE = "trials: sandboxes, time-outs, pauses, lists, snapshots, forks, volumes"
DOMAIN = "sandboxes.test"
LEVEL = "high, medium, low"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[Server]:
    settings = {
        "PADDOCK_IMAGE": sandbox_image,
        "PADDOCK_COMPAT": "e2b",
        "PADDOCK_WALL_TIMEOUT_MAX": "86400",
    }
    async with leaving_nothing(**settings) as running:
        yield running


async def test_python(client: Path, plane: Server, keep: Keep, tmp_path: Path) -> None:
    found = await outcomes(environment("e2b-inside", client), "trials_e2b_rest", plane, tmp_path)
    version = "e2b 2.63.0 (PyPI)"
    keep(judged(found, {}, client="E2B", version=version, suite=SUITE, level=LEVEL))


async def test_javascript(plane: Server, keep: Keep, tmp_path: Path) -> None:
    variables = {"PADDOCK_URL": plane.url, "PADDOCK_KEY": plane.key}
    program = PROGRAMS / "trials_e2b_rest.test.mjs"
    found = await trials(program, await installed(NODE), variables, tmp_path)
    version = "e2b 2.51.0 (npm)"
    keep(
        judged(
            found,
            {},
            client="E2B",
            version=version,
            suite=SUITE + ", from JavaScript",
            level="high",
        )
    )


async def test_host_names(
    sandbox_image: str, client: Path, keep: Keep, tmp_path: Path, unused_tcp_port: int
) -> None:
    """The set-up of the documents: a reverse proxy with TLS, and names below a domain.

    SDKs before 2.0 know no other.
    """
    ports = f"127.0.0.1:{unused_tcp_port}"
    settings = {
        "PADDOCK_IMAGE": sandbox_image,
        "PADDOCK_COMPAT": "e2b",
        "PADDOCK_PREVIEW_LISTEN": ports,
        "PADDOCK_PREVIEW_DOMAIN": DOMAIN,
        "PADDOCK_PREVIEW_URL": f"https://{DOMAIN}",
        "PADDOCK_ALLOWED_HOSTS": f"api.{DOMAIN}",
    }
    async with (
        leaving_nothing(**settings) as plane,
        front(DOMAIN, plane.url, f"http://{ports}", tmp_path) as shown,
    ):
        variables = {
            "TRIAL_DOMAIN": DOMAIN,
            "TRIAL_PROXY": shown.proxy,
            "SSL_CERT_FILE": str(shown.roots),
        }
        for name, program, version in (
            ("e2b-inside", "trials_e2b_hosts", "e2b 2.63.0 (PyPI)"),
            ("e2b-older", "trials_e2b_older", "e2b 1.5.0 (PyPI)"),
        ):
            found = await outcomes(
                environment(name, client), program, plane, tmp_path, variables=variables
            )
            suite = f"trials: host names below a domain, {version}"
            keep(judged(found, {}, client="E2B", version=version, suite=suite, level="high"))
