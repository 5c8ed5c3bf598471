"""What `check` says about the kubeconfigs that fleet.yaml names: each message names the key and a fix."""

import base64
import json
from typing import Any

import pytest

from autoscaler.app.preflight import load_for_service
from tests.config.fleet_file import Folder, pods
from tests.config.keys import certificate, curve_key, pem, rsa_key

SECTION = "{context: c, namespace: runners}"
TOKEN = {"token": "t"}


def kubeconfig(**changes: Any) -> str:
    content = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "k", "user": "u"}},
            {"name": "also-one", "context": {"cluster": "k", "user": "v"}},
            {"name": "broken", "context": {"cluster": "gone", "user": "u"}},
        ],
        "clusters": [{"name": "k", "cluster": {"server": "https://k.example:6443/"}}],
        "users": [{"name": name, "user": TOKEN} for name in "uv"],
    }
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("content", "section", "key", "what", "fix"),
    [
        (kubeconfig(), "context: on", "context", '"on" is not a context of "k"', "mean one?"),
        (kubeconfig(), "context: zzz", "context", '"zzz" is not', "also-one, broken or one"),
        (kubeconfig(), "context: broken", "context", "no cluster with a server", "correct"),
        (kubeconfig(contexts=[]), "context: one", "context", "not a context", "add it"),
        (
            kubeconfig(**{"current-context": ""}),
            "service_account: default",
            "kubeconfig",
            "no current context",
            "add the key context",
        ),
        *(
            (
                kubeconfig(clusters=[{"name": "k", "cluster": {"server": server}}]),
                "context: one",
                "context",
                f'server "{server}" of cluster "k" of "k" is not the URL of an API server',
                "write https://HOST:PORT",
            )
            for server in (
                "k.example:6443",
                "k.example",
                "https://k.example:99999",
                "https://k:x",
                "https://",
            )
        ),
        ("[", "context: one", "context", "is not YAML", "name a kubeconfig"),
        ("word", "service_account: a", "kubeconfig", "not a kubeconfig", "name a kubeconfig"),
        ("a: b\n" * 2**18, "context: one", "context", "Larger than 1 MiB", "name a file"),
        ("a: " + "[" * 2000, "context: one", "context", "is not YAML", "name a kubeconfig"),
        ("[1]", "context: one", "context", "not a kubeconfig", "name a kubeconfig"),
        ("users: 7", "context: one", "context", "not a kubeconfig", "name a kubeconfig"),
        *(
            (f"contexts: [{entry}]", "context: one", "context", "is not a context of", "add it to")
            for entry in ("7", "null", "text", "{context: {}}", "{name: 1}", "{name: one}")
        ),
        ("", "context: one", "context", "not a kubeconfig", "name a kubeconfig"),
        (None, "context: one", "kubeconfig", "does not exist", "create the file"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(
    folder: Folder, content: str | None, section: str, key: str, what: str, fix: str
) -> None:
    if content is not None:
        (folder.path / "k").write_text(content)
    text = pods((SECTION, f"{{kubeconfig: k, namespace: n, {section}}}"))
    [problem] = folder.refused(text)
    assert problem.key == f"providers.cluster.kubernetes.{key}"
    assert what in problem.what
    assert fix in problem.fix


def test_a_kubeconfig_whose_path_the_client_would_split(folder: Folder) -> None:
    (folder.path / "a:b").write_text(kubeconfig())
    [problem] = folder.refused(pods((SECTION, "{kubeconfig: 'a:b', namespace: n, context: one}")))
    assert "has a : in its path" in problem.what
    assert problem.fix == "rename the file or its folder"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


GOOD = certificate(curve_key())


@pytest.mark.parametrize(
    ("kind", "entry", "what", "fix"),
    [
        ("cluster", {"certificate-authority-data": "%%%"}, "is not base64", "correct"),
        ("cluster", {"certificate-authority-data": base64_of("x")}, "certificate", ""),
        ("cluster", {"certificate-authority": "absent.pem"}, "absent.pem", ""),
        ("user", {"client-certificate-data": base64_of("x")}, "certificate", ""),
        ("user", {"client-certificate": "absent.pem"}, "absent.pem", ""),
        ("user", {"client-key-data": base64_of(GOOD)}, "key", ""),
        ("user", {"client-key": "absent.pem"}, "absent.pem", ""),
    ],
)
def test_a_certificate_or_key_of_a_kubeconfig_that_cannot_be_used(
    folder: Folder, kind: str, entry: dict[str, str], what: str, fix: str
) -> None:
    [key] = entry
    server = {"server": "https://k.example:6443"}
    changes = {
        "cluster": {"clusters": [{"name": "k", "cluster": server | entry}]},
        "user": {"users": [{"name": "u", "user": TOKEN | entry}]},
    }
    (folder.path / "k").write_text(kubeconfig(**changes[kind]))
    [problem] = folder.refused(pods((SECTION, "{kubeconfig: k, namespace: n}")))
    assert problem.key == "providers.cluster.kubernetes.kubeconfig"
    name = {"cluster": "k", "user": "u"}[kind]
    assert problem.what.startswith(f'{key.removesuffix("-data")} of {kind} "{name}" of "k" ')
    assert what in problem.what
    assert fix in problem.fix


PAIR = {
    "client-certificate-data": base64_of(GOOD),
    "client-key-data": base64_of(pem(curve_key())),
}


@pytest.mark.parametrize(
    ("part", "entry", "what", "fix"),
    [
        (
            "user",
            {"client-certificate-data": PAIR["client-certificate-data"]},
            'user "u" of "k" has a client-certificate and no client-key',
            "add client-key to the kubeconfig",
        ),
        *(
            (
                "user",
                PAIR | {"client-key-data": base64_of(pem(other))},
                'client-key of user "u" of "k" is not the key of its client-certificate',
                "write the key of this certificate",
            )
            for other in (curve_key("other"), rsa_key())
        ),
        *(
            (
                "cluster",
                {"tls-server-name": name},
                f'tls-server-name {json.dumps(name)} of cluster "k" of "k" is not the name of a host',
                "without https:// and without a port",
            )
            for name in ("https://k.example", "k.example:6443", "k example", 1)
        ),
        (
            "context",
            {"cluster": "k"},
            'context "one" of "k" has no user',
            "add the key user to the context",
        ),
        *(
            ("user", user, 'user "u" of "k" has no credentials', "add token")
            for user in ({}, {"token": ""}, {"client-key-data": PAIR["client-key-data"]})
        ),
        ("context", {"cluster": "k", "user": "w"}, 'user "w" of "k" has no credentials', "add"),
    ],
)
def test_credentials_with_which_the_api_server_cannot_be_asked(
    folder: Folder, part: str, entry: dict[str, Any], what: str, fix: str
) -> None:
    if part == "cluster":
        entry = {"server": "https://k.example:6443"} | entry
    name = {"cluster": "k", "user": "u", "context": "one"}[part]
    (folder.path / "k").write_text(kubeconfig(**{f"{part}s": [{"name": name, part: entry}]}))
    [problem] = folder.refused(pods((SECTION, "{kubeconfig: k, namespace: n}")))
    assert problem.key == "providers.cluster.kubernetes.kubeconfig"
    assert problem.what == what
    assert fix in problem.fix


@pytest.mark.parametrize("user", [PAIR, {"tokenFile": "f"}, {"exec": {"command": "c"}}])
@pytest.mark.parametrize("name", ["k.example", "10.0.0.1", "fd00::1", ""])
def test_usual_credentials_and_server_names_are_accepted(
    folder: Folder, user: dict[str, Any], name: str
) -> None:
    cluster = {"server": "https://k.example:6443", "tls-server-name": name}
    content = kubeconfig(
        clusters=[{"name": "k", "cluster": cluster}], users=[{"name": "u", "user": user}]
    )
    (folder.path / "k").write_text(content)
    file = folder.path / "fleet.yaml"
    file.write_text(pods((SECTION, "{kubeconfig: k, namespace: n}")))
    load_for_service(file)


@pytest.mark.parametrize("number", [1, 0, True])
def test_a_current_context_that_is_not_text(folder: Folder, number: int) -> None:
    contexts = [{"name": number, "context": {"cluster": "k", "user": "u"}}]
    (folder.path / "k").write_text(kubeconfig(**{"current-context": number}, contexts=contexts))
    [problem] = folder.refused(pods((SECTION, "{kubeconfig: k, namespace: n}")))
    assert problem.key == "providers.cluster.kubernetes.kubeconfig"
    assert problem.what == f'current-context {json.dumps(number)} of "k" is not text'
    assert "put it in quotes" in problem.fix
    # The official client does not find a name that is a number, either.
    section = f"{{kubeconfig: k, namespace: n, context: '{json.dumps(number)}'}}"
    [problem] = folder.refused(pods((SECTION, section)))
    assert "is not a context of" in problem.what


def test_usable_certificates_of_a_kubeconfig_and_an_unused_user_are_accepted(
    folder: Folder,
) -> None:
    (folder.path / "sub").mkdir()
    (folder.path / "sub" / "ca.pem").write_text(GOOD)
    server = {"server": "https://k.example:6443", "certificate-authority": "ca.pem"}
    coded = base64_of(GOOD)
    user = {
        "client-certificate-data": "".join(
            f"{coded[at : at + 64]}\n" for at in range(0, len(coded), 64)
        ),
        "client-certificate": "absent.pem",
        "client-key-data": base64_of(pem(curve_key())),
    }
    others = {"name": "other", "user": {"client-key": "absent.pem"}}
    content = kubeconfig(
        clusters=[{"name": "k", "cluster": server}], users=[{"name": "u", "user": user}, others]
    )
    (folder.path / "sub" / "k").write_text(content)
    file = folder.path / "fleet.yaml"
    file.write_text(pods((SECTION, "{kubeconfig: sub/k, namespace: n}")))
    assert load_for_service(file).warnings == ()


@pytest.mark.parametrize("context", ["context: also-one", "context: one", "service_account: x"])
def test_two_contexts_of_one_cluster_are_one_namespace(folder: Folder, context: str) -> None:
    (folder.path / "k").write_text(kubeconfig())
    two = f"""{{kubeconfig: k, namespace: n}}
  other:
    kubernetes: {{kubeconfig: k, namespace: n, {context}}}"""
    [problem] = folder.refused(pods((SECTION, two)))
    assert problem.key == "providers.other.kubernetes.namespace"
    assert 'already the namespace of provider "cluster"' in problem.what


def cluster_at(server: str) -> list[dict[str, Any]]:
    return [{"name": "k", "cluster": {"server": server}}]


ONE_NAMESPACE = "is already the namespace of provider "


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{kubeconfig: k, namespace: n}", "{context: also-one, namespace: n}"),
        ("{context: one, namespace: n}", "{context: also-one, namespace: n}"),
        ("{kubeconfig: k, namespace: n}", "{namespace: n}"),
        ("{context: one, namespace: n}", "{namespace: n}"),
    ],
)
def test_one_namespace_of_a_cluster_through_different_credentials(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    (folder.path / "k").write_text(kubeconfig(clusters=cluster_at("https://K.example:443/")))
    (folder.path / "usual").write_text(kubeconfig(clusters=cluster_at("https://k.example")))
    monkeypatch.setenv("KUBECONFIG", f"{folder.path / 'absent'}:{folder.path / 'usual'}")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "k.example")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    two = f"{first}\n  other:\n    kubernetes: {second}"
    [problem] = folder.refused(pods((SECTION, two)))
    assert problem.key == "providers.other.kubernetes.namespace"
    assert problem.what == f'"n" of https://k.example {ONE_NAMESPACE}"cluster"'
    assert problem.fix == "write another namespace, or use one provider"


@pytest.mark.parametrize(
    "second",
    ["{context: also-one, namespace: n}", "{namespace: n}", "{context: absent, namespace: n}"],
)
def test_a_server_that_this_host_does_not_know_is_no_error(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    (folder.path / "k").write_text(kubeconfig())
    monkeypatch.setenv("KUBECONFIG", f"{folder.path / 'absent'}:~no-such-user/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    two = f"{{kubeconfig: k, namespace: n}}\n  other:\n    kubernetes: {second}"
    file = folder.path / "fleet.yaml"
    file.write_text(pods((SECTION, two)))
    load_for_service(file)


def test_a_context_that_this_host_does_not_know_is_not_the_cluster_of_this_pod(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(folder.path / "absent"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "k.example")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    two = "{namespace: n}\n  other:\n    kubernetes: {context: absent, namespace: n}"
    file = folder.path / "fleet.yaml"
    file.write_text(pods((SECTION, two)))
    load_for_service(file)


def test_the_cluster_of_a_context_may_be_in_another_file_of_kubeconfig(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.path / "k").write_text(kubeconfig())
    (folder.path / "contexts").write_text(kubeconfig(clusters=[]))
    later = kubeconfig(contexts=[], clusters=cluster_at("https://later.example"))
    (folder.path / "later").write_text(later)
    (folder.path / "clusters").write_text(kubeconfig(contexts=[]))
    names = ("contexts", "absent", "clusters", "clusters", "later")
    files = [str(folder.path / name) for name in names]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    two = (
        "{kubeconfig: k, namespace: n}\n  other:\n    kubernetes: {context: also-one, namespace: n}"
    )
    [problem] = folder.refused(pods((SECTION, two)))
    assert problem.what == f'"n" of https://k.example:6443 {ONE_NAMESPACE}"cluster"'


@pytest.mark.parametrize("server", ["https://[2001:db8::1]:443", "https://k:6443"])
def test_another_server_is_another_namespace(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    (folder.path / "k").write_text(kubeconfig(clusters=cluster_at(server)))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "2001:db8::2")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    two = "{kubeconfig: k, namespace: n}\n  other:\n    kubernetes: {namespace: n}"
    text = pods((SECTION, two))
    folder.load(text)
    (folder.path / "fleet.yaml").write_text(text)
    load_for_service(folder.path / "fleet.yaml")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "2001:db8::1")
    if server.startswith("https://["):
        [problem] = folder.refused(text)
        assert problem.key == "providers.other.kubernetes.namespace"
