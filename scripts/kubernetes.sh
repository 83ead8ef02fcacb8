#!/usr/bin/env bash
# Installs what scripts/servers/kubernetes.py takes from Debian's packages: the container runtime, the plugins for the
# pods' network, and what builds an image without Docker. Does nothing where all of it is there.
#
# Anybody but root on a Debian-like system is shown the command, and the script exits with 69 (unavailable).
set -euo pipefail

packages=(containerd runc containernetworking-plugins iproute2 iptables buildah mmdebstrap)
PATH=$PATH:/usr/sbin:/sbin

say() { printf 'kubernetes: %s\n' "$*" >&2; }

complete() {
    local program
    for program in containerd runc ip iptables buildah mmdebstrap; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
    [ -x /usr/lib/cni/bridge ]
}

if complete; then exit 0; fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ]; then
    say "installing ${packages[*]} with apt-get"
    if apt-get update -qq >&2 &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2; then
        complete && exit 0
    fi
fi
say "a Kubernetes node on this machine needs some packages. Run, as root:"
say "  apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
exit 69
