"""Secrets and rights in docker-compose.yml, the Kubernetes manifests and deploy/make-secrets."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.waiting import HANGS_S

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
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANGS_S)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def roles(token_file: Path) -> list[str]:
    return [line.split()[1] for line in token_file.read_text().splitlines()]


def compose() -> dict[str, dict]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def settings_of(name: str) -> dict[str, str]:
    (container,) = pods()[name]["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def read(file: Path) -> list[dict]:
    return [made for made in yaml.safe_load_all(file.read_text()) if made]


def patches() -> dict[Path, dict]:
    """Return what components change in manifests of other files, by their files."""
    found = {}
    for file in KUBERNETES.glob("*/kustomization.yaml"):
        for patch in read(file)[0].get("patches", []):
            (found[file.parent / patch["path"]],) = read(file.parent / patch["path"])
    return found


def manifests() -> list[dict]:
    """Return what is shipped for Kubernetes, components included, but for what only changes other manifests."""
    others = patches()
    return [
        made
        for file in sorted(KUBERNETES.rglob("*.yaml"))
        if file.name != "kustomization.yaml" and file not in others
        for made in read(file)
    ]


def pods() -> dict[str, dict]:
    """Return the templates of pods; what a component changes is one more, such as scheduler-keda."""
    found = {
        made["metadata"]["name"]: made["spec"]["template"] for made in manifests() if "template" in made.get("spec", {})
    }
    for file, patch in patches().items():
        name = patch["metadata"]["name"]
        found[f"{name}-{file.parent.name}"] = patched(found[name], patch["spec"]["template"])
    return found


def patched(value, patch):
    """Return *value* as kubectl changes it by *patch*: in lists, what has the same name changes, the rest is added."""
    if isinstance(patch, dict):
        return {**value, **{key: patched(value[key], new) if key in value else new for key, new in patch.items()}}
    if isinstance(patch, list):
        new = {each["name"]: each for each in patch}
        known = [patched(each, new.pop(each["name"])) if each.get("name") in new else each for each in value]
        return [*known, *new.values()]
    return patch


def test_each_role_has_a_directory_with_its_own_token_and_only_schedulers_know_all(secrets):
    assert {role: roles(secrets / role / "token") for role in ROLES} == {
        "scheduler": ["scheduler", "executor", "client", "admin"],
        **{role: [role] for role in ROLES[1:]},
    }
    alone = [(secrets / role / "token").read_text() for role in ROLES[1:]]
    assert (secrets / "scheduler" / "token").read_text().endswith("".join(alone))
    assert {path.name for path in secrets.rglob("*.key") if path.parent.name in ROLES} == {"server.key", "etcd.key"}
    assert {oct(path.stat().st_mode)[-3:] for path in secrets.rglob("*")} == {"700", "600"}


def test_the_files_that_plain_machines_are_to_have_are_made(secrets):
    named = set(re.findall(r"/etc/onager/(\w+/[\w-]+(?:\.\w+)?)", (ROOT / "docs" / "machines.md").read_text()))
    assert named
    assert named <= files(secrets).keys()


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
    ran = make(secrets, "--forget")
    assert (
        ran.returncode,
        "scheduler/server.pem is missing, and the key of its authority is gone" in ran.stderr,
    ) == (1, True)


def test_a_directory_of_an_earlier_version_is_left_alone(tmp_path):
    (tmp_path / "token").write_text("t")
    printed = make(tmp_path)
    assert printed.returncode == 1
    assert "the files of an earlier version" in printed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_service_of_docker_compose_has_the_secrets_of_one_role_and_no_right_too_many():
    services = compose()["services"]
    for name, service in services.items():
        mounted = [v for v in service.get("volumes", []) if "secrets" in v]
        if name == "secrets":
            assert all(re.fullmatch(r"secrets-(\w+):/secrets/\1", volume) for volume in mounted)
            continue
        role = {"cli": "client"}.get(name, name.split("-")[0])
        assert mounted in ([], [f"secrets-{role}:/secrets:ro"]), name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"], name
        assert service["pids_limit"], name


def test_every_image_can_be_given_with_its_digest():
    dockerfile = (ROOT / "Dockerfile").read_text()
    arguments = set(re.findall(r"(?m)^ARG (\w+)=", dockerfile))
    begun_with = re.findall(r"(?m)^FROM (\S+)", dockerfile)
    assert set(begun_with) == {f"${{{argument}}}" for argument in arguments}
    for name, service in compose()["services"].items():
        if (build := service.get("build")) is None:
            assert re.fullmatch(r"\$\{ONAGER_\w+_IMAGE:-.+\}", service["image"]), name
        else:
            given = {argument: value.partition(":-")[0] for argument, value in build["args"].items()}
            assert given == {argument: f"${{ONAGER_{argument}" for argument in arguments}, name
    assert {c["image"] for pod in pods().values() for c in pod["spec"]["containers"]} == {"onager", "onager-etcd"}


def etcd_members() -> dict[str, tuple[dict[str, str], str]]:
    """Return the settings of each etcd that is shipped, and what clients call it."""
    found = {
        name: (service["environment"], f"https://{name}:")
        for name, service in compose()["services"].items()
        if re.fullmatch(r"etcd-\d+", name)
    }
    return found | {"kubernetes": (settings_of("etcd"), "https://$(ETCD_NAME).etcd:")}


@pytest.mark.parametrize("name", [*etcd_members()])
def test_etcd_asks_clients_and_members_for_certificates(name):
    settings, called = etcd_members()[name]
    for prefix in ("ETCD_", "ETCD_PEER_"):
        assert settings[f"{prefix}CLIENT_CERT_AUTH"] == "true"
        assert settings[f"{prefix}TRUSTED_CA_FILE"] == "/secrets/etcd-ca.pem", (
            "not the authority of the cluster's clients"
        )
        assert settings[f"{prefix}CERT_FILE"] == "/secrets/server.pem"
        assert settings[f"{prefix}KEY_FILE"] == "/secrets/server.key"
    assert settings["ETCD_LISTEN_CLIENT_URLS"] == "https://0.0.0.0:2379"
    assert settings["ETCD_LISTEN_PEER_URLS"] == "https://0.0.0.0:2380"
    assert settings["ETCD_ADVERTISE_CLIENT_URLS"] == f"{called}2379"
    assert settings["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == f"{called}2380"
    members = [member.partition("=")[2] for member in settings["ETCD_INITIAL_CLUSTER"].split(",")]
    assert len(members) == 3
    assert all(address.startswith("https://") for address in members)
    http = {key for key, value in settings.items() if str(value).startswith("http:")}
    assert http == {"ETCD_LISTEN_METRICS_URLS"}


def test_etcd_has_users_before_schedulers_of_docker_compose_use_it():
    services = compose()["services"]
    users = services["etcd-users"]
    assert users["entrypoint"] == ["etcd-users"]
    assert_is_root(users["environment"])
    assert {name for name in users["depends_on"] if name.startswith("etcd")} == {"etcd-1", "etcd-2", "etcd-3"}
    schedulers = {name: service for name, service in services.items() if name.startswith("scheduler-")}
    assert len(schedulers) == 3
    for service in schedulers.values():
        assert service["depends_on"]["etcd-users"] == {"condition": "service_completed_successfully"}
        assert_shows_a_certificate(service["environment"]["ONAGER_SCHEDULER_BACKEND"])
    assert compose()["networks"]["state"] == {"internal": True}
    for name, service in services.items():
        if name.startswith("etcd-"):
            assert service["networks"] == ["state"]
            assert "ports" not in service


def test_etcd_has_users_in_kubernetes():
    (users,) = (made for made in manifests() if made["kind"] == "Job")
    (container,) = users["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["etcd-users"]
    assert_is_root(settings_of("etcd-users"))
    assert_shows_a_certificate(settings_of("scheduler")["ONAGER_SCHEDULER_BACKEND"])
    (secret,) = (volume["secret"] for volume in pods()["etcd"]["spec"]["volumes"] if "secret" in volume)
    assert "root.key" not in str(secret["items"])
    assert "COPY deploy/etcd-users /usr/local/bin/" in (ROOT / "Dockerfile").read_text()


def assert_is_root(settings: dict[str, str]) -> None:
    assert settings["ETCDCTL_CERT"] == "/secrets/root.pem"
    assert settings["ETCDCTL_KEY"] == "/secrets/root.key"
    assert settings["ETCDCTL_CACERT"] == "/secrets/etcd-ca.pem"


def assert_shows_a_certificate(backend: str) -> None:
    options = backend.partition("?")[2].split("&")
    assert sorted(options) == ["cacert=/secrets/etcd-ca.pem", "cert=/secrets/etcd.pem", "key=/secrets/etcd.key"]


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
        if name.endswith("-keda"):
            continue
        assert policies[name]["podSelector"] == {"matchLabels": pod["metadata"]["labels"]}
    assert "169.254.0.0/16" in str(policies["executor"]["egress"])


def test_keda_alone_reaches_schedulers_at_a_port_that_asks_for_its_certificate():
    (policy,) = (
        made["spec"] for made in manifests() if made["metadata"]["name"] == "scaler" and "podSelector" in made["spec"]
    )
    (service,) = (
        made["spec"] for made in manifests() if made["metadata"]["name"] == "scaler" and "ports" in made["spec"]
    )
    (rule,) = policy["ingress"]
    assert policy["podSelector"] == {"matchLabels": pods()["scheduler"]["metadata"]["labels"]}
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}]
    settings = settings_of("scheduler-keda")
    assert settings["ONAGER_SCHEDULER_SCALER_TLS_CLIENT_CA"] == "/secrets/ca.pem"
    port = int(settings["ONAGER_SCHEDULER_SCALER_LISTEN"].rpartition(":")[2])
    (scaled,) = (made["spec"] for made in manifests() if made["kind"] == "ScaledObject")
    (trigger,) = scaled["triggers"]
    assert [rule["ports"], [{"port": each["port"]} for each in service["ports"]]] == [[{"port": port}]] * 2
    assert trigger["metadata"]["scalerAddress"].endswith(f":{port}")
    assert trigger["metadata"]["slotsPerExecutor"] == settings_of("executor")["ONAGER_EXECUTOR_SLOTS"]
    (credentials,) = (made for made in manifests() if made["kind"] == "TriggerAuthentication")
    assert trigger["authenticationRef"]["name"] == credentials["metadata"]["name"]
    assert {each["name"] for each in credentials["spec"]["secretTargetRef"]} == {"onager-keda"}
