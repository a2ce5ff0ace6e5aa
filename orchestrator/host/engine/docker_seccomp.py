"""The containers' system call profiles, which hold for the agent and for its commands.

Both are for the machine's own ABI only. The calls of another one end their process, as the guard's
filter ends every command that makes one, so nothing can need them. The runtime compiles the profile
at each start, and each further ABI costs it milliseconds.
"""

import json
from collections.abc import Sequence
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
# What programs use. A call that is not here, also one that a later kernel has, is refused.
_PERMITTED = (
    *("accept", "accept4", "access", "alarm", "arch_prctl", "bind", "brk", "cachestat", "capget"),
    *("capset", "chdir", "chmod", "chown", "clock_getres", "clock_gettime", "clock_nanosleep"),
    *("close", "close_range", "connect", "copy_file_range", "creat", "dup", "dup2", "dup3"),
    *("epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait"),
    *("eventfd", "eventfd2", "execve", "execveat", "exit", "exit_group", "faccessat", "faccessat2"),
    *("fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat"),
    *("fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fork", "fremovexattr"),
    *("fsetxattr", "fstat", "fstatat", "fstatfs", "fsync", "ftruncate", "futex", "futex_requeue"),
    *("futex_wait", "futex_waitv", "futex_wake", "futimesat", "get_robust_list", "get_thread_area"),
    *("getcpu", "getcwd", "getdents", "getdents64", "getegid", "geteuid", "getgid", "getgroups"),
    *("getitimer", "getpeername", "getpgid", "getpgrp", "getpid", "getppid", "getpriority"),
    *("getrandom", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "getsockname"),
    *("getsockopt", "gettid", "gettimeofday", "getuid", "getxattr", "inotify_add_watch"),
    *("inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel"),
    *("io_destroy", "io_getevents"),
    *("io_pgetevents", "io_setup", "io_submit", "ioctl", "ioprio_get", "ioprio_set", "kill"),
    *("landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "lchown"),
    *("lgetxattr", "link", "linkat", "listen", "listxattr", "llistxattr", "lremovexattr", "lseek"),
    *("lsetxattr", "lstat", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "mincore"),
    *("mkdir", "mkdirat", "mknod", "mknodat", "mlock", "mlock2", "mlockall", "mmap", "modify_ldt"),
    *("mprotect", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend"),
    *("mq_unlink", "mremap", "mseal", "msgctl", "msgget", "msgrcv", "msgsnd", "msync", "munlock"),
    *("munlockall", "munmap", "nanosleep", "newfstatat", "open", "openat", "openat2", "pause"),
    *("pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc", "pkey_free"),
    *("pkey_mprotect", "poll", "ppoll", "prctl", "pread64", "preadv", "preadv2", "prlimit64"),
    *("process_mrelease", "process_vm_readv", "process_vm_writev", "pselect6", "ptrace"),
    *("pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv"),
    *("recvfrom", "recvmmsg", "recvmsg", "remap_file_pages", "removexattr", "rename", "renameat"),
    *("renameat2", "restart_syscall", "rmdir", "rseq", "rt_sigaction", "rt_sigpending"),
    *("rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait"),
    *("rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity"),
    *("sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval"),
    *("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield"),
    *("seccomp", "select", "semctl", "semget", "semop", "semtimedop", "sendfile", "sendmmsg"),
    *("sendmsg", "sendto", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid"),
    *("setfsuid", "setgid", "setgroups", "setitimer", "setpgid", "setpriority", "setregid"),
    *("setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setsockopt", "setuid"),
    *("setxattr", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "sigaltstack", "signalfd"),
    *("signalfd4", "socketpair", "splice", "stat", "statfs", "statx", "symlink", "symlinkat"),
    *("sync", "sync_file_range", "sync_file_range2", "syncfs", "sysinfo", "tee", "tgkill", "time"),
    *("timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime"),
    *("timerfd_create", "timerfd_gettime", "timerfd_settime", "times", "tkill", "truncate"),
    *("umask", "uname", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vfork", "vmsplice"),
    *("wait4", "waitid", "write", "writev"),
)
_PERSONALITIES = (0, 0xFFFFFFFF)  # the usual one, and the query for the current one


def usual() -> str:
    """The profile of most sandboxes: it permits a list of calls, in the form that engines take."""
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "syscalls": [
            _permitted(_PERMITTED),
            # Its flags are in memory, where a filter can't see them; C libraries fall back.
            _refused(("clone3",), error=_ENOSYS),
            _permitted(("clone",), _argument(0, "SCMP_CMP_MASKED_EQ", sum(_NEW))),
            *(
                _permitted(("personality",), _argument(0, "SCMP_CMP_EQ", value))
                for value in _PERSONALITIES
            ),
            # A rule compares an argument once: all families but these two, in three rules.
            _permitted(("socket",), _argument(0, "SCMP_CMP_LT", _AF_ALG)),
            _permitted(("socket",), _argument(0, "SCMP_CMP_EQ", _AF_ALG + 1)),
            _permitted(("socket",), _argument(0, "SCMP_CMP_GT", _AF_VSOCK)),
        ],
    }
    return json.dumps(profile, separators=(",", ":"))


def with_namespaces() -> str:
    """The profile of levels whose commands are root inside.

    The usual one refuses user namespaces. This one permits the two calls that the agent and its
    guards need for them, and denies what administers a kernel. Commands never make these calls: the
    guard's filter denies them. Kernel, capabilities and no-new-privileges hold as in every sandbox.
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


def _permitted(names: Sequence[str], *arguments: dict[str, Any]) -> dict[str, Any]:
    return {"names": list(names), "action": "SCMP_ACT_ALLOW", "args": list(arguments)}


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
