#!/usr/bin/env bash
# Prints the path of a Chromium for the tests of the web page; says everything else on standard error.
#
# Looks in CHROMIUM, then in PATH. Where neither has one, root on a Debian-like system gets it through apt-get; anybody
# else is shown the command, and the script exits with 69 (unavailable).
set -euo pipefail

say() { printf 'chromium: %s\n' "$*" >&2; }

find_chromium() {
    local name
    for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        if [ -n "$name" ] && command -v "$name"; then return; fi
    done
    return 1
}

if find_chromium; then exit 0; fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    say "none in PATH: installing chromium with apt-get"
    if apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >&2; then
        find_chromium && exit 0
    fi
fi
say "the tests of the web page need Chromium. Run:"
say "  sudo apt-get update && sudo apt-get install -y --no-install-recommends chromium"
say "or name one: CHROMIUM=/path/to/chromium"
exit 69
