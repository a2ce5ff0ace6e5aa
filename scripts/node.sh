#!/usr/bin/env bash
# Checks for Node and npm, which build and test the JavaScript client.
# On Debian, as root, it installs them; elsewhere it says how to.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

recent() {
    command -v npm >/dev/null && command -v node >/dev/null &&
        node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 18 ? 1 : 0)'
}

recent && exit 0
require node
recent || fail "Node is installed, but is older than 18, or has no npm"
