#!/usr/bin/env bash
# Builds the programs of Kubernetes that tests of `deploy/kubernetes` start, from Debian's source
# package, into /var/cache/paddock-kubernetes; it installs nothing. On Debian 12; elsewhere it says
# so, and these tests are skipped. The first time takes 10 to 30 minutes and 4 GB.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

place=/var/cache/paddock-kubernetes
servers=(kube-apiserver kube-controller-manager kube-scheduler kubelet)
# What the compiler makes.
output=$place/source/_output/local/go/bin
built() {
    for name in etcd kubectl "${servers[@]}"; do [ -x "$place/bin/$name" ] || return 1; done
}

if built; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! grep -qs '^VERSION_CODENAME=bookworm$' /etc/os-release; then
    step "Kubernetes is built on Debian 12 only, as root: its tests are skipped"
    exit 0
fi
command -v dpkg-source >/dev/null || { step "installing dpkg-dev"; apt_install dpkg-dev; }
mkdir -p "$place"/{bin,home,packages,apt/lists/partial,apt/archives/partial}

# Each step leaves a mark when it is done: a run that was interrupted goes on after the last one.
if ! [ -e "$place/packages/fetched" ]; then
    step "fetching the sources of Kubernetes, and what builds and serves it"
    # Another list of sources than the host's, because the host's may have no source packages.
    cat >"$place/apt/debian.sources" <<SOURCES
Types: deb deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
    export APT_CONFIG=$place/apt/apt.conf
    cat >"$APT_CONFIG" <<CONFIGURATION
Dir::Etc::sourcelist "$place/apt/debian.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$place/apt/lists";
Dir::Cache "$place/apt";
APT::Sandbox::User "root";
CONFIGURATION
    apt-get -q update 2>&1 | dimmed
    tools=(golang-1.19-go golang-1.19-src etcd-server kubernetes-client rsync libpopt0)
    tools+=(jq libjq1 libonig5)
    rm -f "$place"/packages/*
    (cd "$place/packages" && apt-get -q download "${tools[@]}" 2>&1 | dimmed)
    (cd "$place/packages" && apt-get -q source --download-only kubernetes 2>&1 | dimmed)
    touch "$place/packages/fetched"
fi

if ! [ -e "$place/source/unpacked" ]; then
    step "unpacking them"
    rm -rf "$place/root" "$place/source"
    for package in "$place"/packages/*.deb; do dpkg-deb --extract "$package" "$place/root"; done
    dpkg-source --no-check --extract "$place"/packages/kubernetes_*.dsc "$place/source" 2>&1 | dimmed
    mkdir -p "$place/source/.go/src/k8s.io"
    ln -sfn ../../.. "$place/source/.go/src/k8s.io/kubernetes"
    touch "$place/source/unpacked"
fi

# Its own scripts ask git, which would find a repository around the cache.
cat >"$place/version" <<'VERSION'
KUBE_GIT_COMMIT='0000000000000000000000000000000000000000'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v1.20.2'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
VERSION

unbuilt=()
for name in "${servers[@]}"; do
    [ -x "$place/bin/$name" ] || [ -x "$output/$name" ] || unbuilt+=("cmd/$name")
done
if [ "${#unbuilt[@]}" != 0 ]; then
    step "building ${unbuilt[*]#cmd/}"
    export GOROOT=$place/root/usr/lib/go-1.19 GOPATH=$place/source/.go GOPROXY=off GO111MODULE=off
    export PATH=$GOROOT/bin:$place/root/usr/bin:$PATH HOME=$place/home CGO_ENABLED=0 GOFLAGS=-p=2
    export LD_LIBRARY_PATH=$place/root/usr/lib/x86_64-linux-gnu:$place/root/lib/x86_64-linux-gnu
    export KUBE_GIT_VERSION_FILE=$place/version
    nice -n 10 make -C "$place/source" WHAT="${unbuilt[*]}" 2>&1 | dimmed
fi

for name in "${servers[@]}"; do
    [ -x "$place/bin/$name" ] || mv "$output/$name" "$place/bin/"
done
cp "$place"/root/usr/bin/{etcd,kubectl} "$place/bin/"
rm -rf "$place"/{source,root,home,packages,apt,version} "$place"/kubernetes_*
step "Kubernetes is in $place/bin"
