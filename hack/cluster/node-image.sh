#!/usr/bin/env bash
# The images that the cluster is made of: debian:trixie-slim and kindest/node. `node-image.sh base` stops
# after the first.
#
# They are pulled where a registry answers. Elsewhere both are built from package registries alone: Debian's,
# and the Go module proxy. That takes about 9 minutes on 2 cores, 1 minute with a warm Go build cache.
set -euo pipefail
. "$(dirname "$0")/env.sh"

only=${1:-}
coredns_version=v1.14.7
export CGO_ENABLED=0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

pull() { # IMAGE SECONDS
  say "images: pulling $1"
  if command -v timeout >/dev/null; then timeout "$2" docker pull --quiet "$1"; else docker pull --quiet "$1"; fi \
    > /dev/null 2> "$work/pull" && return
  say "images: not to be had ($(tail -1 "$work/pull"))"
  return 1
}

build_base() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    fail "$base_image cannot be pulled ($(tail -1 "$work/pull")), and building it takes root on Debian"
  command -v debootstrap >/dev/null || {
    quietly apt-get update -qq
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends debootstrap
  }
  say "images: $base_image (debootstrap, about 30 s)"
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

has_image "$base_image" || pull "$base_image" 120 || build_base
[ "$only" = base ] && exit 0
has_image "$node_image" && exit 0
pull "$node_image" 900 && exit 0

need_go "$node_image"
command -v gcc >/dev/null || fail "gcc is needed to build $node_image; install it"
sources=$here/node-image
kind_sources=$(cd "$work" && go mod download -json "sigs.k8s.io/kind@$kind_version" | jq -r .Dir)/images/base/files

say "images: Kubernetes $kubernetes_version (go build, about 5 minutes when nothing is cached)"
mkdir -p "$work/bin"
version=k8s.io/component-base/version
ldflags="-s -w -X $version.gitVersion=$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=35"
for program in $(sed -n 's/^\t_ "\(.*\)"/\1/p' "$sources/kubernetes/tools.go"); do
  (cd "$sources/kubernetes" && quietly go build -trimpath -ldflags "$ldflags" -o "$work/bin/" "$program")
  say "images:   ${program##*/}"
done
say "images: etcd and CoreDNS (go build, about 2 minutes when nothing is cached)"
(cd "$sources/etcd" && quietly go build -trimpath -ldflags "-s -w" -o "$work/bin/etcd" go.etcd.io/etcd/server/v3)
GOBIN=$work/bin quietly go install -trimpath -ldflags "-s -w" "github.com/coredns/coredns@$coredns_version"
gcc -static -Os -s -o "$work/bin/pause" "$sources/pause.c"

say "images: the control plane's"
image() { # NAME PROGRAM DIRECTORY [BASE] [RUN] [ENTRYPOINT]
  local context=$work/context
  rm -rf "$context"; mkdir "$context"
  cp "$work/bin/$2" "$context/"
  printf 'FROM %s\n%s\nCOPY %s %s\n%s\n' "${4:-scratch}" "${5:-}" "$2" "$3" "${6:-}" > "$context/Dockerfile"
  build_image -t "$1" "$context"
}
"$work/bin/kubeadm" config images list --kubernetes-version "$kubernetes_version" > "$work/names" 2>/dev/null
name() { grep "/$1:" "$work/names"; }
for program in kube-apiserver kube-controller-manager kube-scheduler; do
  image "$(name $program)" $program /usr/local/bin/
done
image "$(name etcd)" etcd /usr/local/bin/
image "$(name coredns)" coredns / scratch "" 'ENTRYPOINT ["/coredns"]'
pause=$(sed -n 's/^ *sandbox_image = "\(.*\)"/\1/p' "$kind_sources/etc/containerd/config.toml")
image "$pause" pause / scratch "" 'ENTRYPOINT ["/pause"]'
packages='RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends iptables nftables conntrack \
  kmod iproute2 && rm -rf /var/lib/apt/lists/* /var/cache/apt'
image "$(name kube-proxy)" kube-proxy /usr/local/bin/ "$base_image" "$packages"

pod_network=localhost/pod-network:v1
mkdir "$work/pod-network"
cp "$work/bin/kubectl" "$sources/pod-network.sh" "$work/pod-network/"
printf 'FROM %s\n%s\nCOPY kubectl /usr/local/bin/\nCOPY pod-network.sh /\nCMD ["/pod-network.sh"]\n' \
  "$base_image" "$packages" > "$work/pod-network/Dockerfile"
build_image -t $pod_network "$work/pod-network"

say "images: $node_image"
context=$work/node
mkdir -p "$context/bin" "$context/manifests"
cp "$sources/Dockerfile" "$context/"
cp "$work"/bin/{kubeadm,kubelet,kubectl} "$context/bin/"
cp "$sources"/default-{cni,storage}.yaml "$context/manifests/"
cp -r "$kind_sources" "$context/kind-files"
chmod -R u+w "$context/kind-files"
rm "$context/kind-files/etc/systemd/system/containerd-fuse-overlayfs.service"
mapfile -t parts < <(for i in kube-apiserver kube-controller-manager kube-scheduler kube-proxy etcd coredns; do name $i; done)
docker save -o "$context/images.tar" "${parts[@]}" "$pause" $pod_network
build_image --build-arg BASE_IMAGE="$base_image" --build-arg KUBERNETES_VERSION="$kubernetes_version" \
  -t "$node_image" "$context"
# they live on inside the node image
quietly docker rmi "${parts[@]}" "$pause" $pod_network
say "images: done"
