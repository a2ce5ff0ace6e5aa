#!/usr/bin/env bash
# Starts a gateway where its user may read what it runs from. Python or the checkout may be in
# root's home, which that user can't enter: in a mount namespace of its own, the closed directory is
# an empty one, with only those folders in it.
# Usage: gateway.sh DIRECTORY CLOSED_DIRECTORY_OR_NOTHING FOLDER… -- COMMAND…
set -euo pipefail
directory=$1 closed=$2
shift 2
folders=()
while [ "$1" != -- ]; do
    folders+=("$1")
    shift
done
shift
. "${BASH_SOURCE[0]%/*}/let_go.sh"
if [ -n "$closed" ]; then
    mount -t tmpfs -o mode=0755,nosuid,nodev gateway /run
    for index in "${!folders[@]}"; do
        mkdir "/run/$index"
        mount --rbind "${folders[index]}" "/run/$index"
    done
    mount -t tmpfs -o mode=0755,nosuid,nodev gateway "$closed"
    for index in "${!folders[@]}"; do
        mkdir -p "${folders[index]}"
        mount --rbind "/run/$index" "${folders[index]}"
    done
fi
cd "$directory"
exec "$@"
