"""Requests to Docker, and how its answers are parsed."""

import json
import resource
from dataclasses import replace

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine import docker_kernel, docker_records, docker_seccomp
from orchestrator.host.engine.base import (
    Bind,
    ContainerState,
    Limits,
    MountedAgent,
    Rates,
    SandboxSpec,
)
from orchestrator.host.engine.docker_helper import network_helper
from orchestrator.host.engine.docker_network import Bridge
from orchestrator.host.engine.docker_spec import (
    container_config,
    host_config,
    refuse_dropped_limits,
    unknown_runtime,
)
from orchestrator.host.engine.fitness import unfit
from sandbox_agent.decide.facilities import Kernel

MIB = 2**20
AGENT = MountedAgent("/state/agents/1", ("/opt/paddock/lib/loader",))


def spec(shm_bytes: int = 0, tmp_exec: bool = False, network: str | None = None) -> SandboxSpec:
    return SandboxSpec(
        name="paddock-0123456789abcdef",
        image="paddock/sandbox:latest",
        labels={"paddock.session": "s1"},
        binds=(
            Bind("/state/run", "/run/paddock", read_only=True),
            Bind("/state/workspace", "/workspace", read_only=False),
        ),
        limits=Limits(
            cpus=0.5, memory_bytes=256 * MIB, pids=64, tmp_bytes=16 * MIB, shm_bytes=shm_bytes
        ),
        tmp_exec=tmp_exec,
        network=network,
        agent=AGENT,
    )


def test_the_container_is_confined() -> None:
    config = host_config(spec())
    assert config["CapDrop"] == ["ALL"]
    assert config["CapAdd"] == ["SETUID", "SETGID"]
    assert config["SecurityOpt"] == ["no-new-privileges", f"seccomp={docker_seccomp.usual()}"]
    assert config["ReadonlyRootfs"] is True
    assert config["Init"] is False
    assert config["RestartPolicy"] == {"Name": "no"}
    assert config["NetworkMode"] == "none"
    assert config["Tmpfs"]["/tmp"] == f"size={16 * MIB},mode=1777,nosuid,nodev,noexec"
    assert config["LogConfig"] == {
        "Type": "local",
        "Config": {"max-size": "64k", "max-file": "1", "compress": "false"},
    }
    assert "Privileged" not in config
    assert "OomKillDisable" not in config


def test_the_runtime_is_the_engines_default() -> None:
    assert "Runtime" not in host_config(spec())
    assert host_config(replace(spec(), runtime="runsc"))["Runtime"] == "runsc"


@pytest.mark.parametrize(
    ("runtime", "explanation", "told"),
    [
        ("runsc", "Unknown runtime specified runsc", True),
        ("runsc", "unknown or invalid runtime name: runsc", True),
        ("runsc", "OCI runtime create failed: no such file", False),
        ("runsc", None, False),
        (None, "Unknown runtime specified x", False),
    ],
)
def test_a_runtime_that_the_engine_has_not(
    runtime: str | None, explanation: str | None, told: bool
) -> None:
    error = unknown_runtime(runtime, explanation)
    assert (error is not None) is told
    assert error is None or "has no runtime runsc" in error.detail


def test_what_a_container_says_of_its_kernel() -> None:
    assert docker_kernel.parse("7 1 1 1\n") == Kernel(7, True, True, True)
    assert docker_kernel.parse("0 0 0 1") == Kernel(0, False, False, True)
    for said in ("", "7", "-1 1", "7 1 x", "Traceback: no 1"):
        with pytest.raises(EngineUnavailableError, match="could not examine"):
            docker_kernel.parse(said)
    host = docker_kernel.config("image", "0a1b2c3d", AGENT, "runsc")["HostConfig"]
    assert (host["Runtime"], host["CapDrop"], host["NetworkMode"]) == ("runsc", ["ALL"], "none")
    assert "Runtime" not in docker_kernel.config("image", "0a1b2c3d", AGENT, None)["HostConfig"]


def test_rates_of_the_disk_are_the_workspaces() -> None:
    assert not [name for name in host_config(spec()) if name.startswith("Blkio")]
    rates = Rates(disk_read=MIB, network_send=MIB)
    assert not [name for name in host_config(replace(spec(), rates=rates)) if "Blkio" in name]
    config = host_config(replace(spec(), rates=rates, disk="/dev/loop7"))
    assert config["BlkioDeviceReadBps"] == [{"Path": "/dev/loop7", "Rate": MIB}]
    assert "BlkioDeviceWriteBps" not in config
    config = host_config(replace(spec(), rates=Rates(disk_write=MIB), disk="/dev/loop7"))
    assert config["BlkioDeviceWriteBps"] == [{"Path": "/dev/loop7", "Rate": MIB}]
    with pytest.raises(EngineUnavailableError, match="write limit discarded"):
        refuse_dropped_limits(["... Block I/O BPS write limit discarded."])


def test_limits_use_quota_and_no_swap() -> None:
    config = host_config(spec())
    assert (config["CpuQuota"], config["CpuPeriod"]) == (50_000, 100_000)
    assert config["Memory"] == config["MemorySwap"] == 256 * MIB
    assert config["PidsLimit"] == 64
    assert "NanoCpus" not in config


def test_shared_memory_only_where_it_is_sized() -> None:
    assert host_config(spec())["IpcMode"] == "none"
    assert "ShmSize" not in host_config(spec())
    assert host_config(spec())["Tmpfs"]["/dev/mqueue"].startswith("ro,")
    shared = host_config(spec(shm_bytes=64 * MIB))
    assert (shared["IpcMode"], shared["ShmSize"]) == ("private", 64 * MIB)
    assert list(shared["Tmpfs"]) == ["/tmp"]


@pytest.mark.parametrize("shm_bytes", [0, 64 * MIB])
def test_kernel_objects_are_bounded(shm_bytes: int) -> None:
    config = host_config(spec(shm_bytes=shm_bytes))
    pages = shm_bytes // resource.getpagesize()
    assert config["Sysctls"]["kernel.shmall"] == str(pages)
    assert config["Sysctls"]["kernel.shm_rmid_forced"] == "1"
    (terminals,) = [mount for mount in config["Mounts"] if mount["Target"] == "/dev/pts"]
    assert "max=32" in terminals["VolumeOptions"]["DriverConfig"]["Options"]["o"].split(",")


def test_what_the_engine_hides_stays_hidden() -> None:
    hidden = host_config(spec())["MaskedPaths"]
    assert {"/proc/kcore", "/proc/keys", "/sys/firmware", "/proc/timer_list"} <= set(hidden)
    assert {"/sys/block", "/sys/devices/virtual/block", "/proc/cmdline"} <= set(hidden)


def test_high_has_a_network_and_an_executable_tmp() -> None:
    config = host_config(spec(tmp_exec=True, network="paddock-open-0a1b2c3d"))
    assert config["NetworkMode"] == "paddock-open-0a1b2c3d"
    assert config["Tmpfs"]["/tmp"].endswith("nosuid,nodev,exec")


def test_binds_do_not_propagate() -> None:
    mounts = [mount for mount in host_config(spec())["Mounts"] if mount["Type"] == "bind"]
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in mounts] == [
        ("/state/run", "/run/paddock", True),
        ("/state/workspace", "/workspace", False),
        ("/state/agents/1", "/opt/paddock", True),
    ]
    assert {m["BindOptions"]["Propagation"] for m in mounts} == {"rprivate"}


def test_labels_carry_the_instance() -> None:
    config = container_config(spec(), "0a1b2c3d")
    assert config["Labels"] == {"paddock.session": "s1", "paddock.instance": "0a1b2c3d"}
    assert config["Image"] == "paddock/sandbox:latest"
    assert (config["Entrypoint"], config["Cmd"]) == (["/opt/paddock/lib/loader"], [])


def test_a_limit_that_the_engine_ignores_is_refused() -> None:
    refuse_dropped_limits(None)
    refuse_dropped_limits(["Your kernel does not support swap limit capabilities."])
    with pytest.raises(EngineUnavailableError, match="PIDs limit discarded"):
        refuse_dropped_limits(["The cgroup is not mounted. PIDs limit discarded."])


def test_names_of_the_open_network_fit() -> None:
    network = Bridge("0a1b2c3d")
    assert network.name == "paddock-open-0a1b2c3d"
    assert network.bridge == "pdk0a1b2c3d"
    assert len(network.bridge) <= 15


def test_the_helper_has_no_more_than_it_needs() -> None:
    config = network_helper("image", "0a1b2c3d", "host", "script", "install", "pdk0a1b2c3d")
    assert config["Entrypoint"][-2:] == ["install", "pdk0a1b2c3d"]
    assert config["HostConfig"]["CapDrop"] == ["ALL"]
    assert config["HostConfig"]["CapAdd"] == ["NET_ADMIN", "NET_RAW"]
    assert config["HostConfig"]["ReadonlyRootfs"] is True
    assert "Mounts" not in config["HostConfig"]


def test_engine_info_names_what_can_not_be_confined() -> None:
    info = docker_records.engine_info(
        {
            "ServerVersion": "27.1",
            "CgroupVersion": "2",
            "SecurityOptions": [
                *("name=seccomp,profile=builtin", "name=rootless", "name=userns", "name=selinux"),
            ],
        },
        {"Components": [{"Name": "Podman Engine", "Version": "4.3.1"}, {"Name": "Conmon"}]},
    )
    assert (info.version, info.cgroup_version) == ("27.1", "2")
    assert info.rootless
    assert info.userns_remap
    assert info.selinux
    assert info.podman
    plain = docker_records.engine_info(
        {"ServerVersion": "20.10", "SecurityOptions": None}, {"Components": [{"Name": "Engine"}]}
    )
    assert not any((plain.rootless, plain.userns_remap, plain.selinux, plain.podman))
    assert not plain.apparmor
    assert docker_records.engine_info({"SecurityOptions": ["name=apparmor"]}, {}).apparmor


@pytest.mark.parametrize(
    ("options", "filtered"),
    [
        (["name=seccomp,profile=default"], True),
        (["name=apparmor", "name=seccomp,profile=builtin"], True),
        (["name=seccomp,profile=/etc/docker/our.json"], True),
        (["name=seccomp,profile=unconfined"], False),
        (["name=apparmor"], False),
        (None, False),
    ],
)
def test_an_engine_says_whether_it_filters_system_calls(
    options: list[str] | None, filtered: bool
) -> None:
    info = docker_records.engine_info({"SecurityOptions": options}, {})
    assert info.seccomp is filtered
    found = unfit(info)
    assert (found is None) is filtered
    assert found is None or "seccomp-profile" in found.remedy


@pytest.mark.parametrize(
    ("status", "text", "state", "exit_code"),
    [
        ("running", "Up 2 minutes", ContainerState.RUNNING, None),
        ("paused", "Up 2 minutes (Paused)", ContainerState.PAUSED, None),
        ("created", "Created", ContainerState.CREATED, None),
        ("exited", "Exited (137) 5 seconds ago", ContainerState.EXITED, 137),
        ("dead", "Dead", ContainerState.EXITED, None),
    ],
)
def test_listed_containers(
    status: str, text: str, state: ContainerState, exit_code: int | None
) -> None:
    found = docker_records.listed(
        {"Id": "c1", "Names": ["/paddock-1"], "Labels": None, "State": status, "Status": text}
    )
    assert (found.id, found.name, found.labels) == ("c1", "paddock-1", {})
    assert (found.state, found.exit_code) == (state, exit_code)


def test_an_event_keeps_labels_only() -> None:
    event = docker_records.event(
        {
            "Action": "die",
            "Actor": {
                "ID": "c1",
                "Attributes": {
                    "image": "i",
                    "name": "n",
                    "exitCode": "137",
                    "paddock.session": "s",
                },
            },
        }
    )
    assert event.labels == {"paddock.session": "s"}
    assert (event.action, event.container_id, event.exit_code) == ("die", "c1", 137)


def test_a_sandbox_reaches_itself_by_every_name_and_address() -> None:
    alone, connected = host_config(spec(), ipv6=True), host_config(spec(network="open"))
    assert alone["Sysctls"]["net.ipv6.conf.lo.disable_ipv6"] == "0"
    assert "net.ipv6.conf.lo.disable_ipv6" not in connected["Sysctls"]
    assert (alone["ExtraHosts"], connected["ExtraHosts"]) == (["sandbox:127.0.0.1"], [])
    assert container_config(spec(), "0a1b2c3d")["Hostname"] == "sandbox"


def test_the_usual_profile_permits_a_list_of_calls() -> None:
    rules = json.loads(docker_seccomp.usual())
    assert rules["defaultAction"] == "SCMP_ACT_ERRNO"
    # Without a list of architectures, runtimes compile it for the machine's own only.
    assert not {"architectures", "archMap"} & rules.keys()
    permitted = {
        name
        for rule in rules["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and not rule["args"]
        for name in rule["names"]
    }
    # What the agent and its guards use beside usual programs.
    assert {"seccomp", "landlock_restrict_self", "setresuid", "openat2", "ptrace"} <= permitted
    denied = {"mount", "bpf", "keyctl", "open_by_handle_at", "io_uring_setup", "userfaultfd"}
    decided = {"clone", "clone3", "unshare", "setns", "socket", "personality"}
    assert not permitted & (denied | decided | set(docker_seccomp._DENIED))


def test_a_profile_that_somebody_gave_the_engine_stays() -> None:
    kept = host_config(spec(), engines_profile=True)["SecurityOpt"]
    assert kept == ["no-new-privileges"]
    for option, expected in (
        ("name=seccomp,profile=default", False),
        ("name=seccomp,profile=builtin", False),
        ("name=seccomp,profile=/etc/docker/our.json", True),
        ("name=apparmor", True),
    ):
        assert docker_records.has_set_profile({"SecurityOptions": [option]}) is expected, option
    assert docker_records.has_set_profile({"SecurityOptions": None})


def test_namespaces_take_a_profile_of_their_own() -> None:
    given = host_config(replace(spec(), namespaces=True))
    privileges, profile = given["SecurityOpt"]
    assert privileges == "no-new-privileges"
    assert (given["CapDrop"], given["CapAdd"]) == (["ALL"], ["SETUID", "SETGID"])
    rules = json.loads(profile.removeprefix("seccomp="))
    assert rules["defaultAction"] == "SCMP_ACT_ALLOW"
    refused = {name for rule in rules["syscalls"] if not rule["args"] for name in rule["names"]}
    assert {"mount", "bpf", "keyctl", "open_by_handle_at", "clone3"} <= refused
    # The two calls may be about a user namespace, and nothing else.
    (unshare,) = [rule["args"] for rule in rules["syscalls"] if "unshare" in rule["names"]]
    (setns,) = [rule["args"] for rule in rules["syscalls"] if "setns" in rule["names"]]
    other = {"op": "SCMP_CMP_NE", "value": 0x10000000, "valueTwo": 0}
    assert (unshare, setns) == ([{"index": 0, **other}], [{"index": 1, **other}])


def test_where_an_images_layers_are() -> None:
    driver = {"Name": "overlay2", "Data": {"UpperDir": "/top", "LowerDir": "/middle:/bottom"}}
    found = docker_records.image({"Id": "sha256:1", "GraphDriver": driver})
    assert found.layers == ("/top", "/middle", "/bottom")
    only = {"Name": "overlay2", "Data": {"UpperDir": "/top"}}
    assert docker_records.image({"Id": "sha256:1", "GraphDriver": only}).layers == ("/top",)
    for other in ({"Name": "btrfs", "Data": {"UpperDir": "/top"}}, None):
        assert docker_records.image({"Id": "sha256:1", "GraphDriver": other}).layers == ()
