#!/usr/bin/env bash
# Creates .venv-lowest in the checkout and installs into it the project with the lowest versions of its dependencies that
# pyproject.toml allows (scripts/lowest.py). Does nothing where that was done after the last change of pyproject.toml.
#
#   scripts/lowest.sh       needs .venv (make setup), whose Python it uses; exits with 69 where nothing can be fetched
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.venv-lowest
stamp=$folder/.setup-done
log=$folder/setup.log

if [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt scripts/lowest.py ]; then exit 0; fi
rm -f "$stamp"
[ -x "$folder/bin/python" ] || .venv/bin/python -m venv --clear "$folder"
.venv/bin/python scripts/lowest.py test >"$folder/lowest.txt"
printf 'lowest: installing the lowest versions into %s\n' "$folder" >&2
export PIP_DISABLE_PIP_VERSION_CHECK=1
if ! "$folder/bin/python" -m pip install --no-input --progress-bar off -e . -r "$folder/lowest.txt" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    printf 'lowest: pip failed; the whole output is in %s\n' "$log" >&2
    if grep -qE 'NewConnectionError|ProxyError|ReadTimeoutError' "$log"; then exit 69; fi
    exit 1
fi
touch "$stamp"
