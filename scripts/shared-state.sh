#!/usr/bin/env bash
# Makes the state directory a place from where a container's mounts reach the host, which is so
# already where a service manager made / shared. Until the next boot; `shared-state.sh undo` takes
# it back. The directory is PADDOCK_STATE_DIR, as in compose.yaml.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

state=$(compose_state)
[[ $state == /* ]] || fail "PADDOCK_STATE_DIR must be an absolute path, not $state"

# Of the latest mount there; empty when it isn't a mount point.
own_propagation() { findmnt -n -o PROPAGATION --mountpoint "$state" | tail -n 1; }

# A directory that is mounted over itself, as it is done here; another device is the operator's.
bound_to_itself() {
    [ -n "$(own_propagation)" ] &&
        [ "$(stat -c %d "$state")" = "$(stat -c %d "$(dirname "$state")")" ]
}

case ${1:-make} in
    make)
        [ "$(id -u)" = 0 ] || fail "the state directory is root's: run as root"
        [ -e "$state" ] || install -d -m 0700 "$state"
        state=$(realpath "$state")
        if [[ $(findmnt -n -o PROPAGATION -T "$state" | tail -n 1) == *shared* ]]; then exit 0; fi
        [ -n "$(own_propagation)" ] || mount --bind "$state" "$state"
        mount --make-shared "$state"
        step "made $state a shared mount"
        ;;
    undo)
        if [ -d "$state" ] && state=$(realpath "$state") && bound_to_itself; then
            umount "$state"
            step "$state is a mount no more"
        fi
        ;;
    *) fail "usage: scripts/shared-state.sh [make|undo]" ;;
esac
