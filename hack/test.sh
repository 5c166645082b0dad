#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that CI runs. Parts that wait for other programs run one after the other, those joined by `+` together, and print
# as they go. Beside them, in what they leave of the processors, runs what only computes; its output is shown whole. The
# first that fails ends all.
set -euo pipefail
. "$(dirname "$0")/cluster/env.sh"

waits=(unit contract api plane+e2e)
computes=(lint explore-quick simulate-quick)
TORCH="$(torch_version "$oldest_torch") $(torch_version "$newest_torch")" # `make contract` has one between them, too
export TORCH ONCE=1
export ELASTICJOB_FLAKY=$root/build/flaky.json # tests/support/second_run.py
mkdir -p "$root/build"
echo '[]' > "$ELASTICJOB_FLAKY"
logs=$(mktemp -d) computing='' computed=() times=()
gives_way=19 # the niceness of what computes
set -m # each part is a process group of its own

stop() {
  for group in "$logs"/*.group; do
    [ -e "${group%.group}.code" ] || kill -TERM -- "-$(cat "$group")" || true
  done 2>/dev/null
  wait 2>/dev/null
  rm -rf "$logs"
}
trap stop EXIT
trap 'exit 130' INT TERM

begin() { # PART COMMAND...
  local part=$1; shift
  date +%s > "$logs/$part.began"
  (
    code=0
    "$@" < /dev/null || code=$?
    echo "$code $(date +%s)" > "$logs/$part.new" && mv "$logs/$part.new" "$logs/$part.code"
  ) &
  echo $! > "$logs/$part.group"
  say "test: $part began"
}

has_ended() { # PART...: all of them, or one that failed
  local part code all=true
  for part; do
    [ -e "$logs/$part.code" ] || { all=false; continue; }
    read -r code _ < "$logs/$part.code"
    [ "$code" -eq 0 ] || return 0
  done
  $all
}

ended() { # PART, nothing if it goes on
  local code end seconds
  [ -e "$logs/$1.code" ] || return 0
  read -r code end < "$logs/$1.code"
  seconds=$((end - $(cat "$logs/$1.began")))
  times+=("$(printf '%5d s  %s' "$seconds" "$1")")
  [ "$code" -eq 0 ] && { say "test: $1 passed in $seconds s"; return; }
  close
  say "test: $1 FAILED in $seconds s (exit code $code)"
  exit 1
}

close() { # the closing lines, of all parts
  printf '%s\n' "" "${times[@]}"
  PYTHONPATH=$root/tests "$(< "$logs/venv")/bin/python" -m support.second_run "$ELASTICJOB_FLAKY"
}

# A session of its own is what Linux gives processor time to; without sessions a process is. A test that timed out runs
# again, alone, after the end of what computes.
compute() { # PART
  local alone=() session=()
  if command -v flock >/dev/null; then alone=(flock --shared "$ELASTICJOB_FLAKY"); fi
  if command -v setsid >/dev/null; then session=(setsid); fi
  # shellcheck disable=SC2016
  ${session[@]+"${session[@]}"} bash -c 'echo $$ > "$0"; { echo "$1" > /proc/self/autogroup; } 2>/dev/null; exec nice -n "$@"' \
    "$logs/$1-session.group" "$gives_way" ${alone[@]+"${alone[@]}"} make "$1" > "$logs/$1.log" 2>&1
}

# No part waits for other programs any more: what computes has its share of a busy machine. Where sessions do not count,
# that takes the right to raise a priority.
catch_up() {
  local session
  gives_way=0
  session=$(cat "$logs/$computing-session.group" 2>/dev/null) || return 0
  { echo 0 > "/proc/$session/autogroup"; renice -n 0 -g "$session"; } >/dev/null 2>&1 || true
}

# Begins the next part that computes when the one before has ended.
compute_on() {
  if [ -n "$computing" ]; then
    has_ended "$computing" || return 0
    computed+=("$computing")
    rm -f "$logs/$computing-session.group"
    [ "$(cut -d ' ' -f 1 "$logs/$computing.code")" -eq 0 ] || show_computed
    computing=''
  fi
  ((${#computes[@]})) || return 0
  computing=${computes[0]}
  computes=("${computes[@]:1}")
  begin "$computing" compute "$computing"
}

show_computed() {
  local part
  for part in ${computed[@]+"${computed[@]}"}; do
    printf '\n===== %s\n' "$part"
    cat "$logs/$part.log"
    ended "$part"
  done
  computed=()
}

# what several parts would make at once
"$root/hack/venv.sh" > "$logs/venv"
"$here/up.sh" tests
"$here/tools.sh" kubectl helm apiserver

for together in "${waits[@]}"; do
  IFS=+ read -ra parts <<< "$together"
  for part in "${parts[@]}"; do
    begin "$part" make "$part"
  done
  until has_ended "${parts[@]}"; do
    compute_on
    sleep 0.5
  done
  for part in "${parts[@]}"; do
    ended "$part"
  done
  show_computed
done
while [ -n "$computing" ] || ((${#computes[@]})); do
  compute_on
  catch_up
  sleep 0.5
done
show_computed
close
say "test: all passed"
