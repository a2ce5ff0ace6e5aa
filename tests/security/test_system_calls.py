"""System calls, sockets and privileges that no command needs, at every level."""

import asyncio
from contextlib import closing

import docker
import pytest

from orchestrator.host.engine.docker_seccomp import usual
from tests.support.arsenal import Arsenal, attack_name
from tests.support.attack import Attacks, parse_report
from tests.support.attempts import attempt, attempts
from tests.support.limits import PROGRAM_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@attempts(
    {
        "by_interrupt": "the canary opened by `int 0x80`",
        "by_interrupt_harmless": "any call by `int 0x80`",
        "by_x32": "the canary opened by an x32 call",
        "by_x32_harmless": "any x32 call",
        "ring": "io_uring_setup, which could open and connect out of the filter's sight",
        "fault_handler": "userfaultfd",
        "bpf_map": "bpf: a map",
        "bpf_program": "bpf: a program",
        "counter": "perf_event_open",
        "key_search": "keyctl",
        "key_add": "add_key",
        "key_request": "request_key",
        "handle_made": "name_to_handle_at",
        "handle_opened": "open_by_handle_at",
        "trace_attach": "ptrace: attach to a child",
        "trace_seize": "ptrace: seize a child",
        "trace_me": "ptrace: be traced",
        "vm_read": "process_vm_readv from a child",
        "vm_write": "process_vm_writev to a child",
        "descriptor_taken": "pidfd_getfd from a child",
        "mount_tmpfs": "mount: a file system",
        "mount_bind": "mount: the root once more",
        "remount": "mount: /tmp without noexec",
        "unmount": "umount2: /etc/passwd uncovered",
        "root_pivoted": "pivot_root",
        "root_changed": "chroot",
        "tree_opened": "open_tree: a copy of the root",
        "tree_path": "open_tree: an O_PATH descriptor",
        "mount_moved": "move_mount",
        "system_opened": "fsopen",
        "system_picked": "fspick",
        "flags_changed": "mount_setattr: /tmp without noexec",
        "unshare_user": "unshare: a user namespace",
        "unshare_mount": "unshare: a mount namespace",
        "unshare_network": "unshare: a network namespace",
        "unshare_pid": "unshare: a process namespace",
        "clone_user": "clone: into a user namespace",
        "clone3_user": "clone3: into a user namespace",
        "namespace_entered": "setns: the agent's mount namespace",
        "own_namespace_entered": "setns: one's own namespace",
        "typed_to_tty": "TIOCSTI: input for the controlling terminal",
        "typed_to_console": "TIOCSTI: input for the console",
        "typed_to_input": "TIOCSTI: input for the standard input",
        "typed_to_own_terminal": "TIOCSTI: input for a terminal of one's own",
        "selected": "TIOCLINUX",
    },
    layer="seccomp",
)
async def test_denied_call(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "calls")).stopped(name)


@attempts(
    {
        "memory_file": "memfd_create",
        "secret_memory": "memfd_secret",
        "segment": "SysV shared memory, which would outlive its command",
        "semaphores": "SysV semaphores",
        "queue": "a SysV message queue",
        "queue_with_a_name": "a POSIX message queue",
    },
    layer="seccomp",
    levels="low medium",
)
async def test_memory_without_a_name(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "calls")).stopped(name)


@attempts(
    {
        "user_root": "setuid(0)",
        "group_root": "setgid(0)",
        "all_root": "setresuid(0, 0, 0)",
        "groups_root": "setgroups",
        "other_user": "setuid to another session's uid",
        "capabilities": "capset: every capability",
        "ambient": "an ambient capability",
        "privileges_again": "no_new_privs switched off",
        "secure_bits": "PR_SET_SECUREBITS",
        "filter_off": "the filter switched off",
        "mapping_changed": "PR_SET_MM",
        "higher_limit": "more open files than the limit",
        "more_processes": "more processes than the limit",
        "priority": "a higher priority",
        "real_time": "real-time scheduling",
        "ports": "iopl",
        "host_name": "sethostname",
        "clock_set": "clock_settime",
        "kernel_log": "the kernel's log",
        "restarted": "reboot",
        "module_loaded": "init_module",
        "swapped": "swapon",
        "accounted": "acct",
        "watched": "fanotify_init",
        "quota": "quotactl",
    },
    layer="uid without capabilities",
)
async def test_privilege(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "calls")).stopped(name)


@attempts(
    {
        "vsock": "AF_VSOCK, to the host of a virtual machine",
        "vsock datagrams": "AF_VSOCK datagrams",
        "netlink audit": "AF_NETLINK: audit",
        "netlink events": "AF_NETLINK: device events",
        "packets": "AF_PACKET",
        "crypto": "AF_ALG",
        "raw": "raw ICMP",
        "raw IPv6": "raw ICMPv6",
        "raw IP": "raw IP",
        "MPTCP": "MPTCP, which the kernel's rules for TCP do not see",
        "MPTCP IPv6": "MPTCP over IPv6",
        "SCTP": "SCTP",
        "SCTP packets": "SCTP as packets",
        "DCCP": "DCCP",
        "UDP-Lite": "UDP-Lite",
        "SMC": "SMC",
        "default of packets": "a socket of packets with its default protocol, SCTP",
        "default of DCCP": "a socket of DCCP's kind with its default protocol",
        "pair of another family": "socketpair of another family",
    },
    layer="seccomp",
)
async def test_socket(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "sockets")).stopped(name)


@attempt("AF_NETLINK: routes and interfaces", layer="seccomp", levels="low medium")
async def test_listing_interfaces(attacks: Attacks, level: str) -> None:
    (await attacks.report(level, "sockets")).stopped("netlink routes")


@attempt("a network interface taken down", layer="uid without capabilities")
async def test_changing_interfaces(attacks: Attacks, level: str) -> None:
    (await attacks.report(level, "sockets")).stopped("interface down")


@attempt("every other family and kind of socket, by number", layer="seccomp")
async def test_every_family_of_sockets(attacks: Attacks, level: str) -> None:
    report = await attacks.report(level, "sockets")
    tried = {name for name in report.refused if name.startswith("family")}
    assert len(tried) == (64 - 4) * 5
    assert {report.refused[name] for name in tried} == {"Address family not supported by protocol"}


@attempts(
    {
        "internet": "TCP to the Internet",
        "internet by IPv6": "TCP to the Internet over IPv6",
        "metadata": "TCP to a metadata service",
        "host": "TCP to the host",
        "datagram": "UDP to a name server",
        "datagram to the host": "UDP to the host",
        "broadcast": "UDP broadcast",
        "multicast": "UDP multicast",
        "fast open": "data sent by TCP Fast Open",
    },
    layer="network namespace",
    levels="low medium",
)
async def test_network(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "sockets")).stopped(name)


@attempts(
    {
        "control socket": "the sandbox agent's control socket",
        "control socket by /proc": "… through /proc/1/root",
        "engine's socket": "the container engine's socket",
    },
    layer="uid, mounts",
)
async def test_socket_with_a_path(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "sockets")).stopped(name)


async def test_the_attempts_work_where_nothing_is_filtered(arsenal: Arsenal) -> None:
    """In a plain container without the engine's filter. Other attempts depend on the host."""
    found = [asyncio.to_thread(_run, arsenal, name, "unconfined") for name in ("calls", "sockets")]
    worked = frozenset().union(*await asyncio.gather(*found))
    assert worked >= {
        "memory_file",
        "segment",
        "semaphores",
        "queue",
        "trace_attach",
        "trace_seize",
        "trace_me",
        "vm_read",
        "vm_write",
        "descriptor_taken",
        "tree_path",
        "netlink routes",
    }


async def test_the_containers_profile_alone_stops_what_no_agent_needs(arsenal: Arsenal) -> None:
    """What holds for the agent, too: no namespaces, no kernel's interfaces, no other ABI."""
    found = [asyncio.to_thread(_run, arsenal, name, usual()) for name in ("calls", "sockets")]
    calls, sockets = await asyncio.gather(*found)
    assert calls >= {"memory_file", "segment", "semaphores", "queue", "trace_me"}
    assert "netlink routes" in sockets
    assert not calls & {
        *("by_interrupt", "by_interrupt_harmless", "by_x32", "by_x32_harmless"),
        *("ring", "fault_handler", "bpf_map", "counter", "key_search", "key_add", "key_request"),
        *("handle_made", "handle_opened", "descriptor_taken", "mount_tmpfs", "remount"),
        *("root_changed", "tree_opened", "tree_path", "system_opened", "secret_memory"),
        *("unshare_user", "unshare_network", "clone_user", "clone3_user", "namespace_entered"),
    }
    assert not sockets & {"vsock", "vsock datagrams", "crypto"}


def _run(arsenal: Arsenal, program: str, profile: str) -> frozenset[str]:
    with closing(docker.APIClient(version="auto", timeout=PROGRAM_SECONDS)) as client:
        container = client.create_container(
            arsenal.image,
            entrypoint=[f"/usr/local/bin/{attack_name(program)}"],
            user="1234567",
            working_dir="/tmp",
            host_config=client.create_host_config(
                security_opt=[f"seccomp={profile}"], network_mode="none"
            ),
        )
        try:
            client.start(container)
            client.wait(container, timeout=PROGRAM_SECONDS)
            return parse_report(client.logs(container).decode(errors="replace")).worked
        finally:
            client.remove_container(container, v=True, force=True)
