#!/bin/bash
# Runs before Kubernetes stops an executor's pod, where spark.decommission.enabled is true: tells the executor, and waits
# until it has ended by itself or the pod's grace period is over.
set -euo pipefail

for folder in /proc/[0-9]*; do
    if tr '\0' ' ' <"$folder/cmdline" 2>/dev/null | grep -q '/java .*KubernetesExecutorBackend'; then
        executor=${folder#/proc/}
    fi
done
if [ -z "${executor:-}" ]; then exit 0; fi
kill -PWR "$executor"
while [ -d "/proc/$executor" ]; do sleep 1; done
