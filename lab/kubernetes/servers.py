"""The command lines of the cluster's programs. All listen on loopback only."""

from dataclasses import dataclass
from pathlib import Path

from lab.kubernetes.credentials import Credentials
from lab.kubernetes.programs import find

HERE = Path(__file__).parent

KUBELET = "lab/kubelet"
"""Label of nodes. Those with the value `processes` are left to `lab.kubernetes.kubelet`."""


_UNLIMITED = ("--kube-api-qps=1000", "--kube-api-burst=1000")
"""By default, the scheduler sends 50 requests a second and a controller 20, so a crowd of pods would wait."""


@dataclass(frozen=True)
class Ports:
    """The ports of one cluster."""

    etcd: int
    etcd_peers: int
    api: int


def etcd(ports: Ports, folder: Path) -> list[str]:
    """Return etcd's command line. Without fsync: the data need not survive a crash."""
    client, peers = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peers}"
    return [
        str(find("etcd")),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]


def api_server(ports: Ports, folder: Path, credentials: Credentials) -> list[str]:
    """Return the API server's command line: RBAC, its usual admission plugins, an audit log."""
    return [
        str(find("kube-apiserver")),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.api}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={credentials.certificate}",
        f"--tls-private-key-file={credentials.key}",
        f"--token-auth-file={credentials.token_file}",
        "--authorization-mode=RBAC",
        # As kubeadm and cloud providers have it: Pod Security decides.
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={credentials.service_account_key}",
        f"--service-account-key-file={credentials.service_account_key}",
        # Of the lab's kubelets, which serve logs. kwok's nodes have none.
        f"--kubelet-certificate-authority={credentials.ca}",
        f"--audit-policy-file={HERE / 'audit-policy.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
        # One file: by default, it is renamed when it has 100 MB.
        "--audit-log-maxsize=0",
        # By default, a request ends after a minute, or after 15 s in a queue (`RequestTimeout` in
        # k8s.io/apiserver's pkg/server/config.go). On a busy host, requests of a crowd take longer.
        "--request-timeout=10m",
    ]


def controller_manager(credentials: Credentials, url: str) -> list[str]:
    """Return the command line of the controllers: service accounts, quotas, garbage collection of pods."""
    name = "controller-manager"
    return [
        str(find("kube-controller-manager")),
        f"--kubeconfig={credentials.kubeconfig(name, url, credentials.tokens[name])}",
        f"--service-account-private-key-file={credentials.service_account_key}",
        f"--root-ca-file={credentials.ca}",
        # RBAC's built-in roles are for one service account for each controller.
        "--use-service-account-credentials=true",
        # By default, a node without a heartbeat for 50 s gets no pods until it reports again. A busy host would
        # take the nodes away, and so would an API server that starts slowly.
        "--node-monitor-grace-period=1h",
        *_UNLIMITED,
        "--leader-elect=false",
        "--secure-port=0",
    ]


def scheduler(credentials: Credentials, url: str) -> list[str]:
    """Return the scheduler's command line."""
    name = "scheduler"
    return [
        str(find("kube-scheduler")),
        f"--kubeconfig={credentials.kubeconfig(name, url, credentials.tokens[name])}",
        *_UNLIMITED,
        "--leader-elect=false",
        "--secure-port=0",
    ]


def kwok(credentials: Credentials, url: str) -> list[str]:
    """Return the command line of kwok, which plays the kubelets of most nodes as in `stages.yaml`."""
    return [
        str(find("kwok")),
        f"--kubeconfig={credentials.kubeconfig('kwok', url, credentials.tokens['kwok'])}",
        f"--config={HERE / 'stages.yaml'}",
        f"--manage-nodes-with-label-selector={KUBELET}!=processes",
        "--node-lease-duration-seconds=40",
        "--server-address=",
    ]
