#!/usr/bin/env bash
# Installs the Kerberos KDC of scripts/servers/kerberos.py from Debian's packages. Does nothing where it is there.
#
# Anybody but root on a Debian-like system is shown the command, and the script exits with 69 (unavailable).
set -euo pipefail

packages=(krb5-kdc krb5-admin-server krb5-user)
PATH=$PATH:/usr/sbin:/sbin

say() { printf 'kerberos: %s\n' "$*" >&2; }

complete() {
    local program
    for program in krb5kdc kdb5_util kadmin.local kinit; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

if complete; then exit 0; fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    say "installing ${packages[*]} with apt-get"
    if apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2; then
        complete && exit 0
    fi
fi
say "a KDC on this machine needs some packages. Run, as root:"
say "  apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
exit 69
