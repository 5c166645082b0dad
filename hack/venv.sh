#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the development environment from locks/dev.txt and prints its path. It holds no project code: the
# checkout's folders are on PYTHONPATH, so one environment serves every clone with the same lock.
#   venv.sh [LOCK]     another lock makes another environment: release has what builds a release
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

python=${PYTHON:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "'$python' does not run; set PYTHON"
((${version#3.} >= 11)) || fail "Python 3.11 or newer is needed ('$python' is $version); set PYTHON to one"
lock=${1:-dev}
venv=$(locked_dir "venv-$version" "$lock")

if [ ! -e "$venv/.complete" ]; then
  say "venv: installing locks/$lock.txt" >&2
  quietly "$python" -m venv --clear "$venv"
  quietly "$venv/bin/pip" install --require-hashes --requirement "$root/locks/$lock.txt"
  touch "$venv/.complete"
fi
echo "$venv"
