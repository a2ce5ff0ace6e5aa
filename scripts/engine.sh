#!/usr/bin/env bash
# Checks that a Docker engine answers and that workspaces can be created as file systems. On
# Debian and Ubuntu, as root, it installs what is missing and starts the engine; elsewhere it
# reports what to install.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

log=/var/log/dockerd.log
install_page=https://docs.docker.com/engine/install/

# Waits up to $1 seconds.
answers() { .venv/bin/python -m images engine --wait "$1"; }

if ! command -v mkfs.ext4 >/dev/null; then
    if can_install; then
        step "no mkfs.ext4 here: installing e2fsprogs"
        apt_install e2fsprogs
    else
        step "no mkfs.ext4 here: workspaces are not held to their size until e2fsprogs is installed"
    fi
fi

answers 0 && exit 0

host=${PADDOCK_DOCKER_HOST:-${DOCKER_HOST:-}}
[ -z "$host" ] || fail "the Docker engine at $host does not answer: start it, or unset DOCKER_HOST"
if [ "$(id -u)" != 0 ]; then
    if [ -S /var/run/docker.sock ]; then
        fail "the Docker engine does not answer this user: run as root, or start the engine"
    fi
    fail "no Docker engine: install one ($install_page), or run as root on Debian or Ubuntu"
fi

if ! command -v dockerd >/dev/null; then
    can_install || fail "no Docker engine: install and start one, see $install_page"
    step "no Docker engine here: installing docker.io"
    apt_install docker.io iptables
    # Where there is a service manager, the package starts the engine.
    answers 3 && exit 0
fi

step "starting the Docker engine"
if [ -d /run/systemd/system ]; then
    systemctl start docker || fail "systemctl can't start docker: see journalctl -u docker"
    log=
else
    setsid nohup dockerd </dev/null >>"$log" 2>&1 &
fi
answers 60 && exit 0
[ -z "$log" ] || tail -n 15 "$log" | dimmed
fail "the Docker engine does not answer${log:+: its log is $log}"
