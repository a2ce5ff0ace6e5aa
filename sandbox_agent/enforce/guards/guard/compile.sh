#!/bin/sh
# Compiles the guard into the file with that absolute path, without a loader or a library, so that it
# runs in every image. CC is another compiler than gcc, for another machine.
set -eu
cd "$(dirname "$0")"
exec ${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Werror -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
    -fPIE -static-pie -Wl,-z,relro,-z,now -s -o "$1" ./*.c
