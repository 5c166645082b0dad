#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the command line tool's archives for krew, one for each platform, and the manifest that names them.
#   krew.sh DIRECTORY WHEELS [OWNER]     WHEELS: what wheels.sh has made; OWNER: whose repository has the release
# An archive has all packages for each Python that it may meet; Python itself it has not.
set -euo pipefail
. "$(dirname "$0")/../cluster/env.sh"

to=${1:?krew.sh DIRECTORY WHEELS [OWNER]} wheels=${2:?krew.sh DIRECTORY WHEELS [OWNER]} owner=${3:-OWNER}
mkdir -p "$to"
to=$(cd "$to" && pwd) wheels=$(cd "$wheels" && pwd)
rm -f "$to"/*
python=$("$root/hack/venv.sh")/bin/python
ours=("$wheels/elasticjob-$version-py3-none-any.whl" "$wheels/elasticjob_cli-$version-py3-none-any.whl")
for wheel in "${ours[@]}"; do [ -e "$wheel" ] || fail "there is no $wheel; run hack/release/wheels.sh $wheels"; done

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
unset PYTHONPATH
date=$(git -C "$root" log -1 --format=%ct)

install() { # FOLDER PYTHON PLATFORM... -- ARGUMENT...
  local folder=$1 with=$2 platforms=(); shift 2
  while [ "$1" != -- ]; do platforms+=(--platform "$1"); shift; done
  shift
  quietly "$python" -m pip install --disable-pip-version-check --no-compile --target "$folder" --only-binary=:all: \
    --implementation cp --python-version "$with" "${platforms[@]}" "$@"
}

archive() { # OS ARCHITECTURE PLATFORM...
  local name=kubectl-elasticjob_v${version}_$1_$2 with; shift 2
  mkdir -p "$copy/$name"
  cp "$root/hack/release/kubectl-elasticjob" "$root/LICENSE" "$copy/$name/"
  for with in 3.11 3.12 3.13 3.14; do
    install "$copy/$name/lib/$with" "$with" "$@" -- --require-hashes --requirement "$root/locks/cli.txt"
    install "$copy/$name/lib/$with" "$with" "$@" -- --no-deps --upgrade "${ours[@]}"
    rm -rf "$copy/$name/lib/$with/bin"
    cp "$root/cli/elasticjob_cli/__main__.py" "$copy/$name/lib/$with/__main__.py"
  done
  # the same commit makes the same archive
  tar --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w -C "$copy/$name" -c . |
    gzip -n > "$to/$name.tar.gz"
}

archive linux amd64 manylinux2014_x86_64 manylinux_2_17_x86_64
archive linux arm64 manylinux2014_aarch64 manylinux_2_17_aarch64
archive darwin amd64 macosx_11_0_x86_64
archive darwin arm64 macosx_11_0_arm64

# as krew would unpack it
if [ "$(uname -s)_$(uname -m)" = Linux_x86_64 ]; then
  mkdir "$copy/tried"
  tar -xzf "$to/kubectl-elasticjob_v${version}_linux_amd64.tar.gz" -C "$copy/tried"
  said=$(PATH=$(dirname "$python"):$PATH "$copy/tried/kubectl-elasticjob" --version) || fail "the archive's program fails"
  [ "$said" = "$version" ] || fail "the archive's program says that it is $said, not $version"
fi
"$python" "$root/hack/release/krew.py" "$version" "$to" --owner "$owner" > "$to/krew-elasticjob.yaml"
say "krew: $(cd "$to" && du -ch ./*.tar.gz | tail -1 | cut -f1) in $(cd "$to" && echo *.tar.gz)"
