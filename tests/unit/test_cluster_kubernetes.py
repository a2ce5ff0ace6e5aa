"""What `make test-kubernetes` starts with, as far as it can be seen without a Kubernetes."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from scripts.cluster import kubernetes
from scripts.cluster.kubernetes import DIFFERENCES, MANIFESTS, PREPARE
from tests.support.limits import PROGRAM_SECONDS
from tests.support.sources import ROOT


def test_each_difference_from_the_manifests_is_one() -> None:
    """A text that they don't have any more would be left as it is without a word."""
    text = "".join(path.read_text() for path in MANIFESTS.glob("*.yaml"))
    assert [each for each in DIFFERENCES if each not in text] == []


def test_without_its_programs_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "PROGRAMS", tmp_path)
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        (tmp_path / name).touch()
    assert kubernetes.missing() == f"no kubelet in {tmp_path}: `make test-kubernetes` builds them"
    (tmp_path / "kubelet").touch()
    assert kubernetes.missing() is None


@pytest.mark.parametrize("script", [PREPARE, ROOT / "scripts" / "kubernetes.sh"])
def test_scripts_can_be_read(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True, timeout=PROGRAM_SECONDS)


@pytest.mark.parametrize("flag", ["--bundle", "-b", "--process", "-p"])
def test_the_runtime_leaves_out_what_root_lacks_and_nothing_else(tmp_path: Path, flag: str) -> None:
    wrapper = PREPARE.read_text().split("<<'RUNTIME'\n")[1].split("RUNTIME\n")[0]
    (tmp_path / "runtime").write_text(wrapper)
    runc = tmp_path / "runc"
    runc.write_text('#!/bin/sh\necho "$@"\n')
    runc.chmod(0o755)
    order = {"bounding": ["CAP_SYS_RESOURCE", "CAP_CHOWN", "CAP_SYS_RESOURCE"], "oomScoreAdj": -998}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(order, separators=(",", ":")))
    given = path if flag in ("--process", "-p") else tmp_path
    done = subprocess.run(
        ["sh", tmp_path / "runtime", "--log", "x", "create", flag, given, "id"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    assert json.loads(path.read_text()) == {"bounding": ["CAP_CHOWN"], "oomScoreAdj": 0}
    assert done.stdout == f"--log x create {flag} {given} id\n"
