"""The manifests of conf/kubernetes without a cluster: Kubernetes' own schemas, what they name, what their pods run.

``make test-k8s`` has a real API server admit them and runs them; most mistakes are found here, when they are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from sparklog.cli.commands import load_command

KUBERNETES = Path(__file__).resolve().parents[2] / "conf" / "kubernetes"
VERSION = "1.34"
"""what scripts/manifests.sh renders for, and the node of make test-k8s runs"""
MANIFESTS = sorted((KUBERNETES / "manifests").rglob("*.yaml"))
OF_OPERATOR = "applications.yaml"
"""of kinds that the Spark operator adds, whose schemas Kubernetes does not have"""


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def everything() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from documents(path)


def pods() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The name, labels and specification of each pod."""
    for document in everything():
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template and "containers" in template["spec"]:
            yield document["metadata"]["name"], template["metadata"]["labels"], template["spec"]


def named(kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in everything() if each["kind"] == kind}


@pytest.mark.parametrize(
    "path", [path for path in MANIFESTS if path.name != OF_OPERATOR], ids=lambda path: str(path.name)
)
def test_a_manifest_has_only_fields_that_kubernetes_knows_with_their_types(path: Path) -> None:
    assert documents(path)
    for document in documents(path):
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_a_misspelt_field_is_found() -> None:
    document = documents(KUBERNETES / "manifests" / "maintenance.yaml")[0]
    document["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["arguments"] = ["sparklog"]
    with pytest.raises(kubernetes_validate.ValidationError, match="arguments"):
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_template_of_pods_is_one() -> None:
    (template,) = documents(KUBERNETES / "pod-template.yaml")
    template["metadata"] = {"name": "spark"}
    template["spec"]["containers"][0]["image"] = "sparklog"
    kubernetes_validate.validate(template, VERSION, strict=True)


def test_every_pod_keeps_to_the_pod_security_standard_restricted() -> None:
    (template,) = documents(KUBERNETES / "pod-template.yaml")
    seen = [spec for _, _, spec in pods()] + [template["spec"]]
    assert len(seen) >= 4
    for spec in seen:
        pod = spec["securityContext"]
        assert (pod["runAsNonRoot"], pod["seccompProfile"]["type"]) == (True, "RuntimeDefault")
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            context = container["securityContext"]
            assert (context["allowPrivilegeEscalation"], context["capabilities"]["drop"]) == (False, ["ALL"])
        assert {next(iter(set(volume) - {"name"})) for volume in spec["volumes"]} <= {"emptyDir", "secret", "configMap"}


def test_what_a_pod_names_is_there() -> None:
    accounts = named("ServiceAccount")
    for name, _, spec in pods():
        volumes = {volume["name"] for volume in spec["volumes"]}
        mounted = {mount["name"] for each in containers_of(spec) for mount in each.get("volumeMounts", ())}
        assert spec["serviceAccountName"] in accounts, name
        assert mounted == volumes, name


def containers_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*spec["containers"], *spec.get("initContainers", ())]


def test_services_selectors_and_ports_fit_the_pods() -> None:
    by_labels = [(labels, {port["name"] for each in spec["containers"] for port in each.get("ports", ())})
                 for _, labels, spec in pods()]  # fmt: skip
    services = [each for each in everything() if each["kind"] == "Service"]
    assert services
    for service in services:
        selector = service["spec"]["selector"].items()
        ports = [ports for labels, ports in by_labels if selector <= labels.items()]
        assert len(ports) == 1, service["metadata"]["name"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports[0]
    for deployment in (each for each in everything() if each["kind"] == "Deployment"):
        selector = deployment["spec"]["selector"]["matchLabels"].items()
        assert selector <= deployment["spec"]["template"]["metadata"]["labels"].items()
    for policy in (each for each in everything() if each["kind"] == "NetworkPolicy"):
        allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert allowed == set().union(*(ports for _, ports in by_labels))


def test_the_commands_that_pods_run_are_sparklogs() -> None:
    commands = [each["args"] for _, _, spec in pods() for each in spec["containers"]]
    assert len(commands) >= 3
    for command in commands:
        program, name, *arguments = command
        assert program == "sparklog"
        load_command(name).parser().parse([*arguments, "--bootstrap-server", "s3://bucket/log"])
