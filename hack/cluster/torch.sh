#!/usr/bin/env bash
# The Python environments that containers mount at /opt/torch, one for each torch; and, at /opt/dev, what the
# contract tests need beside it.
#   torch.sh [LOCK...]     of locks/; all of them when none is named
#
# PyPI's torch wheel for Linux comes with CUDA: 5 GB unpacked. As a layer of a pod image it would be stored
# once more for every node and take minutes to load, so all pods share one copy from the host.
# It is built inside the pods' own base image, so that the interpreter is the same.
. "$(dirname "$0")/env.sh"

# one at a time; up.sh has the lock already
if command -v flock >/dev/null && [ -z "${ELASTICJOB_UP:-}" ]; then
  ELASTICJOB_UP=1 exec flock --close "$cache/up.lock" "$0" "$@"
fi

all=("${torch_locks[@]}" dev)
kind() { case $1 in dev) echo dev ;; *) echo torch ;; esac; }
dir() { locked_dir "$(kind "$1")" "$1"; }

remove_old() {
  local keep=() one
  for one in "${all[@]}"; do keep+=(! -path "$(dir "$one")"); done
  find "$cache" -maxdepth 1 \( -name 'torch-*' -o -name 'dev-*' \) "${keep[@]}" -exec rm -rf {} +
}

install() { # LOCK
  local made; made=$(dir "$1")
  [ ! -e "$made/.complete" ] || return 0
  "$here/node-image.sh" base
  case $1 in
    dev) say "torch: installing locks/dev.txt (300 MB) for the contract tests into $made" ;;
    *) say "torch: installing $(torch_version "$1") (about 2 minutes, 5 GB) into $made" ;;
  esac
  build_image --target venv -t elasticjob/torch-builder:dev -f "$here/digits.Dockerfile" "$here"
  remove_old
  mkdir -p "$made"
  docker run --rm --interactive --network host --user "$(id -u):$(id -g)" --env HOME=/tmp \
    --env to="/opt/$(kind "$1")" --volume "$made:/opt/$(kind "$1")" elasticjob/torch-builder:dev sh -c '
      python3 -m venv --clear "$to" &&
      "$to/bin/pip" install --quiet --no-cache-dir --require-hashes -r /dev/stdin' < "$root/locks/$1.txt"
  chmod -R a+rX "$made"
  touch "$made/.complete"
  say "torch: installed"
}

(($#)) || set -- "${all[@]}"
for lock in "$@"; do install "$lock"; done
