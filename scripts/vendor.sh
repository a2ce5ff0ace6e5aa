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
    mkdir -p "$work/${1%@*}"
    (cd "$work" && npm pack --silent "$1" >/dev/null && tar -xzf ./*.tgz -C "${1%@*}" && rm ./*.tgz)
    echo "$work/${1%@*}/package"
}

step "htm and preact"
htm=$(vendor htm@3.1.1)
cp "$htm/preact/standalone.module.js" "$target/preact.js"
cp "$htm/LICENSE" "$target/preact.LICENSE.txt"

step "uPlot"
uplot=$(vendor uplot@1.6.32)
cp "$uplot/dist/uPlot.esm.js" "$target/uplot.js"
cp "$uplot/dist/uPlot.min.css" "$target/uplot.css"
cp "$uplot/LICENSE" "$target/uplot.LICENSE.txt"

step "markdown-it, whose file contains five other packages"
markdown=$(vendor markdown-it@15.0.3)
cp "$markdown/dist/browser/markdown-it.esm.min.mjs" "$target/markdown-it.js"
cp "$markdown/LICENSE" "$target/markdown-it.LICENSE.txt"
for package in entities@8.1.0 linkify-it@6.1.0 mdurl@2.1.0 punycode.js@2.3.1 uc.micro@3.0.0; do
    licence=$(echo "$(vendor "$package")"/LICENSE*)
    printf '\n%s\n\n' "$package" | cat - "$licence" >>"$target/markdown-it.LICENSE.txt"
done

step "axe-core, for the tests"
axe=$(vendor axe-core@4.10.3)
cp "$axe/axe.min.js" tests/browser/vendor/axe.js
cp "$axe/LICENSE" tests/browser/vendor/axe.LICENSE.txt

step "xterm"
xterm=$(vendor @xterm/xterm@6.0.0)
cp "$xterm/lib/xterm.mjs" "$target/xterm.js"
cp "$xterm/css/xterm.css" "$target/xterm.css"
cp "$xterm/LICENSE" "$target/xterm.LICENSE.txt"
fit=$(vendor @xterm/addon-fit@0.11.0)
cp "$fit/lib/addon-fit.mjs" "$target/xterm-fit.js"
