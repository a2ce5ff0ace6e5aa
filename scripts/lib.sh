# Functions that the set-up scripts share. Sourced by bash.
# Some ways of becoming root leave these directories out of PATH.
PATH=$PATH:${HOST_ROOT:-}/usr/sbin:${HOST_ROOT:-}/sbin
export PATH DEBIAN_FRONTEND=noninteractive
. scripts/packages.sh

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    cyan=$'\033[36;1m' red=$'\033[31;1m' dim=$'\033[2m' plain=$'\033[0m'
else
    cyan='' red='' dim='' plain=''
fi

step() { printf '%s\n' "${cyan}==>${plain} $*"; }

fail() {
    printf '%s\n' "${red}error:${plain} $*" >&2
    exit 1
}

# Shows a long command's output: all of it in a log, only the current line and errors on a
# terminal.
dimmed() {
    while IFS= read -r line; do
        if [ ! -t 1 ]; then
            printf '    %s\n' "$line"
        elif [[ $line =~ ^\ *(E:|Err|ERROR|error) ]]; then
            printf '\r\033[K    %s\n' "$line"
        else
            printf '\r\033[K    %s' "${dim}${line:0:$((${COLUMNS:-80} - 5))}${plain}"
        fi
    done
    if [ -t 1 ]; then printf '\r\033[K'; fi
}

# Whether missing packages can be installed: on Debian or Ubuntu, as root.
can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null &&
        case $(system_name) in debian | jammy) true ;; *) false ;; esac
}

# Installs what is needed here, or ends with this system's own commands for it.
require() {
    local names=''
    if can_install; then
        local need
        for need in "$@"; do names+=" $(packages_of "$need")"; done
        step "installing$names"
        # shellcheck disable=SC2086 # a list of words
        apt_install $names
        return
    fi
    fail "missing here: $(descriptions "$@"); as root:"$'\n'"$(how_to_get "$@" | sed 's/^/    /')"
}

# What the needs are, in one line.
descriptions() {
    for need in "$@"; do describe "$need"; done | paste -sd, - | sed 's/,/, /g'
}

apt_install() {
    apt-get -q -o DPkg::Lock::Timeout=120 update 2>&1 | dimmed
    apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" 2>&1 | dimmed
}

# The state directory of the Compose deployment, from the same sources that Compose uses.
compose_state() {
    local state=${PADDOCK_STATE_DIR:-}
    if [ -z "$state" ] && [ -e .env ]; then
        state=$(sed -n 's/^PADDOCK_STATE_DIR=//p' .env | tail -n 1)
    fi
    printf '%s\n' "${state:-/var/lib/paddock}"
}
