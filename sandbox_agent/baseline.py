"""What every command may read besides the workspace and what its programs are made of."""

# What programs read of any system, and nothing that one could want to keep from them.
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
    "/usr/lib/locale",
    "/usr/lib/ssl",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
)
# These may be written to as well: nothing is kept there.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
