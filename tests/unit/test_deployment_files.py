"""Secrets and rights in docker-compose.yml, the Kubernetes manifests and deploy/make-secrets."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
ROLES = ("scheduler", "executor", "client", "admin")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("made") / "secrets"
    make(directory)
    return directory


def make(directory: Path, *flags: str) -> subprocess.CompletedProcess:
    command = [ROOT / "deploy" / "make-secrets", *flags, directory, "scheduler", "127.0.0.1"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def roles(token_file: Path) -> list[str]:
    return [line.split()[1] for line in token_file.read_text().splitlines()]


def test_each_role_has_a_directory_with_its_own_token_and_only_schedulers_know_all(secrets):
    assert {role: roles(secrets / role / "token") for role in ROLES} == {
        "scheduler": ["scheduler", "executor", "client", "admin"],
        **{role: [role] for role in ROLES[1:]},
    }
    alone = [(secrets / role / "token").read_text() for role in ROLES[1:]]
    assert (secrets / "scheduler" / "token").read_text().endswith("".join(alone))
    assert {path.name for path in secrets.rglob("*.key") if path.parent.name in ROLES} == {"server.key", "etcd.key"}
    assert {oct(path.stat().st_mode)[-3:] for path in secrets.rglob("*")} == {"700", "600"}


def test_what_is_there_stays_and_what_was_removed_can_be_made_while_the_authority_has_its_key(secrets):
    before = files(secrets)
    (secrets / "scheduler" / "server.pem").unlink()
    assert make(secrets, "--forget").returncode == 0
    after = files(secrets)
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {"scheduler/server.pem", "scheduler/server.key", "authority/ca.key", "authority/etcd-ca.key"}
    for path in (secrets / "authority").iterdir():
        path.unlink()  # as in a container that is made anew
    assert make(secrets, "--forget").returncode == 0
    assert {name: content for name, content in files(secrets).items() if name in after} == after
    (secrets / "scheduler" / "server.pem").unlink()
    told = make(secrets, "--forget")
    assert (
        told.returncode,
        "scheduler/server.pem is missing, and the key of its authority is gone" in told.stderr,
    ) == (1, True)


def test_a_directory_of_an_earlier_version_is_left_alone(tmp_path):
    (tmp_path / "token").write_text("t")
    told = make(tmp_path)
    assert told.returncode == 1
    assert "the files of an earlier version" in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_service_of_docker_compose_has_the_secrets_of_one_role_and_no_right_too_many():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        mounted = [v for v in service.get("volumes", []) if "secrets" in v]
        if name == "secrets":
            assert all(re.fullmatch(r"secrets-(\w+):/secrets/\1", volume) for volume in mounted)
            continue
        role = {"cli": "client"}.get(name, name.split("-")[0])
        assert mounted in ([], [f"secrets-{role}:/secrets:ro"]), name
        if service["image"].startswith("onager"):
            assert service["cap_drop"] == ["ALL"], name
            assert service["security_opt"] == ["no-new-privileges:true"], name
            assert service["read_only"], name
            assert service["pids_limit"], name


def manifests() -> list[dict]:
    return [made for file in KUBERNETES.glob("*.yaml") for made in yaml.safe_load_all(file.read_text()) if made]


def pods() -> dict[str, dict]:
    return {
        made["metadata"]["name"]: made["spec"]["template"] for made in manifests() if "template" in made.get("spec", {})
    }


@pytest.mark.parametrize("name", [*pods()])
def test_a_pod_has_no_right_too_many(name):
    pod = pods()[name]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
    for volume in pod["volumes"]:
        assert volume.get("emptyDir", {"sizeLimit": "none"})["sizeLimit"]


@pytest.mark.parametrize("name", [*pods()])
def test_a_pod_has_the_secrets_of_its_role(name):
    mounted = [volume["secret"]["secretName"] for volume in pods()[name]["spec"]["volumes"] if "secret" in volume]
    assert mounted == [f"onager-{name.split('-')[0]}"]


def test_every_pod_has_a_policy_of_its_own_and_what_none_names_is_closed():
    policies = {made["metadata"]["name"]: made["spec"] for made in manifests() if made["kind"] == "NetworkPolicy"}
    assert policies["closed"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for name, pod in pods().items():
        assert policies[name]["podSelector"] == {"matchLabels": pod["metadata"]["labels"]}
    assert "169.254.0.0/16" in str(policies["executor"]["egress"])
