#!/usr/bin/env bash
# Runs the installed Compose (v2 or docker-compose) with the arguments. If there is none, it
# installs docker-compose on Debian and Ubuntu, as root; `compose.sh` alone does only that.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

if docker compose version >/dev/null 2>&1; then
    compose=(docker compose)
else
    if ! command -v docker-compose >/dev/null; then
        can_install || fail "no Compose: install it, see https://docs.docker.com/compose/install/"
        step "no Compose here: installing docker-compose" >&2
        apt_install docker-compose >&2
    fi
    compose=(docker-compose)
fi
[ $# = 0 ] || exec "${compose[@]}" "$@"
