#!/usr/bin/env python3
"""Runs a command beside a real Kubernetes of one node, and stops it afterwards: etcd, API server, controller manager,
scheduler, kubelet, containerd and runc, without Docker.

    scripts/servers/kubernetes.py COMMAND [ARGUMENT ...]

The command finds it in KUBECONFIG, with the programs kubectl and helm in PATH, and in SPARKLOG_TEST_K8S_API (the
address of the API server), _ADDRESS (the node's, which pods and this machine reach) and _CONTAINERD (its socket). Pods
have a network of their own, but no DNS. Node and command run in namespaces of their own, without any other network, so
that the machine is afterwards as it was (scripts/servers/namespaces.py).

Needs root, Go (the first run builds the programs, some minutes), and Debian's packages for the container runtime, which
scripts/kubernetes.sh installs. Where something is missing, the command is not run, and the exit code is 0.
SPARKLOG_SERVERS_TIMEOUT (default 1800) bounds the command, in seconds.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers import namespaces, oci
from scripts.servers.common import (
    CHECKOUT,
    HOST,
    ServerFailed,
    Skipped,
    free_ports,
    run_beside,
    running,
    wait_until,
)
from scripts.servers.kube_programs import Programs, build_programs

BRIDGE = "sparklogk8s0"
ADDRESS, NETWORK, FIRST_POD = "10.213.0.1", "10.213.0.0/24", "10.213.0.10"
SERVICES = "10.214.0.0/24"
"""The kubelet refuses a loopback address."""
SOCKETS = Path("/run/sparklog-k8s")
"""The path of a socket must be short."""
PLUGINS = Path("/usr/lib/cni")
LISTENERS = ("etcd", "peers", "api", "controllers", "scheduler", "kubelet")
NODE = "node"
SNAPSHOTTERS_NOT_USED = ("btrfs", "zfs", "aufs", "devmapper")
PAUSE = "sparklog.test/pause:1"
NAMESPACE = "k8s.io"
"""Where containerd keeps the kubelet's images and containers."""


class Node(NamedTuple):
    """Where the parts of a node are."""

    home: Path
    programs: Programs
    ports: Mapping[str, int]
    token: str

    @property
    def api(self) -> str:
        return f"https://{ADDRESS}:{self.ports['api']}"

    @property
    def containerd(self) -> Path:
        return SOCKETS / "containerd"

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    def get(self, path: str) -> bytes:
        """What the API server answers."""
        request = Request(self.api + path, headers={"Authorization": f"Bearer {self.token}"})
        context = ssl.create_default_context(cafile=str(self.home / "pki" / "apiserver.crt"))
        with urlopen(request, context=context, timeout=5) as answer:
            return bytes(answer.read())


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """A running node, once in its namespaces, whose end is that of its containers; yields the environment by which
    tests find it. Raises ``Skipped``, also outside of the namespaces, or ``ServerFailed``."""
    home = namespaces.folder() / "kubernetes"
    home.mkdir()
    SOCKETS.mkdir()
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    node = Node(home, build_programs(), ports, secrets.token_hex(16))
    configure(node)
    with running({"containerd": ["containerd", "--config", str(home / "containerd.toml")]}, home, {}), _started(node):
        yield environment(node)


def prepare() -> None:
    """Install and build what a node needs from the network, before its namespaces. Raises ``Skipped``."""
    require_runtime()
    build_programs()


def require_runtime() -> None:
    """Install the container runtime. Raises ``Skipped``."""
    installed = subprocess.run(
        ["bash", str(CHECKOUT / "scripts" / "kubernetes.sh")], capture_output=True, text=True, timeout=600, check=False
    )
    if installed.returncode:
        raise Skipped(f"the container runtime is not installed: {installed.stderr.strip()[-500:]}")


def environment(node: Node) -> dict[str, str]:
    """The variables by which a command finds the node, with kubectl and helm in PATH."""
    folder = node.home / "bin"
    folder.mkdir()
    kubectl = folder / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec "{node.programs.kube}" kubectl "$@"\n')
    kubectl.chmod(0o755)
    (folder / "helm").symlink_to(node.programs.helm)
    return {
        "KUBECONFIG": str(node.kubeconfig),
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SPARKLOG_TEST_K8S_API": node.api,
        "SPARKLOG_TEST_K8S_ADDRESS": ADDRESS,
        "SPARKLOG_TEST_K8S_CONTAINERD": str(node.containerd),
    }


def import_image(containerd: str, archive: Path) -> None:
    """Give an image, an OCI archive, to the node."""
    _run("ctr", "--address", containerd, "--namespace", NAMESPACE, "images", "import", str(archive), seconds=300)


# -- configuration


def configure(node: Node) -> None:
    """Write the files that the programs read, and create the pods' bridge."""
    home = node.home
    for folder in ("pki", "cni", "pods"):
        (home / folder).mkdir()
    _run("openssl", "genrsa", "-out", str(home / "pki" / "accounts.key"), "2048")
    _certify(home / "pki" / "clients")
    (home / "pki" / "tokens.csv").write_text(f'{node.token},admin,admin,"system:masters"\n')
    _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "replace", f"{ADDRESS}/24", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    (home / "cni" / "10-bridge.conflist").write_text(json.dumps(_network(home)))
    (home / "containerd.toml").write_text(_containerd(node))
    (home / "kubelet.json").write_text(json.dumps(_kubelet(node)))
    user = {"name": "admin", "user": {"token": node.token}}
    cluster = {"server": node.api, "certificate-authority": str(home / "pki" / "apiserver.crt")}
    context = {"name": "test", "context": {"cluster": "test", "user": "admin"}}
    node.kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [user],
                "contexts": [context],
            }
        )
    )


def _certify(path: Path) -> None:
    """A certificate by which the kubelet knows the API server, which is its own authority."""
    files = ["-keyout", f"{path}.key", "-out", f"{path}.crt", "-days", "2", "-subj", "/O=system:masters/CN=api-server"]
    _run("openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", "-addext", "extendedKeyUsage=clientAuth", *files)


def _network(home: Path) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": NETWORK, "rangeStart": FIRST_POD}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(home / "addresses"),
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "test", "plugins": [bridge]}


def _containerd(node: Node) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE, as inside another container, runc cannot lower the score.
    return f"""version = 2
root = "{node.home}/containerd"
state = "{SOCKETS}/state"
disabled_plugins = [{", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in SNAPSHOTTERS_NOT_USED)}]
[grpc]
  address = "{node.containerd}"
[ttrpc]
  address = "{SOCKETS}/ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{node.home}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "{HOST}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{node.home}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def _kubelet(node: Node) -> dict[str, object]:
    lowest = {f"{name}.available": "1%" for name in ("memory", "nodefs", "imagefs")}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "port": node.ports["kubelet"],
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": f"{node.home}/pki/clients.crt"}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "failCgroupV1": False,
        "failSwapOn": False,
        "protectKernelDefaults": True,  # it fails where it would change a kernel setting
        "enforceNodeAllocatable": [],
        "resolvConf": "",
        "podLogsDir": str(node.home / "pods"),
        "containerRuntimeEndpoint": f"unix://{node.containerd}",
        "evictionHard": lowest,
        "imageGCHighThresholdPercent": 100,  # never: no registry has these images
    }


# -- processes


@contextmanager
def _started(node: Node) -> Iterator[None]:
    """The node's other processes, one after the other: each needs the one before."""
    programs = node.programs
    containerd = ["ctr", "--address", str(node.containerd), "version"]
    wait_until(
        lambda: subprocess.run(containerd, capture_output=True, check=False).returncode == 0, "containerd", node.home
    )
    pause = oci.write_image(node.home / "pause.tar", PAUSE, {"pause": programs.pause.read_bytes()}, ["/pause"])
    import_image(str(node.containerd), pause)
    stages: list[tuple[dict[str, list[str]], str]] = [
        ({"etcd": _etcd(node), "kube-apiserver": _api_server(node)}, "/readyz"),
        (
            {
                "kube-controller-manager": _controllers(node),
                "kube-scheduler": _scheduler(node),
                "kubelet": _kubelet_command(node),
            },
            "/api/v1/namespaces/default/serviceaccounts/default",
        ),
    ]
    (first, ready), (second, account) = stages
    with running(_named(programs, first), node.home, {}):
        wait_until(lambda: node.get(ready) == b"ok", "the API server", node.home)
        with running(_named(programs, second), node.home, {}):
            wait_until(lambda: is_ready(node), "the node", node.home)
            wait_until(lambda: bool(node.get(account)), "the service account", node.home)
            yield


def _named(programs: Programs, commands: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: [str(programs.kube), name, *arguments] for name, arguments in commands.items()}


def _etcd(node: Node) -> list[str]:
    clients, peers = (f"http://{HOST}:{node.ports[name]}" for name in ("etcd", "peers"))
    return [
        f"--data-dir={node.home}/etcd",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]


def _api_server(node: Node) -> list[str]:
    key = f"{node.home}/pki/accounts.key"
    return [
        f"--etcd-servers=http://{HOST}:{node.ports['etcd']}",
        f"--bind-address={ADDRESS}",
        f"--advertise-address={ADDRESS}",
        f"--secure-port={node.ports['api']}",
        f"--cert-dir={node.home}/pki",
        f"--token-auth-file={node.home}/pki/tokens.csv",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--service-cluster-ip-range={SERVICES}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={node.home}/pki/clients.crt",
        f"--kubelet-client-key={node.home}/pki/clients.key",
    ]


def _controllers(node: Node) -> list[str]:
    return [
        f"--kubeconfig={node.kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={node.ports['controllers']}",
        "--leader-elect=false",
        f"--service-account-private-key-file={node.home}/pki/accounts.key",
        f"--root-ca-file={node.home}/pki/apiserver.crt",
    ]


def _scheduler(node: Node) -> list[str]:
    return [
        f"--kubeconfig={node.kubeconfig}",
        f"--bind-address={HOST}",
        f"--secure-port={node.ports['scheduler']}",
        "--leader-elect=false",
    ]


def _kubelet_command(node: Node) -> list[str]:
    return [
        f"--kubeconfig={node.kubeconfig}",
        f"--config={node.home}/kubelet.json",
        f"--root-dir={node.home}/kubelet",
        f"--cert-dir={node.home}/kubelet-pki",
        f"--node-ip={ADDRESS}",
        f"--hostname-override={NODE}",
    ]


def is_ready(node: Node) -> bool:
    """Whether the node takes pods."""
    conditions = json.loads(node.get(f"/api/v1/nodes/{NODE}"))["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _run(*command: str, seconds: float = 60) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise ServerFailed(f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def main() -> int:
    """In the namespaces the command runs beside the node; elsewhere this program runs itself in them."""
    try:
        namespaces.folder()
    except Skipped:
        if sys.argv[1:2] not in ([], ["-h"], ["--help"]):
            return namespaces.run([sys.executable, *sys.argv], prepare)
    return run_beside(server, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
