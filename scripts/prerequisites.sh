#!/bin/sh
# Says at once everything that `make run` needs and this system lacks, with the system's own
# commands, and changes nothing. On Debian and Ubuntu, as root, the other scripts install what is
# missing, so there is nothing to say. For any sh: not every system has bash.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:${HOST_ROOT:-}/usr/sbin:${HOST_ROOT:-}/sbin
. scripts/packages.sh

if [ "$(system_name)" = macos ]; then
    cat >&2 <<'TEXT'
error: sandboxes need a Linux kernel, so Paddock runs in a Linux virtual machine here, for example:
    brew install lima
    limactl start --name=paddock template:debian-13
    limactl shell --workdir=/ paddock
In its shell, with git, make and this repository in a folder of the machine's own disk:
    sudo make run
docs/hosts.md says what works with Lima, Colima and Docker Desktop.
TEXT
    exit 1
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    case $(system_name) in debian | jammy) exit 0 ;; esac
fi

missing=''
command -v bash >/dev/null || missing="$missing shell"
find_python >/dev/null || missing="$missing python"
has_engine || missing="$missing engine"
[ -n "$missing" ] || exit 0
# Not demanded, but missed later.
command -v mkfs.ext4 >/dev/null || missing="$missing filesystem"
if lacks_apparmor_parser; then missing="$missing apparmor"; fi

{
    echo "error: this is missing here:"
    for need in $missing; do echo "    $(describe "$need")"; done
    case $(system_name) in
        debian | jammy) echo "As root, \`make run\` installs it. By hand, also as root:" ;;
        *) echo "Run this as root, then \`make run\` again, as root:" ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    how_to_get $missing | sed 's/^/    /'
} >&2
exit 1
