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
# Commands may also write to these, because they keep nothing.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
