#!/usr/bin/env bash
# Writes conf/kubernetes/manifests/ from the chart, for those who install without Helm: what the chart makes of its
# defaults, with everything that is optional in files of its own.
#
#   scripts/manifests.sh             write them (needs helm)
#   scripts/manifests.sh --check     exit with 1 if they are not those of the chart
set -euo pipefail
cd "$(dirname "$0")/.."

target=conf/kubernetes/manifests
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# name of the file, template of the chart, values
render() {
    local name=$1 template=$2
    shift 2
    {
        printf '# Written by scripts/manifests.sh from conf/kubernetes/chart; do not edit.\n'
        helm template sparklog conf/kubernetes/chart --namespace sparklog --kube-version 1.34 \
            --show-only "templates/$template.yaml" "$@"
    } >"$folder/$name.yaml"
}

render 00-namespace namespace --set namespace.create=true
render rights rights
render maintenance maintenance
render metrics metrics --set metrics.enabled=true
render ui ui --set ui.enabled=true
render network network --set networkPolicy.enabled=true
mkdir "$folder/operator" # not applied with the others: the Spark operator defines what they are
render operator/applications applications --values conf/kubernetes/applications.yaml

if [ "${1:-}" = --check ]; then
    diff -r "$folder" "$target"
else
    rm -rf "$target"
    cp -r "$folder" "$target"
    chmod -R go+rX "$target"
fi
