"""The paths that every command may read besides the workspace and its programs' own files."""

# Programs on any system read these, and they contain nothing confidential.
BASELINE = (
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/proc/filesystems",
    "/run/paddock-ca",
    "/usr/lib/locale",
    "/usr/lib/ssl",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
)
# Where only a manifest's files may be read, what programs look for and do without is no context
# miss: the first are refused, and below the second are names that the image does not have.
REFUSED = (
    "/dev/tty",
    "/etc/inputrc",
    "/etc/magic",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/mounts",
    "/proc/self",
    "/proc/stat",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    # Character sets and ways to authenticate that the baseline has no need of.
    *(f"/usr/lib/{machine}-linux-gnu/gconv" for machine in ("x86_64", "aarch64")),
    *(f"/usr/lib/{machine}-linux-gnu/sasl2" for machine in ("x86_64", "aarch64")),
)
ABSENT = ("/bin", "/etc", "/lib", "/lib64", "/nonexistent", "/opt", "/sbin", "/usr")
# These are writable as well: they keep nothing.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
