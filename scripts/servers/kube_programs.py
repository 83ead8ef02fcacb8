"""Build Kubernetes' programs from Go modules, once, into ``.servers``: one with etcd and all that a node runs, the
process that holds a pod's namespaces, and helm.

The versions are those of ``kube/go.mod``. Downloads and build cache are removed again (5 GB).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from scripts.servers.common import SERVERS, ServerFailed, Skipped, only_one, tail, work_folder

SOURCES = Path(__file__).with_name("kube")
VERSION = "1.34.4"
BUILD_SECONDS = 2400
PACKAGES = {"kube": ".", "pause": "./pause", "helm": "helm.sh/helm/v3/cmd/helm"}


class Programs(NamedTuple):
    """Paths of programs: ``kube`` runs what its first argument names, such as ``kubelet`` or ``kubectl``."""

    kube: Path
    pause: Path
    helm: Path


def build_programs() -> Programs:
    """Return the programs, built unless they are there. Raises ``Skipped`` or ``ServerFailed``."""
    folder = SERVERS / "bin" / f"kubernetes-{_digest()}"
    if not folder.exists():
        go = shutil.which("go")
        if go is None:
            raise Skipped("Kubernetes is built with Go, and there is no `go` in PATH; install Go 1.24 or newer")
        with only_one("build-kubernetes"):
            if not folder.exists():
                _build(go, folder)
    return Programs(*(folder / name for name in PACKAGES))


def _digest() -> str:
    """A name for the sources, so that a change of them is built."""
    hashed = hashlib.sha256(VERSION.encode())
    for file in sorted(SOURCES.rglob("*.go*")):
        hashed.update(file.read_bytes())
    return hashed.hexdigest()[:12]


def _build(go: str, folder: Path) -> None:
    with work_folder("go") as work:
        print(f"building Kubernetes {VERSION} and helm, once, which takes some minutes", file=sys.stderr, flush=True)
        settings = {"GOFLAGS": "-modcacherw -buildvcs=false", "CGO_ENABLED": "0", "GOTMPDIR": str(work)}
        environment = {**os.environ, **settings}
        if "SPARKLOG_SERVERS_GO_CACHE" not in os.environ:
            environment.update(GOPATH=str(work / "path"), GOCACHE=str(work / "cache"))
        log = SERVERS / "build-kubernetes.log"
        minor = VERSION.split(".")[1]
        versions = {
            "k8s.io/component-base/version.gitVersion": f"v{VERSION}",
            "k8s.io/component-base/version.gitMajor": "1",
            "k8s.io/component-base/version.gitMinor": minor,
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": minor,
        }
        flags = "-s -w " + " ".join(f"-X {name}={value}" for name, value in versions.items())
        try:
            with open(log, "wb") as output:
                for name, package in PACKAGES.items():
                    command = [go, "build", "-trimpath", "-ldflags", flags, "-o", str(work / "bin" / name), package]
                    done = subprocess.run(
                        command,
                        cwd=SOURCES,
                        env=environment,
                        stdout=output,
                        stderr=output,
                        timeout=BUILD_SECONDS,
                        check=False,
                    )
                    if done.returncode:
                        raise ServerFailed(f"go build {package} ended with {done.returncode}:\n{tail(log)}")
            folder.parent.mkdir(parents=True, exist_ok=True)
            os.replace(work / "bin", folder)
        except subprocess.TimeoutExpired as error:
            raise ServerFailed(f"building Kubernetes took more than {BUILD_SECONDS} s; see {log}") from error
