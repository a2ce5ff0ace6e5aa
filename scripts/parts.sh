#!/usr/bin/env bash
# Runs pytest once for each argument, a list of its arguments. What failed is run again alone: only
# what fails twice fails the whole. Everything that failed is named at the end, where a reader of a
# long log looks first.
set -uo pipefail

# With more failures than these, something is broken for all, and running them again says nothing.
few=5

log=$(mktemp)
trap 'rm -f "$log"' EXIT
color=no
if [ -t 1 ]; then color=yes; fi

tests() { .venv/bin/python -m pytest --color="$color" "$@" 2>&1 | tee -a "$log"; }

# The lines of the log that match, without colours and not too long.
seen() { sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -aE "$1" | cut -c1-200 | head -n "$2"; }

status=0
first=--cache-clear
for part in "$@"; do
    # shellcheck disable=SC2086 # a list of words
    tests $first $part || status=1
    first=''
done
if [ "$status" = 0 ]; then exit 0; fi

summary='^(FAILED|ERROR) '
if [ "$(seen "$summary" 100 | wc -l)" -le "$few" ]; then
    printf '\nAgain, alone:\n'
    if tests -q --last-failed --last-failed-no-failures none tests; then status=0; fi
fi
printf '\nWhat failed%s:\n' "$([ "$status" = 0 ] && echo ', but passed alone')"
# What each test saw (the lines that pytest begins with E), then the names.
seen '^E  ' 30
seen "$summary" 40
exit "$status"
