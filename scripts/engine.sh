#!/usr/bin/env bash
# Checks that a Docker engine answers and that workspaces can be created as file systems. On
# Debian and Ubuntu, as root, it installs what is missing; elsewhere it says how to. As root, it
# starts an engine that is installed. It never needs the program `docker`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

log=/var/log/dockerd.log
run=${HOST_ROOT:-}/run

# Waits up to $1 seconds.
answers() { .venv/bin/python -m images engine --wait "$1"; }

missing=()
has_engine || missing+=(engine)
command -v mkfs.ext4 >/dev/null || missing+=(filesystem)
# Also for an engine that is already there: it loads its profile when it starts a container.
if lacks_apparmor_parser; then missing+=(apparmor); fi
if [ ${#missing[@]} != 0 ]; then
    if can_install || ! has_engine; then
        require "${missing[@]}"
    else
        step "missing here: $(descriptions "${missing[@]}"); as root: $(how_to_get "${missing[@]}")"
    fi
fi

answers 0 && exit 0

host=${PADDOCK_DOCKER_HOST:-${DOCKER_HOST:-}}
[ -z "$host" ] || fail "the Docker engine at $host does not answer: start it, or unset DOCKER_HOST"
[ "$(id -u)" = 0 ] || fail "the Docker engine does not answer this user: run as root"

step "starting the Docker engine"
if [ -d "$run/systemd/system" ]; then
    # The unit is started when the engine is ready; one that is being started is waited for.
    if ! systemctl start docker.service; then
        journalctl --no-pager -n 15 -u docker.service | dimmed
        fail "systemd can't start docker.service, see above"
    fi
    log=
elif command -v rc-service >/dev/null && [ -d "$run/openrc" ]; then
    rc-service docker start || fail "OpenRC can't start docker"
    log=
else
    setsid nohup dockerd </dev/null >>"$log" 2>&1 &
fi
answers 60 && exit 0
[ -z "$log" ] || tail -n 15 "$log" | dimmed
fail "the Docker engine does not answer${log:+: its log is $log}"
