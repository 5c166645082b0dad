#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python environments that containers mount at /opt/torch, one for each torch; and, at /opt/dev, what the
# contract tests need beside it. At /opt/torch/examples, a directory for PYTHONPATH: what the examples need beside
# the newest torch.
#   torch.sh [LOCK...]     of locks/; all of them when none is named
#
# PyPI's torch wheel for Linux comes with CUDA: 5 GB unpacked. As a layer of a pod image it would be stored
# once more for every node and take minutes to load, so all pods share one copy from the host.
# It is built inside the pods' own base image, so that the interpreter is the same.
set -euo pipefail
. "$(dirname "$0")/env.sh"

# one at a time; up.sh has the lock already
if command -v flock >/dev/null && [ -z "${ELASTICJOB_UP:-}" ]; then
  ELASTICJOB_UP=1 exec flock --close "$cache/up.lock" "$0" "$@"
fi

all=("${torch_locks[@]}" dev)
kind() { case $1 in dev) echo dev ;; *) echo torch ;; esac; }
dir() { locked_dir "$(kind "$1")" "$1"; }

build() { # DIRECTORY MOUNTED-AT COMMAND, which reads a lock
  "$here/node-image.sh" base < /dev/null
  build_image --target venv -t elasticjob/torch-builder:dev -f "$here/digits.Dockerfile" "$root"
  docker run --rm --init --interactive --network host --user "$(id -u):$(id -g)" --env HOME=/tmp \
    --volume "$1:$2" elasticjob/torch-builder:dev sh -c "$3"
}

# The command that installs a lock. uv's cache is in the same directory, so that what it unpacks is moved, not copied.
uv_install() { # DIRECTORY OPTION...
  echo "UV_CACHE_DIR=$1/.uv /opt/uv/bin/uv pip install --quiet --native-tls --python $* --require-hashes" \
    "--compile-bytecode --requirements /dev/stdin && rm -rf $1/.uv"
}

remove_old() {
  local keep=() one
  for one in "${all[@]}"; do keep+=(! -path "$(dir "$one")"); done
  find "$cache" -maxdepth 1 \( -name 'torch-*' -o -name 'dev-*' \) "${keep[@]}" -exec rm -rf {} +
}

install() { # LOCK
  local made to; made=$(dir "$1") to=/opt/$(kind "$1")
  [ ! -e "$made/.complete" ] || return 0
  case $1 in
    dev) say "torch: installing locks/dev.txt (300 MB) for the contract tests into $made" ;;
    *) say "torch: installing $(torch_version "$1") (about 2 minutes, 5 GB) into $made" ;;
  esac
  remove_old
  mkdir -p "$made"
  build "$made" "$to" "python3 -m venv --clear $to && $(uv_install "$to")" < "$root/locks/$1.txt"
  chmod -R a+rX "$made"
  touch "$made/.complete"
  say "torch: installed"
}

# Inside of torch's directory, which the nodes of a running cluster mount already.
install_examples() {
  install "$newest_torch"
  local torch name; torch=$(dir "$newest_torch") name=$(basename "$(locked_dir examples examples)")
  if [ ! -e "$torch/$name/.complete" ]; then
    say "torch: installing locks/examples.txt (about 25 s, 230 MB) into $torch/$name"
    rm -rf "${torch:?}/$name"
    build "$torch" /opt/torch "$(uv_install /opt/torch --no-deps --target "/opt/torch/$name")" \
      < "$root/locks/examples.txt"
    chmod -R a+rX "$torch/$name"
    touch "$torch/$name/.complete"
    say "torch: installed"
  fi
  ln -sfn "$name" "$torch/examples"
  find "$torch" -maxdepth 1 -name 'examples-*' ! -name "$name" -exec rm -rf {} +
}

(($#)) || set -- "${all[@]}" examples
for lock in "$@"; do
  case $lock in examples) install_examples ;; *) install "$lock" ;; esac
done
