#!/usr/bin/env bash
# Creates .venv and installs the project into it; `venv.sh dev` adds what tests and lint need.
# Dependencies have the versions and hashes of the lock files that `make lock` writes.
# VENV names another directory, PYTHON the interpreter, which is else the first that is new enough.
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
venv=${VENV:-.venv}

if ! "$venv/bin/python" -c pass 2>/dev/null; then
    if ! python=$(find_python); then
        [ -z "${PYTHON:-}" ] ||
            fail "PYTHON: $PYTHON is not $(describe python)"
        require python
        python=$(find_python) ||
            fail "$(describe python) is needed, python3 is $(python3 -V): set PYTHON"
    fi
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
        "$@" 2>&1 | while IFS= read -r line; do
        [[ $line == "Requirement already satisfied"* ]] || printf '%s\n' "$line"
    done | dimmed
}
step "installing what the project depends on"
install --require-hashes -r "$lock"
step "installing the project"
install --no-deps -e .
printf '%s\n' "$wanted" >"$venv/installed-$kind"
