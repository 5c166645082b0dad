#!/usr/bin/env bash
# Builds the project's images and loads those that changed into the nodes.
#   images.sh [operator] [sidecar] [digits]     all three when none is named
set -euo pipefail
. "$(dirname "$0")/env.sh"

(($#)) || set -- operator sidecar digits

# containerd keeps an image under its name and under its id; the name is up to date when both are one image
node_has() { # NODE NAME ID
  docker exec "$1" ctr --namespace k8s.io images list 2>/dev/null | awk -v name="docker.io/$2" -v id="$3" '
    $1 == name { named = $3 }
    $1 == id || $3 == id { known[$3] = 1 }
    END { exit !(named in known) }'
}

all=($(nodes))  # bash 3 has no mapfile
((${#all[@]})) || fail "there is no cluster $cluster; run 'make cluster'"

stale=()
for name in "$@"; do
  image=$(image_name "$name")
  before=$(image_id "$image" 2>/dev/null || true)
  case $name in
    operator | sidecar) build_image --target "$name" --tag "$image" "$root" ;;
    digits) build_image --target digits --tag "$image" --file "$here/digits.Dockerfile" "$root" ;;
    *) fail "no image is called '$name'; there are operator, sidecar and digits" ;;
  esac
  say "images: built $image"
  id=$(image_id "$image")
  [ "$before" = "$id" ] || [ -z "$before" ] || quietly docker rmi "$before" || true
  for node in "${all[@]}"; do
    node_has "$node" "$image" "$id" || { stale+=("$image"); break; }
  done
done

if ((${#stale[@]})); then
  quietly kind load docker-image "${stale[@]}" --name "$cluster"
  say "images: loaded ${stale[*]}"
else
  say "images: the nodes have them"
fi
