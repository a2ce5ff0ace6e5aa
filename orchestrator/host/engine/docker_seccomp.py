"""The containers' system call profile at levels whose commands are root inside.

The engine's own profile refuses user namespaces to a container without CAP_SYS_ADMIN. This one
permits the two calls that the agent and its guards need for them, and denies what administers a
kernel. Commands never make these calls: the guard's filter denies them. Kernel, capabilities and
no-new-privileges hold as in every sandbox.
"""

import json
from typing import Any

_EPERM, _ENOSYS = 1, 38
_NEW_USER = 0x10000000
# Mount, cgroup, UTS, IPC, user, pid and network namespaces, as flags of `clone`; time is a flag of
# `clone3` and `unshare` only.
_NEW = (0x00020000, 0x02000000, 0x04000000, 0x08000000, _NEW_USER, 0x20000000, 0x40000000)
# What is left of the kernel's interfaces for administrators, and what few programs need and has had
# many flaws.
_DENIED = (
    *("acct", "add_key", "adjtimex", "bpf", "clock_adjtime", "clock_adjtime64"),
    *("clock_settime", "clock_settime64", "create_module", "delete_module", "fanotify_init"),
    *("file_setattr", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick"),
    *("get_kernel_syms", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup"),
    *("ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie"),
    *("mbind", "migrate_pages", "mount", "mount_setattr", "move_mount", "move_pages"),
    *("name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree", "open_tree_attr"),
    *("perf_event_open", "pivot_root", "process_madvise", "query_module", "quotactl"),
    *("quotactl_fd", "reboot", "request_key", "set_mempolicy", "set_mempolicy_home_node"),
    *("setdomainname", "sethostname", "settimeofday", "stime", "swapoff", "swapon", "sysfs"),
    *("syslog", "umount", "umount2", "uselib", "userfaultfd", "ustat", "vhangup", "vm86"),
    *("vm86old", "_sysctl"),
)
_AF_ALG, _AF_VSOCK = 38, 40


def with_namespaces() -> str:
    """The profile as the engine takes it.

    The calls of another ABI than the machine's own are not in it, and end their process.
    """
    profile = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            _refused(_DENIED),
            # Its flags are in memory, where a filter can't see them; C libraries fall back.
            _refused(("clone3",), error=_ENOSYS),
            *(
                _refused(("clone",), _argument(0, "SCMP_CMP_MASKED_EQ", flag, flag))
                for flag in _NEW
            ),
            _refused(("unshare",), _argument(0, "SCMP_CMP_NE", _NEW_USER)),
            _refused(("setns",), _argument(1, "SCMP_CMP_NE", _NEW_USER)),
            *(
                _refused(("socket",), _argument(0, "SCMP_CMP_EQ", family))
                for family in (_AF_ALG, _AF_VSOCK)
            ),
        ],
    }
    return json.dumps(profile, separators=(",", ":"))


def _refused(
    names: tuple[str, ...], *arguments: dict[str, Any], error: int = _EPERM
) -> dict[str, Any]:
    return {
        "names": list(names),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": error,
        "args": list(arguments),
    }


def _argument(index: int, comparison: str, value: int, masked: int = 0) -> dict[str, Any]:
    return {"index": index, "op": comparison, "value": value, "valueTwo": masked}
