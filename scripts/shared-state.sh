#!/usr/bin/env bash
# Makes the state directory a shared mount, so that a container's mounts below it reach the host.
# Nothing is needed where a service manager made / shared. The change lasts until the next boot, or
# until `shared-state.sh undo`. The directory is PADDOCK_STATE_DIR, as in compose.yaml.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

state=$(compose_state)
[[ $state == /* ]] || fail "PADDOCK_STATE_DIR must be an absolute path, not $state"

# The propagation of the latest mount there; empty if it is not a mount point.
own_propagation() { findmnt -n -o PROPAGATION --mountpoint "$state" | tail -n 1; }

# Whether the directory is mounted over itself, as done below; another device is the operator's.
bound_to_itself() {
    [ -n "$(own_propagation)" ] &&
        [ "$(stat -c %d "$state")" = "$(stat -c %d "$(dirname "$state")")" ]
}

case ${1:-make} in
    make)
        [ "$(id -u)" = 0 ] || fail "the state directory belongs to root: run as root"
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
            step "$state is no longer a mount"
        fi
        ;;
    *) fail "usage: scripts/shared-state.sh [make|undo]" ;;
esac
