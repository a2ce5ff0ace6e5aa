"""How the programs of Kubernetes are started on machines of one host. Pure."""

from pathlib import Path

API_PORT = 6443
# The first process of a pod, which does nothing.
PAUSE = "paddock/pause:latest"


def control_plane(folder: Path, address: str) -> dict[str, list[str]]:
    """The programs of the first machine with their flags, in the order of their starts.

    `folder` has the credentials, `address` is the machine's.
    """
    admin = f"--kubeconfig={folder / 'admin.json'}"
    accounts = folder / "accounts.key"
    return {
        "etcd": [
            "--data-dir=/run/etcd",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
        ],
        "kube-apiserver": [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={address}",
            f"--advertise-address={address}",
            f"--secure-port={API_PORT}",
            f"--tls-cert-file={folder / 'apiserver.pem'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes",
            f"--service-account-key-file={accounts}",
            f"--service-account-signing-key-file={accounts}",
            "--anonymous-auth=false",
        ],
        "kube-controller-manager": [
            admin,
            f"--service-account-private-key-file={accounts}",
            f"--root-ca-file={folder / 'ca.pem'}",
            "--leader-elect=false",
        ],
        "kube-scheduler": [admin, "--leader-elect=false"],
    }


def kubelet(name: str, address: str, directory: Path, credential: Path) -> list[str]:
    """The flags of a machine's kubelet; `directory` is the machine's."""
    own = directory / "kubelet"
    return [
        f"--kubeconfig={credential}",
        f"--hostname-override={name}",
        f"--node-ip={address}",
        f"--address={address}",
        "--node-labels=paddock=node",
        f"--root-dir={own}",
        f"--cert-dir={own / 'pki'}",
        f"--volume-plugin-dir={own / 'volume-plugins'}",
        f"--experimental-dockershim-root-directory={own / 'dockershim'}",
        "--docker-endpoint=unix:///run/docker.sock",
        f"--pod-infra-container-image={PAUSE}",
        # Containers are in the groups that the engine makes; two kubelets would end each
        # other's pods in groups of one name.
        "--cgroup-driver=cgroupfs",
        "--cgroups-per-qos=false",
        "--enforce-node-allocatable=",
        "--feature-gates=DevicePlugins=false",
        "--protect-kernel-defaults=true",
        "--oom-score-adj=0",
        "--max-open-files=65536",
        "--fail-swap-on=false",
        "--anonymous-auth=false",
        "--authorization-mode=AlwaysAllow",
        "--read-only-port=0",
        "--healthz-port=0",
        "--eviction-hard=",
        "--image-gc-high-threshold=100",
    ]
