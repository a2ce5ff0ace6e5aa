#!/usr/bin/env bash
# Runs pytest once for each argument, a list of its arguments, and names what failed in any of the
# runs at the end, where a reader of a long log looks first.
set -uo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
color=no
if [ -t 1 ]; then color=yes; fi

status=0
for part in "$@"; do
    # shellcheck disable=SC2086 # a list of words
    .venv/bin/python -m pytest --color="$color" $part 2>&1 | tee -a "$log" || status=1
done
if [ "$status" != 0 ]; then
    printf '\nWhat failed:\n'
    # What each one saw (pytest's lines that begin with E), then the names; without colours.
    sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -aE '^E  ' | cut -c1-200 | head -30
    sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -aE '^(FAILED|ERROR) ' | cut -c1-200 | head -40
fi
exit "$status"
