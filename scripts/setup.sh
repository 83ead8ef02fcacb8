#!/usr/bin/env bash
# Creates .venv in the checkout and installs the project into it, with the versions of constraints.txt.
#
#   scripts/setup.sh [EXTRA]     EXTRA of pyproject.toml, default dev
#   PYTHON=/path/to/python       use this interpreter instead of looking for one
#
# Only .venv is written. One exception: on a Debian-like system whose Python has no venv module, root gets it through
# apt-get; anybody else is shown the command.
set -euo pipefail
cd "$(dirname "$0")/.."
extra=${1:-dev}
log=.venv/setup.log

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

recent_enough() { [ "$("$1" -c 'import sys; print(sys.version_info >= (3, 10))' 2>/dev/null)" = True ]; }

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        recent_enough "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.10 or newer"
        printf '%s\n' "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" >/dev/null 2>&1 && recent_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.10 or newer in PATH (python3, python3.13 ... python3.10); install one, or name it: make setup PYTHON=/path/to/python3"
}

# Debian and its relatives ship the venv module as a package of its own.
ensure_venv_module() {
    local python=$1 version package
    if "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then return; fi
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    package="python${version}-venv"
    if ! command -v apt-get >/dev/null 2>&1; then
        fail "$python lacks the modules venv and ensurepip: install them with your system's package manager, then run make again"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        fail "$python lacks the module venv. Run: sudo apt-get install -y $package   and then make again"
    fi
    say "$python lacks the module venv: installing $package with apt-get"
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
}

create_venv() {
    if [ -x .venv/bin/python ] && recent_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    local python
    python=$(find_python)
    ensure_venv_module "$python"
    say "creating .venv with $("$python" --version) ($python)"
    "$python" -m venv --clear .venv
}

# pip is silent for a minute while it fetches Spark (400 MB), so a line now and then says that it is alive.
install_project() {
    local started=$SECONDS pid next=15
    say "installing the pinned packages of .[$extra] (the first time this fetches Spark, about 400 MB)"
    # Both names of the variable: older pips apply the first to the tools that build a package, newer ones the second.
    PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
        .venv/bin/python -m pip install --no-input --progress-bar off -e ".[$extra]" >"$log" 2>&1 &
    pid=$!
    trap 'kill "$pid" 2>/dev/null || true' INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        if [ $((SECONDS - started)) -ge "$next" ]; then
            say "  $((SECONDS - started)) s: $(grep -v '^  *[^ ]*: ' "$log" | tail -n 1 | cut -c1-90)"
            next=$((next + 15))
        fi
    done
    if ! wait "$pid"; then
        tail -n 25 "$log" >&2
        fail "pip failed; the whole output is in $log"
    fi
    trap - INT TERM
    say "installed in $((SECONDS - started)) s"
}

create_venv
install_project
