#!/usr/bin/env bash
# Builds dist/ (scripts/dist.py) with the tools of .venv, or, where there is none, of a small environment of its own.
#
#   scripts/dist.sh            writes .venv-dist only where .venv lacks the tools
#   PYTHON=/path/to/python     makes that environment with this interpreter
set -euo pipefail
cd "$(dirname "$0")/.."
tools='import build, hatchling'
python=.venv/bin/python
if ! "$python" -c "$tools" 2>/dev/null; then
    python=.venv-dist/bin/python
    if ! "$python" -c "$tools" 2>/dev/null; then
        printf 'dist: installing build and hatchling into .venv-dist\n' >&2
        "${PYTHON:-python3}" -m venv --clear .venv-dist
        PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
            "$python" -m pip install --quiet --no-input build hatchling
    fi
fi
exec "$python" scripts/dist.py
