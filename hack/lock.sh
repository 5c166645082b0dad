#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the locks anew: versions and hashes of everything that CI and the images install, and no index
# addresses. Existing versions are kept unless --upgrade is given.
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

uv=$("$root/hack/venv.sh" uv)/bin/uv

cd "$root"
export UV_CUSTOM_COMPILE_COMMAND="make lock"
compile() { # OUTPUT PYTHON SOURCE [OPTION...]
  local output=$1 python=$2 source=$3; shift 3
  say "lock: $output"
  quietly "$uv" pip compile --universal --generate-hashes --no-emit-index-url --python-version "$python" \
    ${upgrade:+--upgrade} "$source" "$@" --output-file "$output"
}
upgrade=; [ "${1:-}" != --upgrade ] || upgrade=yes

debian_python=3.13 # that of debian:trixie-slim
compile locks/operator.txt $debian_python pyproject.toml --extra operator
compile locks/sidecar.txt $debian_python pyproject.toml --extra sidecar
for name in digits torch-2.6 torch-2.10; do compile "locks/$name.txt" $debian_python "locks/$name.in"; done
there=() # already beside them
for name in $(sed -n 's/^\([^ =#]*\)==.*/\1/p' locks/digits.txt); do there+=(--no-emit-package "$name"); done
compile locks/examples.txt $debian_python locks/examples.in "${there[@]}"
compile locks/uv.txt 3.11 locks/uv.in
compile locks/release.txt 3.11 locks/release.in
compile locks/cli.txt 3.11 locks/cli.in
compile locks/docs.txt 3.11 locks/docs.in
compile locks/dev.txt 3.11 pyproject.toml --extra operator --extra sidecar --extra dev
