#!/usr/bin/env bash
# Fetches the console's libraries anew, from npm, in the versions that are named here.
# The table in api/console/static/vendor/README.md says the same.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

command -v npm >/dev/null || fail "no npm: install it"
target=$PWD/api/console/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# vendor PACKAGE@VERSION: prints the directory of its files.
vendor() {
    mkdir "$work/${1%@*}"
    (cd "$work" && npm pack --silent "$1" >/dev/null && tar -xzf ./*.tgz -C "${1%@*}" && rm ./*.tgz)
    echo "$work/${1%@*}/package"
}

step "htm and preact"
htm=$(vendor htm@3.1.1)
cp "$htm/preact/standalone.module.js" "$target/preact.js"
cp "$htm/LICENSE" "$target/preact.LICENSE.txt"
