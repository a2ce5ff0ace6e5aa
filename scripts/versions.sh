#!/usr/bin/env bash
# Runs the tests that need no container on every other supported Python that is installed: on the
# path as python3.N, or by pyenv. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

minor() { "$1" -c 'import sys; print(sys.version_info.minor)' 2>/dev/null; }
# The first interpreter of that version that can create virtual environments.
find_python() {
    local found
    for found in "$(command -v "python3.$1" || true)" \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"3.$1".*/bin/python3; do
        if [ -n "$found" ] && "$found" -c 'import ensurepip, venv' 2>/dev/null; then
            printf '%s\n' "$found"
            return
        fi
    done
}

own=$(minor .venv/bin/python)
tried=0 status=0
for number in $(seq 11 30); do
    if [ "$number" = "$own" ]; then continue; fi
    python=$(find_python "$number")
    if [ -z "$python" ]; then continue; fi
    tried=$((tried + 1))
    venv=.venv-3.$number
    PYTHON=$python VENV=$venv scripts/venv.sh dev
    step "the tests on Python 3.$number"
    "$venv/bin/python" -m pytest -q -p no:cacheprovider -n logical --dist worksteal \
        "$@" tests/unit tests/api || status=1
done
if [ "$tried" = 0 ]; then
    step "no other Python than 3.$own is here: nothing was tried on one"
fi
exit "$status"
