#!/usr/bin/env bash
# Checks for a PostgreSQL server, which tests of clusters start for themselves. On Debian and
# Ubuntu, as root, it installs one; elsewhere it says how to, and these tests are skipped without it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# Debian's programs are in no directory of PATH.
found() {
    command -v initdb >/dev/null || compgen -G "${HOST_ROOT:-}/usr/lib/postgresql/*/bin/initdb" >/dev/null
}

found || (require postgres) || true
