#!/usr/bin/env bash
# All that CI runs. Parts that mostly wait run beside parts that compute; each prints its output whole when it has
# ended, and the first that fails ends the others. The last part has the machine to itself, and prints as it goes.
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

at_once=2 # for two cores
export ELASTICJOB_FLAKY=$root/build/flaky.json # tests/support/second_run.py
mkdir -p "$root/build"
echo '[]' > "$ELASTICJOB_FLAKY"
logs=$(mktemp -d) running=() times=()
set -m # each part is a process group of its own

stop() {
  local name
  for name in ${running[@]+"${running[@]}"}; do
    kill -TERM -- "-$(cat "$logs/$name.pid")" || true
  done 2>/dev/null
  wait 2>/dev/null
  rm -rf "$logs"
}
trap stop EXIT
trap 'exit 130' INT TERM

compute() { # COMMAND...: a test that timed out runs again, alone, after its end
  if command -v flock >/dev/null; then flock --shared "$ELASTICJOB_FLAKY" "$@"; else "$@"; fi
}

start() { # PART
  local command=(make "$1")
  case $1 in
    lint | simulate-quick | explore-quick) command=(compute make "$1") ;; # the others are tests, and see to it themselves
  esac
  say "test: $1 began"
  (
    code=0
    "${command[@]}" > "$logs/$1.log" 2>&1 < /dev/null || code=$?
    echo "$code" > "$logs/$1.new" && mv "$logs/$1.new" "$logs/$1.code"
  ) &
  echo $! > "$logs/$1.pid"
  date +%s > "$logs/$1.began"
  running+=("$1")
}

flaky() { # the closing lines, of all parts
  PYTHONPATH=$root/tests "$(< "$logs/venv")/bin/python" -m support.second_run "$ELASTICJOB_FLAKY"
}

ended() { # PART CODE SECONDS
  times+=("$(printf '%5d s  %s' "$3" "$1")")
  [ "$2" -eq 0 ] && { say "test: $1 passed in $3 s"; return; }
  printf '%s\n' "${times[@]}"
  flaky
  say "test: $1 FAILED in $3 s (exit code $2)"
  exit 1
}

beside() { # PART..., as many at once as are worth it
  local name left
  while (($# + ${#running[@]})); do
    while (($# && ${#running[@]} < at_once)); do
      start "$1"
      shift
    done
    left=()
    for name in "${running[@]}"; do
      if [ -e "$logs/$name.code" ]; then
        printf '\n===== %s\n' "$name"
        cat "$logs/$name.log"
        ended "$name" "$(cat "$logs/$name.code")" "$(($(date +%s) - $(cat "$logs/$name.began")))"
      else
        left+=("$name")
      fi
    done
    running=(${left[@]+"${left[@]}"})
    sleep 0.5
  done
}

alone() { # PART
  local began code=0
  began=$(date +%s)
  printf '\n===== %s\n' "$1"
  make "$1" || code=$?
  ended "$1" "$code" "$(($(date +%s) - began))"
}

# what several parts would make at once
"$root/hack/venv.sh" > "$logs/venv"
"$here/up.sh" tests
"$here/tools.sh" kubectl helm apiserver

beside contract unit explore-quick api lint simulate-quick
alone plane
alone e2e
printf '%s\n' "" "${times[@]}"
flaky
say "test: all passed"
