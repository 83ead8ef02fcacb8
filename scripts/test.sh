#!/usr/bin/env bash
# Runs the tests that start Spark beside those that do not: each often waits for a program that it started, so together
# they take less time than one after the other. What the tests with Spark print follows when all have ended.
set -euo pipefail
cd "$(dirname "$0")/.."
make=${MAKE:-make}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$make" --no-print-directory test-spark >"$log" 2>&1 &
spark=$!
without=0 with=0
"$make" --no-print-directory test-python || without=$?
wait "$spark" || with=$?
cat "$log"
if [ "$without" -ne 0 ]; then exit "$without"; fi
exit "$with"
