# SPDX-License-Identifier: Apache-2.0
"""The machine on which the quick start begins: what its reader gets from elsewhere comes from this machine.

- The repository that is cloned is what git knows of this checkout. Its examples/first takes torch from a directory of
  the node, as everywhere in these tests, since no registry may answer.
- `kind create cluster` makes its node from the node image of the other tests, and afterwards gives it the trainer's
  image and a volume: that node image has no provisioner of volumes, as kind's own has.
- `docker build` does without buildx where there is none.

All else is what the page says. The cluster has a name of its own: one that is named kind may be somebody's.
"""

import shutil
from pathlib import Path

from e2e.job import IMAGE, NEWEST_TORCH
from e2e.kube import ENVIRONMENT, run, succeed
from support.broken_checkout import files
from support.doc_pages import ROOT
from support.reader import Reader

ADDRESS = "https://github.com/elasticjob/elasticjob"
NAME = "elasticjob-quick-start"
NODE = f"{NAME}-control-plane"
VOLUMES = "/var/lib/elasticjob-volumes"
CREATE_SECONDS = 120

TRAINER = f"""
patches:
  - target: {{kind: ElasticJob, name: first}}
    patch: |
      - {{op: replace, path: /spec/template/spec/containers/0/image, value: "{IMAGE}"}}
      - op: add
        path: /spec/template/spec/containers/0/volumeMounts/-
        value: {{name: torch, mountPath: {NEWEST_TORCH}, readOnly: true}}
      - op: add
        path: /spec/template/spec/volumes/-
        value: {{name: torch, hostPath: {{path: {NEWEST_TORCH}, type: Directory}}}}
"""
NODES = """\
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
    extraMounts:
      - {{hostPath: "{torch}", containerPath: {inside}, readOnly: true}}
"""
VOLUME = f"""\
apiVersion: v1
kind: PersistentVolume
metadata: {{name: quick-start}}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {{storage: 1Gi}}
  hostPath: {{path: {VOLUMES}, type: Directory}}
"""
KIND = """\
set -eu
[ "$1 ${{2:-}}" = "create cluster" ] || exec {kind} "$@"
{kind} "$@" --image {image} --config {folder}/kind.yaml --wait {seconds}s
{kind} load docker-image {trainer}
docker exec {node} install --directory --mode 1777 {volumes}
kubectl create --filename {folder}/volume.yaml
"""
DOCKER = """\
if [ "$1" = build ] && ! {docker} buildx version >/dev/null 2>&1; then
  shift
  DOCKER_BUILDKIT=0 exec {docker} build --network host "$@"
fi
exec {docker} "$@"
"""


def first_machine(folder: Path) -> Reader:
    """The shell of a reader who has nothing but the programs that the page names."""
    origin, work = folder / "origin", folder / "work"
    work.mkdir()
    _make_repository(origin)
    told = succeed(
        "bash", "-c", f'. "{ROOT}/hack/cluster/env.sh"; echo "$node_image"; locked_dir torch "$newest_torch"'
    )
    node_image, torch = told.splitlines()
    (folder / "kind.yaml").write_text(NODES.format(torch=torch, inside=NEWEST_TORCH))
    (folder / "volume.yaml").write_text(VOLUME)
    kind, docker = (shutil.which(name, path=ENVIRONMENT["PATH"]) for name in ("kind", "docker"))
    values = {"image": node_image, "folder": folder, "seconds": CREATE_SECONDS, "trainer": IMAGE, "node": NODE}
    programs = {
        "kind": KIND.format(kind=kind, volumes=VOLUMES, **values),
        "docker": DOCKER.format(docker=docker),
    }
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "KIND_CLUSTER_NAME": NAME,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{origin}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
    return Reader(work, environment, programs)


def remove_cluster() -> None:
    """The one of the page, if it is there."""
    run("kind", "delete", "cluster", "--name", NAME, seconds=CREATE_SECONDS)


def _make_repository(origin: Path) -> None:
    for name in files():
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, origin / name, follow_symlinks=False)
    with (origin / "examples" / "first" / "kustomization.yaml").open("a") as file:
        file.write(TRAINER)
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    succeed("git", "init", "--quiet", "--initial-branch=main", str(origin))
    succeed("git", "-C", str(origin), "add", "--all")
    succeed("git", "-C", str(origin), *who, "commit", "--quiet", "--no-verify", "--message=quick start")
