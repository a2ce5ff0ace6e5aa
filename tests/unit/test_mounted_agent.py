"""A container with its mounted agent, as the engine is asked for it."""

from typing import Any

from orchestrator.host.engine.base import Bind, Limits, MountedAgent, SandboxSpec
from orchestrator.host.engine.docker_spec import container_config
from sandbox_agent.decide.mounted_agent import AGENT, ENVIRONMENT, PLACE, PYTHON, script

LIMITS = Limits(cpus=1, memory_bytes=2**28, pids=64, tmp_bytes=2**20, shm_bytes=0)


def config(agent: MountedAgent) -> dict[str, Any]:
    bind = Bind("/host/run", "/run/paddock", read_only=True)
    spec = SandboxSpec("x", "sha256:1", {}, (bind,), LIMITS, False, None, agent)
    return container_config(spec, "0a1b2c3d")


def test_nothing_of_the_image_decides() -> None:
    agent = MountedAgent(
        "/host/agents/1", AGENT, ("PATH", "LC_ALL", "LD_PRELOAD"), ("/data", "/var/lib/x")
    )
    found = config(agent)
    assert (found["Entrypoint"], found["Cmd"]) == (list(AGENT), [])
    assert (found["User"], found["WorkingDir"]) == ("0:0", "/")
    assert found["Healthcheck"] == {"Test": ["NONE"]}
    # Those without values are taken away.
    assert found["Env"] == [
        *(
            "HOME=/",
            "LC_ALL=C",
            "OPENSSL_CONF=/dev/null",
            f"PATH={ENVIRONMENT['PATH']}",
            "LD_PRELOAD",
        ),
    ]
    by_target = {each["Target"]: each for each in found["HostConfig"]["Mounts"]}
    assert (by_target[PLACE]["Source"], by_target[PLACE]["ReadOnly"]) == ("/host/agents/1", True)
    for volume in ("/data", "/var/lib/x"):
        assert (by_target[volume]["Type"], by_target[volume]["ReadOnly"]) == ("tmpfs", True)
    assert by_target["/run/paddock"]["Source"] == "/host/run"


def test_the_loader_of_the_copy_starts_its_interpreter() -> None:
    assert PYTHON[0].startswith(f"{PLACE}/")
    assert "--library-path" in PYTHON
    assert "--inhibit-cache" in PYTHON  # the image's cache names the image's libraries
    assert {"-I", "-S"} < set(PYTHON)
    assert script("a.b", "x")[-1] == "x"
