//go:build tools

// Programs that are built from the same versions of their common modules.
package main

import _ "helm.sh/helm/v3/cmd/helm"
