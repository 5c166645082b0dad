# SPDX-License-Identifier: Apache-2.0
"""The checks that a mutant is tried with, by the names that mutations give as `by`, and the command of each."""

PYTEST = ("-m", "pytest", "--exitfirst", "-q", "--no-header", "-p", "no:cacheprovider")
EXPLORE = ("-m", "model.explore", "--quick", "--alone")
SIMULATE = ("-m", "simulation", "--seeds", "300", "--seconds", "200", "--processes", "1")

# Test files that a check can consist of, under tests/unit.
FILES = {
    "core causes": "core/rendezvous/test_causes.py",
    "core errors": "core/kube/test_errors.py",
    "core failed pods": "core/rendezvous/test_failed_pods.py",
    "core hangs": "core/rendezvous/test_hangs.py",
    "core moves": "core/rendezvous/test_moves.py",
    "core policy": "core/rendezvous/test_policy.py",
    "core rank order": "core/rendezvous/test_rank_order.py",
    "core retry": "core/kube/test_retry.py",
    "core sizes": "core/rendezvous/test_sizes.py",
    "core transcripts": "core/rendezvous/test_transcripts.py",
    "core watch": "core/kube/test_watch.py",
    "operator admitted": "operator/objects/test_admitted.py",
    "operator bad nodes": "operator/job/test_bad_nodes.py",
    "operator cache": "operator/cluster/test_cache.py",
    "operator deadline": "operator/job/test_deadline.py",
    "operator drain": "operator/job/test_drain.py",
    "operator failure policy": "operator/job/test_failure_policy.py",
    "operator gang": "operator/actions/test_gang.py",
    "operator access": "operator/actions/test_access.py",
    "operator leader": "operator/cluster/test_leader.py",
    "operator evictions": "operator/job/test_evictions.py",
    "operator network": "operator/job/test_network.py",
    "operator measurements": "operator/job/test_measurements.py",
    "operator debounce": "operator/job/test_debounce.py",
    "operator quota": "operator/job/test_quota.py",
    "operator reconciler": "operator/test_reconciler.py",
    "operator records": "operator/job/test_records.py",
    "operator refusals": "operator/job/test_refusals.py",
    "operator rivals": "operator/job/test_rivals.py",
    "operator spares": "operator/job/test_spares.py",
    "operator stalls": "operator/job/test_stalls.py",
    "operator status": "operator/job/test_status.py",
    "operator status writer": "operator/actions/test_status_writer.py",
    "operator template": "operator/objects/test_template.py",
    "operator topology": "operator/job/test_topology.py",
    "operator watch times": "operator/cluster/test_watch_times.py",
    "sidecar driver": "sidecar/test_driver.py",
    "sidecar suspicions over the wire": "sidecar/test_suspicions_over_the_wire.py",
    "sidecar job watch": "sidecar/api_server/test_job_watch.py",
    "sidecar links": "sidecar/links/test_links.py",
    "sidecar membership": "sidecar/membership/test_membership.py",
    "sidecar scripts": "sidecar/membership/test_scripts.py",
    "sidecar over the wire": "sidecar/test_over_the_wire.py",
    "sidecar link monitor": "sidecar/membership/test_link_monitor.py",
    "sidecar stalls": "sidecar/membership/test_stalls.py",
    "sidecar tls": "sidecar/store/test_tls.py",
    "sidecar words": "sidecar/api_server/test_words.py",
    "sidecar worker record": "sidecar/api_server/test_worker_record.py",
    "trainer attempts": "trainer/live/test_attempts.py",
    "trainer busy": "trainer/agent/test_busy.py",
    "trainer client": "trainer/sidecar/test_client.py",
    "trainer events": "trainer/sidecar/test_events.py",
    "trainer going on": "trainer/agent/test_going_on.py",
    "trainer membership": "trainer/agent/test_membership.py",
    "trainer stalls": "trainer/agent/test_stalls.py",
}


def _of(*files: str) -> tuple[str, ...]:
    return (*PYTEST, *(f"tests/unit/{FILES[name]}" for name in files))


# Those that every mutant is tried with until one catches it, after the one that it names itself.
CHECKS = {
    "unit": _of("core transcripts", "core moves", "sidecar membership", "sidecar link monitor"),
    "wire": _of(  # the sidecar's input and output, and the plug-in's
        "sidecar over the wire",
        "sidecar suspicions over the wire",
        "sidecar driver",
        "sidecar worker record",
        "sidecar words",
        "sidecar job watch",
        "trainer events",
        "trainer client",
        "trainer membership",
    ),
    "operator tests": (*PYTEST, *(f"tests/unit/operator/{folder}" for folder in ("actions", "cluster", "job"))),
    "operator": (*EXPLORE, "operator"),
    "composed": (*EXPLORE, "composed"),
    "simulation": SIMULATE,
}
NAMES = CHECKS.keys() | FILES.keys()


def command(check: str, module: str) -> tuple[str, ...]:
    """What to run for a mutant of the module. Lives of the simulation are of the kind that is mostly about it."""
    if check in FILES:
        return _of(check)
    if check != "simulation":
        return CHECKS[check]
    return (*CHECKS[check], "--kind", "operator" if module.startswith("elasticjob_operator") else "workers")
