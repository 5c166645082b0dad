#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the project's images and loads those that changed into the nodes.
#   images.sh [build | load]         both when none is named
#   images.sh previous CHECKOUT      both for operator and sidecar of another version, tagged `previous`
set -euo pipefail
. "$(dirname "$0")/env.sh"

images=(operator sidecar torch-plugin digits) source=$root

# containerd keeps an image under its name and under its id; the name is up to date when both are one image
node_has() { # NODE NAME ID
  docker exec "$1" ctr --namespace k8s.io images list 2>/dev/null | awk -v name="docker.io/$2" -v id="$3" '
    $1 == name { named = $3 }
    $1 == id || $3 == id { known[$3] = 1 }
    END { exit !(named in known) }'
}

build() {
  local name image before
  for name in "${images[@]}"; do
    image=$(image_name "$name")
    before=$(image_id "$image" 2>/dev/null || true)
    case $name in
      digits) build_image --target digits --tag "$image" --file "$here/digits.Dockerfile" "$source" ;;
      *) build_image --target "$name" --tag "$image" "$source" ;;
    esac
    say "images: built $image"
    [ -z "$before" ] || [ "$before" = "$(image_id "$image")" ] || quietly docker rmi "$before" || true
  done
}

load() {
  local all stale=() name image node
  all=($(nodes))  # bash 3 has no mapfile
  ((${#all[@]})) || fail "there is no cluster $cluster; run 'make cluster'"
  for name in "${images[@]}"; do
    image=$(image_name "$name")
    for node in "${all[@]}"; do
      node_has "$node" "$image" "$(image_id "$image")" || { stale+=("$image"); break; }
    done
  done
  if ((${#stale[@]})); then
    quietly kind load docker-image "${stale[@]}" --name "$cluster"
    say "images: loaded ${stale[*]}"
  else
    say "images: the nodes have them"
  fi
}

case ${1:-both} in
  build | load) "$1" ;;
  both) build; load ;;
  previous)
    images=(operator sidecar) source=${2:?images.sh previous CHECKOUT} version=previous
    build; load ;;
  *) fail "images.sh knows build, load and previous, not '$1'" ;;
esac
