"""Write an image of a few files as an archive that a container runtime imports, without registry and Docker."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


def write_image(archive: Path, name: str, files: Mapping[str, bytes], entrypoint: Sequence[str]) -> Path:
    """Write an image of one layer with these programs, by path; return ``archive``."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, media_type: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    layer = blob(_tar(files), LAYER)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint)},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    parts = {"config": blob(json.dumps(config).encode(), CONFIG), "layers": [layer]}
    manifest = blob(json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **parts}).encode(), MANIFEST)
    manifest["annotations"] = {"io.containerd.image.name": name}
    index = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
    archive.write_bytes(_tar({"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index, **blobs}))
    return archive


def _tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
