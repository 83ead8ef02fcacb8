#!/usr/bin/env python3
"""Builds the image of conf/kubernetes/Dockerfile without Docker, and writes it as an archive for a container runtime.

    scripts/servers/image.py [--target dependencies] NAME ARCHIVE

The base image is made from Debian's packages, with the certificates that this machine trusts. Needs root, buildah and
mmdebstrap, which scripts/kubernetes.sh installs, and the wheel of `make dist`. Layers are kept in .servers/buildah: a
second build takes seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import CHECKOUT, SERVERS, ServerFailed, Skipped, only_one, tail

STORAGE = SERVERS / "buildah"
RUN, TEMPORARY = SERVERS / "buildah-run", SERVERS / "buildah-tmp"
# Mounts and processes end with each command; what is mounted is noted in a folder that ends with it, too.
CONTAINED = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
MOUNT_RUN = f'mount -t tmpfs tmpfs "{RUN}" && exec "$@"'
BASE = "localhost/sparklog-base:bookworm"
DOCKERFILE = "conf/kubernetes/Dockerfile"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
STEP_SECONDS = 1200


def build_image(name: str, archive: Path, target: str = "") -> Path:
    """Build the image, and write it to ``archive`` under ``name``. Raises ``Skipped`` or ``ServerFailed``."""
    for program in ("buildah", "mmdebstrap"):
        if shutil.which(program) is None:
            raise Skipped(f"an image is built with {program}, which is not installed: bash scripts/kubernetes.sh")
    with only_one("image"):
        if not _succeeds("inspect", "--type", "image", BASE):
            _build_base()
        options = ["--layers", "--build-arg", f"BASE={BASE}", "--ignorefile", f"{DOCKERFILE}.dockerignore"]
        if target:
            options += ["--target", target]
        _buildah("build", *options, "--file", DOCKERFILE, "--tag", name, ".")
        built = _buildah("images", "--quiet", "--no-trunc", name).strip()
        written = archive.with_name(f"{archive.name}.id")
        if not (archive.exists() and written.exists() and written.read_text() == built):
            written.unlink(missing_ok=True)
            archive.unlink(missing_ok=True)
            _buildah("push", name, f"oci-archive:{archive}:{name}")
            written.write_text(built)
    return archive


def _build_base() -> None:
    """Debian's smallest system, as a registry has it under the name debian:12-slim."""
    SERVERS.mkdir(exist_ok=True)
    packed = SERVERS / "debian.tar"
    options = ["--variant=minbase", "--include=ca-certificates"]
    _run(["mmdebstrap", *options, "bookworm", str(packed)])
    (container,) = _buildah("from", "scratch").split()
    _buildah("add", container, str(packed), "/")
    if CERTIFICATES.exists():
        _buildah("copy", container, str(CERTIFICATES), "/usr/local/share/ca-certificates/machine.crt")
        _buildah("run", container, "update-ca-certificates")
    _buildah("commit", "--rm", container, BASE)
    packed.unlink()


def _buildah(*arguments: str) -> str:
    return _run([*_command(), *arguments])


def _command() -> list[str]:
    """Root of its own, and no other process: without a daemon and without namespaces, which a container lacks."""
    return ["buildah", "--root", str(STORAGE), "--runroot", str(RUN), "--storage-driver", "overlay"]


def _succeeds(*arguments: str) -> bool:
    try:
        _buildah(*arguments)
    except ServerFailed:
        return False
    return True


def _run(command: list[str]) -> str:
    """What the command prints; its errors go to a log."""
    log = SERVERS / "image.log"
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(TEMPORARY)}
    for folder in (RUN, TEMPORARY):
        folder.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as errors:
        done = subprocess.run(
            [*CONTAINED, "sh", "-c", MOUNT_RUN, "sh", *command],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=STEP_SECONDS,
            check=False,
        )
        errors.write(done.stdout)
    if done.returncode:
        raise ServerFailed(f"{' '.join(command)} ended with {done.returncode}:\n{tail(log)}")
    return done.stdout.decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the image of conf/kubernetes/Dockerfile without Docker.")
    parser.add_argument("--target", default="", help="a stage of the Dockerfile (the last)")
    parser.add_argument("name")
    parser.add_argument("archive", type=Path)
    options = parser.parse_args()
    try:
        print(build_image(options.name, options.archive, options.target))
    except Skipped as reason:
        print(f"skipped: {reason}")
    except ServerFailed as reason:
        print(f"failed: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
