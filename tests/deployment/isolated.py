"""Run a command, such as pytest, in namespaces of its own in which ``kubernetes_cluster`` can start its node.

    python -m tests.deployment.isolated COMMAND [ARGUMENT ...]

What the cluster needs from the network is fetched and built before. Where something is missing, the command is not run,
and the exit code is 0. Not for: the namespaces (scripts/servers/namespaces.py).
"""

from __future__ import annotations

import sys

from scripts.servers import namespaces
from tests.deployment.kubernetes_cluster import prepare

if __name__ == "__main__":
    sys.exit(namespaces.run(sys.argv[1:], prepare))
