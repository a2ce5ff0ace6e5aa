#!/usr/bin/env bash
# Runs pytest once for each argument, a list of its arguments, all of them at once: while one waits,
# the processor is the others'. The last one's output is shown as it comes, the others' at its end.
# What failed is run again alone: only what fails twice fails the whole. Everything that failed is
# named at the end, where a reader of a long log looks first.
set -uo pipefail

# With more failures than these, something is broken for all, and running them again says nothing.
few=5

parts=("$@")
last=$(($# - 1))
logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 130' INT
color=no
if [ -t 1 ]; then color=yes; fi

# Each part remembers apart from the others what failed.
tests() {
    local part=$1
    shift
    exec .venv/bin/python -m pytest --color="$color" -o cache_dir=".pytest_cache/$part" "$@" 2>&1
}

# shellcheck disable=SC2086 # a list of words
run() { tests "$1" --cache-clear ${parts[$1]}; }

again() { tests "$1" -q --last-failed --last-failed-no-failures none tests; }

# The lines of the logs that match, without colours and not too long.
seen() {
    cat "$logs"/* | sed 's/\x1b\[[0-9;]*m//g' | grep -aE "$1" | cut -c1-200 | head -n "$2"
}

# Without job control, what runs in the background may ignore interrupts, and so do programs that
# tests start and interrupt. Those parts end with this script, whatever ends it.
set -m
for ((part = 0; part < last; part++)); do
    run "$part" </dev/null >"$logs/$part" &
    jobs[part]=$!
done
set +m
failed=''
run "$last" | tee "$logs/$last" || failed=$last
for ((part = 0; part < last; part++)); do
    wait "${jobs[part]}" || failed+=" $part"
    cat "$logs/$part"
done
if [ -z "$failed" ]; then exit 0; fi

status=1
summary='^(FAILED|ERROR) '
if [ "$(seen "$summary" 100 | wc -l)" -le "$few" ]; then
    printf '\nAgain, alone:\n'
    status=0
    for part in $failed; do
        again "$part" | tee -a "$logs/again" || status=1
    done
fi
printf '\nWhat failed%s:\n' "$([ "$status" = 0 ] && echo ', but passed alone')"
# What each test saw (the lines that pytest begins with E), then the names.
seen '^E  ' 30
seen "$summary" 40
exit "$status"
