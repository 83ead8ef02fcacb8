"""Build dist/: the wheel, the source archive, and the zip that ``spark-submit --py-files`` takes.

Rules: the same commit gives the same bytes, so every time stamp is that of the commit and the zip's entries are sorted.
The zip holds what is importable in the wheel and nothing else, so the two cannot differ. The interpreter that runs this
needs the packages ``build`` and ``hatchling`` alone (``scripts/dist.sh``).

    dist/sparklog-0.3.0-py3-none-any.whl
    dist/sparklog-0.3.0.tar.gz
    dist/sparklog-0.3.0-py.zip
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
EARLIEST = 315_532_800  # 1980-01-01, the first second a zip can name


def commit_seconds() -> int:
    """When the checked-out commit was made, in seconds since the epoch; a constant outside a git checkout."""
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return max(int(asked.stdout), EARLIEST) if asked.returncode == 0 else EARLIEST


def build_wheel(seconds: int, target: Path | None = None) -> Path:
    """Build wheel and source archive with the pinned backend of this environment: nothing is downloaded. Return the
    wheel."""
    folder = target or DIST
    for old in folder.glob("sparklog-*"):
        old.unlink()
    tool = [sys.executable, "-m", "build", "--wheel", "--sdist", "--no-isolation"]
    command = [*tool, "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(
        command, env={**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}, capture_output=True, text=True, check=False
    )
    if built.returncode != 0:
        sys.exit(f"dist: the wheel could not be built\n{built.stdout}{built.stderr}")
    (wheel,) = folder.glob("sparklog-*.whl")
    return wheel


def zip_for_executors(wheel: Path, folder: Path, seconds: int) -> Path:
    """Copy the wheel's modules and ``py.typed`` files into a zip that Python imports from."""
    target = folder / f"sparklog-{wheel.name.split('-')[1]}-py.zip"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as destination:
        for name in sorted(source.namelist()):
            if name.endswith((".py", "/py.typed")):
                entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                destination.writestr(entry, source.read(name))
    return target


def main() -> None:
    started = time.monotonic()
    seconds = commit_seconds()
    wheel = build_wheel(seconds)
    archive = zip_for_executors(wheel, DIST, seconds)
    for built in (wheel, *DIST.glob("sparklog-*.tar.gz"), archive):
        print(f"{built.relative_to(ROOT)}  {built.stat().st_size // 1024} KiB")
    print(f"built in {time.monotonic() - started:.1f} s")
    print(f"executors get the package with: spark-submit --py-files {archive.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
