#!/usr/bin/env bash
# Runs the installed Compose (v2 or docker-compose) with the arguments. If there is none, it
# installs docker-compose on Debian and Ubuntu, as root, and says elsewhere how to; `compose.sh`
# alone does only that.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

if docker compose version >/dev/null 2>&1; then
    compose=(docker compose)
else
    command -v docker-compose >/dev/null || require compose >&2
    compose=(docker-compose)
fi
[ $# = 0 ] || exec "${compose[@]}" "$@"
