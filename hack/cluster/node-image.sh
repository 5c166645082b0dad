#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The images that the cluster is made of: debian:trixie-slim and kindest/node.
#
# They are pulled where a registry answers. Elsewhere both are built from package registries alone: Debian's,
# and the Go module proxy. That takes about 8 minutes on 2 cores, 1 minute with a warm Go build cache.
#   node-image.sh              both
#   node-image.sh pull         the first, if a registry answers, which also tells whether to pull or to build the second
#   node-image.sh base         the first
#   node-image.sh node         the second, built; what takes long may be done before, and at once:
#   node-image.sh programs     ... its programs
#   node-image.sh containerd   ... its containerd, where it is not Debian's
#   node-image.sh packages     ... its packages of Debian's, for which the first has to be there
# With KUBERNETES=v1.37.2 the second is of that release, whose programs are compiled one by one, as it has them.
set -euo pipefail
. "$(dirname "$0")/env.sh"

work=$(mktemp -d)
trap 'exit 143' TERM # when what runs has ended too
# a debootstrap that is stopped leaves its mounts
trap 'umount "$work"/rootfs/{proc,sys} 2>/dev/null || true; rm -rf "$work"' EXIT
sources=$here/node-image
programs=$cache/programs-$cluster_version-$(cat "$here"/programs/{go.sum,*/main.go} | sha256 | cut -c1-12)
containerd=$cache/containerd-$(sha256 < "$sources/containerd/go.sum" | cut -c1-12)
of_pods=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy)
of_nodes=(kubelet kubeadm)

pull() { # IMAGE SECONDS
  say "images: pulling $1"
  if command -v timeout >/dev/null; then timeout "$2" docker pull --quiet "$1"; else docker pull --quiet "$1"; fi \
    > /dev/null 2> "$work/pull" && return
  say "images: not to be had ($(tail -1 "$work/pull"))"
  return 1
}

pull_node() { pull "$node_image" 900; }

build_base() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    fail "$base_image cannot be pulled ($(tail -1 "$work/pull")), and building it takes root on Debian"
  command -v debootstrap >/dev/null || {
    quietly apt-get update -qq
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends debootstrap
  }
  quietly debootstrap --variant=minbase --include=ca-certificates trixie "$work/rootfs"
  # authorities that this machine trusts beside Debian's: registries may be reached through a proxy
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$work/rootfs/usr/local/share/ca-certificates/"
    quietly chroot "$work/rootfs" update-ca-certificates
  fi
  # what makes the image slim
  (cd "$work/rootfs" && rm -rf var/cache/apt/* var/lib/apt/lists/* usr/share/{doc,man,locale,info}/*)
  tar -C "$work/rootfs" -c . | docker import - "$base_image" >/dev/null
}

compile() {
  [ ! -e "$programs/.complete" ] || return 0
  if command -v flock >/dev/null; then # `make api` may come while `make install` compiles
    exec 8> "$programs.lock"
    flock --nonblock 8 || { say "kind's programs: another set-up compiles them; waiting for its end"; flock 8; }
    [ ! -e "$programs/.complete" ] || return 0
  fi
  command -v gcc >/dev/null || fail "gcc is needed to build $node_image; install it"
  local name packages=(./coredns go.etcd.io/etcd/server/v3)
  if [ "$cluster_version" = "$kubernetes_version" ]; then
    # one program is all of them, by its name; kubectl, which is started often, is a program of its own
    build_programs "$programs" "${packages[@]}" ./kubernetes k8s.io/kubernetes/cmd/kubectl
    for name in "${of_pods[@]}" "${of_nodes[@]}"; do ln -sf kubernetes "$programs/$name"; done
  else
    build_programs "$programs" "${packages[@]}"
    build_kubernetes "$cluster_version" "$programs" "${of_pods[@]}" "${of_nodes[@]}" kubectl
  fi
  mv "$programs/server" "$programs/etcd"
  gcc -static -Os -s -o "$programs/pause" "$sources/pause.c"
  touch "$programs/.complete"
}

# Without the snapshotters that kind uses nowhere, of which one needs a C compiler.
compile_containerd() {
  [ ! -e "$containerd/.complete" ] || return 0
  command -v go >/dev/null || fail "Go is needed to build containerd for $node_image; install it from go.dev"
  local module=github.com/containerd/containerd/v2 version
  (
    cd "$sources/containerd"
    version=$(go list -m -f '{{.Version}}' "$module")
    go_download "$module"/cmd/{containerd,containerd-shim-runc-v2,ctr}
    mkdir -p "$containerd"
    go_build -tags no_btrfs,no_devmapper,no_zfs -ldflags "-s -w -X $module/version.Version=$version" -o "$containerd/" \
      "$module"/cmd/{containerd,containerd-shim-runc-v2,ctr}
  )
  touch "$containerd/.complete"
}

image() { # NAME BASE INSTRUCTIONS [FILE]..., which are in bin/
  local context=$work/image name=$1 base=$2 instructions=$3; shift 3
  rm -rf "$context"; mkdir -p "$context/bin"
  (($# == 0)) || cp --no-dereference "$@" "$context/bin/"
  printf 'FROM %s\n%s\n' "$base" "$instructions" > "$context/Dockerfile"
  build_image -t "$name" "$context"
}

# Debian's packages of the nodes, and of the two images that see to the nodes' network: needs none of the programs.
network=localhost/node-network:v1
packages() {
  image $network "$base_image" 'RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends \
    iptables nftables conntrack kmod iproute2 && rm -rf /var/lib/apt/lists/* /var/cache/apt'
  mkdir -p "$work/empty"
  build_image --target packages --build-arg BASE_IMAGE="$base_image" -f "$sources/Dockerfile" "$work/empty"
}

build_node() {
  compile
  packages
  "$programs/kubeadm" config images list --kubernetes-version "$cluster_version" > "$work/names" 2>/dev/null
  local files pause parts part pod_network=localhost/pod-network:v1 context=$work/node shared=() runtime=()
  ! has_containerd_2 || { compile_containerd; runtime=("$containerd"/{containerd,containerd-shim-runc-v2,ctr}); }
  [ ! -e "$programs/kubernetes" ] || shared=("$programs/kubernetes") # to which the others are links
  # kind's own node images are made with these
  files=$(cd "$here/programs" && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files
  pause=$(sed -n 's/^ *sandbox_image = "\(.*\)"/\1/p' "$files/etc/containerd/config.toml")
  image "$pause" scratch $'COPY bin/ /\nENTRYPOINT ["/pause"]' "$programs/pause"
  # One image has all programs, under each name that kubeadm calls one of them by: its layers are stored once.
  # Only CoreDNS is started without its name.
  mapfile -t parts < <(grep -v /pause: "$work/names"; echo $pod_network)
  image $pod_network $network $'COPY bin/ /usr/local/bin/\nENTRYPOINT ["coredns"]' \
    ${shared[@]+"${shared[@]}"} "$programs"/{kubectl,etcd,coredns} "${of_pods[@]/#/$programs/}" "$sources/pod-network.sh"
  for part in "${parts[@]}"; do docker tag $pod_network "$part"; done

  mkdir -p "$context/bin" "$context/manifests"
  cp --no-dereference ${shared[@]+"${shared[@]}"} "$programs/kubectl" "${of_nodes[@]/#/$programs/}" \
    ${runtime[@]+"${runtime[@]}"} "$context/bin/"
  cp "$sources"/default-{cni,storage}.yaml "$context/manifests/"
  cp -r "$files" "$context/kind-files"
  chmod -R u+w "$context/kind-files"
  rm "$context/kind-files/etc/systemd/system/containerd-fuse-overlayfs.service"
  docker save -o "$context/images.tar" "${parts[@]}" "$pause"
  build_image --build-arg BASE_IMAGE="$base_image" --build-arg KUBERNETES_VERSION="$cluster_version" \
    -t "$node_image" -f "$sources/Dockerfile" "$context"
  # they live on inside the node image
  quietly docker rmi "${parts[@]}" "$pause" $network
  rm -rf "$cache/programs-$cluster_version"-* "$cache"/containerd-*
}

base() { has_image "$base_image" || pull "$base_image" 120 || build_base; }

case ${1:-all} in
  pull)
    has_image "$base_image" || pull "$base_image" 120 || exit 0
    has_image "$node_image" || is_pulled "$base_image" || pull_node || exit 0
    ;;
  base) base ;;
  programs) compile ;;
  containerd) compile_containerd ;;
  packages) packages ;;
  node) has_image "$node_image" || build_node ;;
  all) base; has_image "$node_image" || pull_node || build_node ;;
  *) fail "node-image.sh knows pull, base, programs, containerd, packages and node, not '$1'" ;;
esac
