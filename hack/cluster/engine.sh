#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a Docker engine answer. Does nothing where one already does (a laptop, a hosted runner).
#
# On Debian as root it installs docker.io and starts dockerd. Where the machine's capability bounding set
# lacks CAP_SYS_RESOURCE, `docker run --privileged` (which kind needs) fails with "unable to apply caps";
# there runc is started through a wrapper that asks only for the capabilities there are.
set -euo pipefail
. "$(dirname "$0")/env.sh"

state=/run/elasticjob-docker # of an engine that was started from here

# Without systemd, Linux gives processor time to sessions, and all containers together get as much as one of them. The
# tests beside the cluster have dozens of sessions: its nodes, API server and all, need the time of several.
weigh_containers() {
  local shares=/sys/fs/cgroup/cpu/docker/cpu.shares weight=/sys/fs/cgroup/docker/cpu.weight
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo +cpu > /sys/fs/cgroup/cgroup.subtree_control && mkdir -p "${weight%/*}" && echo 800 > "$weight"
  elif [ -e /sys/fs/cgroup/cpu/cpu.shares ]; then
    mkdir -p "${shares%/*}" && echo 8192 > "$shares"
  fi 2>/dev/null || true # where control groups are another's
}

if docker info >/dev/null 2>&1; then
  [ ! -e "$state" ] || weigh_containers
  exit 0
fi
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
  fail "no Docker engine answers ('docker info' fails). Start Docker, then run this again.
       (Only on Debian, as root, it is installed and started from here.)"

missing() {
  local program
  for program in dockerd containerd runc iptables ip jq; do command -v $program >/dev/null || return 0; done
  return 1
}
if missing; then
  say "engine: installing docker.io"
  quietly apt-get update -qq
  DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends \
    docker.io containerd runc iptables iproute2 jq
fi

mkdir -p "$state"
cat > "$state/runc-bounded" <<'WRAPPER'
#!/bin/sh
# runc, asking only for what this machine's own capability bounding set allows
bundle=$(pwd); process=; previous=
for arg in "$@"; do
  case "$previous" in --bundle|-b) bundle=$arg ;; --process|-p) process=$arg ;; esac
  previous=$arg
done
bound() { # FILE PATH-OF-THE-PROCESS
  jq "$2"' |= (if .capabilities then .capabilities |= map_values(map(select(. != "CAP_SYS_RESOURCE"))) else . end
               | if (.oomScoreAdj // 0) < 0 then del(.oomScoreAdj) else . end)' "$1" > "$1.tmp"
  cat "$1.tmp" > "$1"; rm "$1.tmp"
}
case " $* " in
  *" create "*|*" run "*) bound "$bundle/config.json" .process ;;
  *" exec "*) [ -z "$process" ] || bound "$process" . ;;
esac
exec runc "$@"
WRAPPER
chmod +x "$state/runc-bounded"

cap_sys_resource=24
bounding=$((16#$(awk '/^CapBnd/ {print $2}' /proc/self/status)))
if ((bounding >> cap_sys_resource & 1)); then
  echo '{"storage-driver": "overlay2"}'
else
  echo '{"storage-driver": "overlay2", "default-runtime": "bounded",
         "runtimes": {"bounded": {"path": "'$state'/runc-bounded"}}}'
fi > "$state/daemon.json"

weigh_containers
say "engine: starting dockerd"
# a killed engine leaves its pid files, and a later process may have got the number
rm -f "$state/dockerd.pid" /run/docker/containerd/containerd.pid
setsid dockerd --config-file "$state/daemon.json" --pidfile "$state/dockerd.pid" \
  > "$state/dockerd.log" 2>&1 < /dev/null &
for _ in $(seq 120); do
  docker info >/dev/null 2>&1 && { say "engine: answers"; exit 0; }
  sleep 0.5
done
tail -5 "$state/dockerd.log" >&2
fail "dockerd did not answer within 60 s; its log is $state/dockerd.log"
