# Sourced in a new mount namespace: mounts of the host's programs, as workspaces are, would stay in
# use as long as these copies of them exist.
awk '{ for (at = 7; $at != "-"; at++); kind = $(at + 1); source = $(at + 2) }
    $5 != "/" && (source ~ "^/dev/loop" || kind == "overlay" || kind == "nsfs") { print $5 }' \
    /proc/self/mountinfo |
    while IFS= read -r point; do
        # One below another is gone with it.
        umount --lazy "$(printf '%b' "$point")" 2>/dev/null || true
    done
