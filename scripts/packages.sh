# What this system calls the programs that the scripts need, and how it installs them: a function of
# its /etc/os-release. Sourced by sh and bash. HOST_ROOT is set by tests only: the root of the system
# that is looked at.

# A row for each need, a column for each system. An empty cell: the system has no package of its own.
package_names='
need       | debian             | jammy                   | fedora           | rhel             | amazon           | arch           | alpine             | suse
shell      | bash               | bash                    | bash             | bash             | bash             | bash           | bash               | bash
python     | python3 python3-venv | python3.11 python3.11-venv | python3       | python3.12       | python3.12       | python         | python3            | python312
engine     | docker.io iptables | docker.io iptables      | moby-engine      |                  | docker           | docker         | docker             | docker
apparmor   | apparmor           | apparmor                |                  |                  |                  | apparmor       | apparmor           | apparmor-parser
filesystem | e2fsprogs          | e2fsprogs               | e2fsprogs        | e2fsprogs        | e2fsprogs        | e2fsprogs      | e2fsprogs          | e2fsprogs
compose    | docker-compose     | docker-compose          | docker-compose   |                  |                  | docker-compose | docker-cli-compose | docker-compose
compiler   | gcc libc6-dev      | gcc libc6-dev           | gcc glibc-static | gcc glibc-static | gcc glibc-static | gcc            | gcc musl-dev       | gcc glibc-devel-static
browser    | chromium           |                         | chromium         |                  |                  | chromium       | chromium           | chromium
node       | nodejs npm         |                         | nodejs npm       | nodejs npm       | nodejs npm       | nodejs npm     | nodejs npm         | nodejs-default npm-default
filesystems | btrfs-progs xfsprogs | btrfs-progs xfsprogs    | btrfs-progs xfsprogs |                 |                  | btrfs-progs xfsprogs | btrfs-progs xfsprogs | btrfsprogs xfsprogs
foreign    | busybox-static musl | busybox-static musl      | busybox musl-libc |                |                  | busybox musl   | busybox-static musl |
crun       | crun               | crun                    | crun             | crun             |                  | crun           | crun               | crun
postgres   | postgresql         | postgresql              | postgresql-server | postgresql-server | postgresql15-server | postgresql | postgresql         | postgresql-server
emulator   | qemu-system-x86 mmdebstrap e2fsprogs | qemu-system-x86 mmdebstrap e2fsprogs | qemu-system-x86-core mmdebstrap e2fsprogs | | | qemu-system-x86 e2fsprogs | qemu-system-x86_64 e2fsprogs | qemu-x86 e2fsprogs
'

# What a need is, for people, and where it is found if the system has no package.
describe() {
    case $1 in
        shell) echo "bash" ;;
        python) echo "Python 3.11 or newer with its venv module" ;;
        engine) echo "a Docker engine (https://docs.docker.com/engine/install/)" ;;
        apparmor) echo "AppArmor's parser" ;;
        filesystem) echo "mkfs.ext4 (e2fsprogs)" ;;
        compose) echo "Compose (https://docs.docker.com/compose/install/)" ;;
        compiler) echo "gcc with the C library's static archive" ;;
        browser) echo "chromium" ;;
        node) echo "Node 18 or newer with npm" ;;
        filesystems) echo "mkfs.btrfs and mkfs.xfs" ;;
        foreign) echo "a static busybox, and musl" ;;
        crun) echo "the container runtime crun" ;;
        postgres) echo "a PostgreSQL server (https://www.postgresql.org/download/)" ;;
        emulator) echo "QEMU for x86 (qemu-system-x86_64), mmdebstrap and e2fsprogs" ;;
    esac
}

# The table's column for this system: by its ID, then by those that it says it is like.
system_name() {
    if [ "$(uname -s)" = Darwin ]; then
        echo macos
        return
    fi
    release=${HOST_ROOT:-}/etc/os-release
    for id in $(release_value ID) $(release_value ID_LIKE); do
        case $id in
            debian | ubuntu)
                case "$(release_value UBUNTU_CODENAME) $(release_value VERSION_CODENAME)" in
                    jammy*) echo jammy ;;
                    *) echo debian ;;
                esac
                return
                ;;
            fedora | arch | alpine) echo "$id" && return ;;
            rhel | centos) echo rhel && return ;;
            amzn) echo amazon && return ;;
            suse | opensuse*) echo suse && return ;;
        esac
    done
    echo unknown
}

# A value of os-release: `KEY=value` or `KEY="value"`.
release_value() {
    [ ! -r "$release" ] || sed -n "s/^$1=//p" "$release" | tr -d "\"'"
}

# The packages of a need here, in one line; nothing if the system has none of its own.
packages_of() {
    printf '%s' "$package_names" | awk -F '[|]' -v need="$1" -v system_name="$(system_name)" '
        { for (i = 1; i <= NF; i++) gsub(/^ +| +$/, "", $i) }
        $1 == "need" { for (i = 2; i <= NF; i++) if ($i == system_name) column = i }
        $1 == need && column { print $column }'
}

# The system's own command that installs packages.
install_command() {
    case $(system_name) in
        debian | jammy) echo apt-get install ;;
        fedora | rhel | amazon) echo dnf install ;;
        arch) echo pacman -S ;;
        alpine) echo apk add ;;
        suse) echo zypper install ;;
    esac
}

# The system's own command that starts the engine, now and at each boot.
start_command() {
    case $(system_name) in
        alpine) echo "rc-update add docker default && rc-service docker start" ;;
        *) echo "systemctl enable --now docker" ;;
    esac
}

# How to get what is needed, a line each: the command for packages, and what has none.
how_to_get() {
    wanted='' without=''
    for need in "$@"; do
        names=$(packages_of "$need")
        if [ -n "$names" ]; then
            wanted="$wanted $names"
        else
            without="$without $need"
        fi
    done
    [ -z "$wanted" ] || echo "$(install_command)$wanted"
    for need in $without; do echo "install $(describe "$need")"; done
    case " $* " in *" engine "*) start_command ;; esac
}

# The first Python that is new enough and makes virtual environments; PYTHON names the only one.
find_python() {
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
            2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

# Whether the kernel has AppArmor enabled, while the program that loads profiles is missing. Engines
# before 23 start no container then.
lacks_apparmor_parser() {
    [ "$(cat "${HOST_ROOT:-}/sys/module/apparmor/parameters/enabled" 2>/dev/null)" = Y ] &&
        ! command -v apparmor_parser >/dev/null
}

# Whether there is an engine, running or not, or another one is named.
has_engine() {
    [ -n "${PADDOCK_DOCKER_HOST:-${DOCKER_HOST:-}}" ] ||
        [ -S "${HOST_ROOT:-}/var/run/docker.sock" ] || command -v dockerd >/dev/null
}
