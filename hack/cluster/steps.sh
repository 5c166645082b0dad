# SPDX-License-Identifier: Apache-2.0
# Does the steps of a set-up at once, as far as each has what it needs, and says how far they are.
#
#   step NAME SECONDS "NEEDS..." "TITLE" COMMAND...    SECONDS: what it usually takes on two cores
#   run_steps [SECONDS]                                ... and what comes after the steps
#
# A step begins when those that it needs have ended; a name that is no step needs no waiting. What a step prints is
# kept, and shown whole when it fails: then, as on Ctrl-C, all others are stopped. What it prints to file 3 is seen.
# shellcheck shell=bash

# a step's number is its place in these; bash 3 has no other maps
names=() usual=() needs=() titles=() commands=() states=() began=() took=() pids=()
steps=0 ended=0 afterwards=0 logs=
minute=60

step() {
  local before wanted=
  for ((before = 0; before < steps; before++)); do
    case " $3 " in *" ${names[before]} "*) wanted+="$before " ;; esac
  done
  names[steps]=$1 usual[steps]=$2 needs[steps]=$wanted titles[steps]=$4
  shift 4
  commands[steps]=$(printf '%q ' "$@") states[steps]=waiting
  ((++steps))
}

in_words() { # SECONDS
  if (($1 >= 100)); then echo "$((($1 + 30) / 60)) minutes"; else echo "$1 s"; fi
}

# What steps take on this machine, in percent of their usual time: those that have ended, and those that should have.
# At least half: a step that found its work done says nothing of the machine.
pace() {
  local number took_all=0 usual_all=0 so_far percent=100
  for ((number = 0; number < steps; number++)); do
    case ${states[number]} in
      waiting) continue ;;
      running) so_far=$((SECONDS - began[number])); ((so_far > usual[number])) || continue ;;
      ended) so_far=${took[number]} ;;
    esac
    ((took_all += so_far, usual_all += usual[number])) || true
  done
  ((usual_all == 0)) || percent=$((100 * took_all / usual_all))
  echo $((percent > 50 ? percent : 50))
}

# Seconds until the last one ends at this machine's pace. One that takes longer than that has a tenth of it to go.
seconds_left() {
  local number one end latest=0 so_far ends=() pace; pace=$(pace)
  for ((number = 0; number < steps; number++)); do
    end=0
    for one in ${needs[number]}; do ((end >= ends[one])) || end=${ends[one]}; done
    case ${states[number]} in
      waiting) ((end += usual[number] * pace / 100)) || true ;;
      running)
        so_far=$((SECONDS - began[number]))
        end=$((usual[number] * pace / 100 - so_far))
        ((end >= so_far / 10)) || end=$((so_far / 10)) ;;
      ended) end=0 ;;
    esac
    ends[number]=$end
    ((latest >= end)) || latest=$end
  done
  echo $((latest + afterwards * pace / 100))
}

how_far() { echo "$ended of $steps steps, about $(in_words "$(seconds_left)") left"; }

may_begin() { # NUMBER
  local one
  for one in ${needs[$1]}; do [ "${states[one]}" = ended ] || return 1; done
}

begin() { # NUMBER
  say "${titles[$1]}: begins; usually $(in_words "${usual[$1]}")"
  states[$1]=running began[$1]=$SECONDS
  set -m # a process group of its own, so that all of it can be stopped
  (eval "${commands[$1]}") 3>&1 > "$logs/$1" 2>&1 < /dev/null &
  pids[$1]=$!
  set +m
}

end() { # NUMBER
  local code=0
  wait "${pids[$1]}" || code=$?
  states[$1]=ended took[$1]=$((SECONDS - began[$1]))
  if ((code)); then
    say "${titles[$1]}: failed after ${took[$1]} s with exit code $code. What it printed:"
    cat "$logs/$1" >&2
    fail "the set-up ended at '${titles[$1]}', whose output is above; what was made until then is kept"
  fi
  ((++ended))
  say "${titles[$1]}: done in ${took[$1]} s ($(how_far))"
}

say_what_runs() {
  local number what=
  for ((number = 0; number < steps; number++)); do
    [ "${states[number]}" = running ] || continue
    what+="${what:+; }${titles[number]} ($((SECONDS - began[number])) s, usually $(in_words "${usual[number]}"))"
  done
  say "... $what ($(how_far))"
}

stop_steps() {
  local number try left
  for try in $(seq 150); do # TERM for 15 seconds, then KILL
    left=0
    for ((number = 0; number < steps; number++)); do
      [ "${states[number]}" = running ] || continue
      if ((try == 1)); then kill -TERM -- "-${pids[number]}" 2>/dev/null || true; fi
      if ((try == 150)); then kill -KILL -- "-${pids[number]}" 2>/dev/null || true; fi
      ! kill -0 -- "-${pids[number]}" 2>/dev/null || left=1
    done
    ((left)) || break
    sleep 0.1
  done
  rm -rf "$logs"
}

run_steps() {
  local number told=$SECONDS
  afterwards=${1:-0} logs=$(mktemp -d)
  trap stop_steps EXIT
  trap 'say "stopped; what was made until then is kept" >&2; exit 130' INT TERM
  while ((ended < steps)); do
    for ((number = 0; number < steps; number++)); do
      case ${states[number]} in
        waiting) ! may_begin "$number" || begin "$number" ;;
        running) kill -0 "${pids[number]}" 2>/dev/null || { end "$number"; told=$SECONDS; } ;;
      esac
    done
    ((SECONDS < told + minute)) || { say_what_runs; told=$SECONDS; }
    sleep 0.2
  done
  trap - EXIT INT TERM
  rm -rf "$logs"
}
