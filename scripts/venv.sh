#!/usr/bin/env bash
# Creates .venv and installs the project into it; `venv.sh dev` adds what tests and lint need.
# Dependencies have the versions and hashes of the lock files that `make lock` writes.
# VENV names another directory, PYTHON an interpreter other than python3.
# Does nothing if that was already done for the current files.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

kind=${1:-run}
case $kind in
    run) lock=requirements.lock ;;
    dev) lock=requirements-dev.lock ;;
    *) fail "usage: scripts/venv.sh [run|dev]" ;;
esac
python=${PYTHON:-python3}
venv=${VENV:-.venv}

if ! "$venv/bin/python" -c pass 2>/dev/null; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        can_install || fail "Python 3.11 or newer with its venv module is needed: install it"
        step "Python's venv module is missing: installing python3 and python3-venv"
        apt_install python3 python3-venv
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed, $python is $("$python" -V): set PYTHON"
    step "making $venv"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi

wanted="$(cat pyproject.toml requirements.lock requirements-dev.lock | sha256sum) $PWD $("$venv/bin/python" -V)"
# The test requirements include those for running.
for stamp in "$venv/installed-dev" "$venv/installed-$kind"; do
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
done
install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
        "$@" 2>&1 | { grep --line-buffered -v '^Requirement already satisfied' || true; } | dimmed
}
step "installing what the project depends on"
install --require-hashes -r "$lock"
step "installing the project"
install --no-deps -e .
printf '%s\n' "$wanted" >"$venv/installed-$kind"
