"""Build dist/env.tar.gz: sparklog and all that it needs on executors that have only Python.

    python scripts/pack_environment.py [--extras performance,s3,hdfs] [--python-version 3.12] [PACKAGE ...]

Spark unpacks it in the working directory of driver and executors (``spark.archives=dist/env.tar.gz#env``), and their
Python finds it by ``PYTHONPATH=./env``: conf/spark-yarn.conf and conf/spark-standalone.conf have the settings. It has
no interpreter and no paths, so it works wherever ``python3`` has the version for which it was built: by default that of
the Python that runs this. pyspark is left out: executors get Spark's own. For ``sparklog_session(archive=...)``, which
runs ``env/bin/python``, there is a script of that name that runs ``python3`` with these packages.

Rules: needs the wheel that scripts/dist.py has built, and pip with its index. Not for: the driver of client mode, which
runs in the environment of the submitter.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import py_compile
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TARGET = DIST / "env.tar.gz"
EXTRAS = "performance,s3,hdfs"
NOT_NEEDED = ("bin", "pyarrow/include", "pyarrow/tests", "pandas/tests", "numpy/tests", "numpy/f2py")
"""Folders that nothing imports at run time."""
PYTHON = """\
#!/bin/sh
folder=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}" exec python3 "$@"
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build dist/env.tar.gz, the packages for executors.")
    parser.add_argument("--extras", default=EXTRAS, help=f"extras of sparklog, comma-separated ({EXTRAS})")
    parser.add_argument(
        "--python-version", metavar="VERSION", help="of the nodes, such as 3.12 (that of this interpreter)"
    )
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="further packages, such as those of functions")
    return parser.parse_args()


def install(options: argparse.Namespace, wheel: Path, folder: Path) -> None:
    """Install the wheel and its dependencies as files, from wheels only. Exits with pip's output if that fails."""
    extras = f"[{options.extras}]" if options.extras else ""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--no-compile", "--target", str(folder), "-c", str(ROOT / "constraints.txt")]
    if options.python_version:
        command += ["--python-version", options.python_version, "--implementation", "cp"]
    done = subprocess.run(
        [*command, f"sparklog{extras} @ {wheel.as_uri()}", *options.packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"pack_environment: pip failed\n{done.stdout}{done.stderr}")


def compile_modules(folder: Path) -> None:
    """Compile all modules: where the unpacked archive is read-only, every Python process would do so.

    The ``.pyc`` files are not checked against their sources, whose modification times are not packed. File names in
    tracebacks start with ``env``, the folder that the archive is unpacked to.
    """
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, stripdir=str(folder), prependdir="env", invalidation_mode=unchecked)


def add_python(folder: Path) -> None:
    """Add ``bin/python``, which runs the machine's ``python3`` with the packages of the folder."""
    script = folder / "bin" / "python"
    script.parent.mkdir()
    script.write_text(PYTHON)


def pack(folder: Path, target: Path) -> None:
    """Write the folder's files in the order of their names, without owners and times."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 0
        entry.mode = 0o755 if entry.isdir() or entry.name == "bin/python" else 0o644
        return entry

    with (
        open(target, "wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
        tarfile.open(mode="w", fileobj=compressed) as archive,
    ):
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=plain)


def main() -> None:
    options = parse()
    started = time.monotonic()
    wheels = sorted(DIST.glob("sparklog-*.whl"))
    if len(wheels) != 1:
        sys.exit("pack_environment: dist/ has no wheel of sparklog: run make dist")
    with tempfile.TemporaryDirectory(prefix="env-", dir=DIST) as work:
        folder = Path(work) / "env"
        install(options, wheels[0], folder)
        for name in NOT_NEEDED:
            shutil.rmtree(folder / name, ignore_errors=True)
        if options.python_version in (None, "{}.{}".format(*sys.version_info)):
            compile_modules(folder)
        add_python(folder)
        packed = Path(work) / TARGET.name
        pack(folder, packed)
        packed.replace(TARGET)
    size = TARGET.stat().st_size // 2**20
    print(f"{TARGET.relative_to(ROOT)}  {size} MiB, packed in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
