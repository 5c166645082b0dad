# SPDX-License-Identifier: Apache-2.0
"""Templates that are refused, and the pods that come of good ones."""

import ast
import json
import os
import select
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api import ElasticJobSpec
from elasticjob.objects import Object
from elasticjob.pods import AVOIDED_NODES, pod_key_of, pod_name
from elasticjob.reading import Pod
from elasticjob_operator.objects import workloads
from elasticjob_operator.objects.access import render_access
from elasticjob_operator.objects.pods import (
    PLUGIN_PATH,
    SIDECAR,
    SidecarImage,
    render_pod,
)
from elasticjob_operator.objects.template import odd_quantities, problem
from support.operator_objects import JOB_UID, job
from support.waiting import run

IMAGE = SidecarImage("registry.example/sidecar:1", "IfNotPresent")


def spec(trainer: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **rest: Any) -> ElasticJobSpec:
    container = {"name": "trainer", "image": "busybox", "command": ["torchrun", "train.py"], **(trainer or {})}
    return ElasticJobSpec.parse(job(template={"spec": {"containers": [container], **(pod or {})}}, **rest)["spec"])


def fails_on(*values: int, **rest: Any) -> Object:
    return {"action": "FailJob", "onExitCodes": {"operator": "In", "values": values, **rest}}


ON_THE_NODE = {"acknowledged": True, "storePort": 30400, "tunnelPort": 30601}


def test_a_plain_template_is_good() -> None:
    assert problem(spec()) is None
    assert problem(spec(pod={"hostNetwork": True}, hostNetwork=ON_THE_NODE)) is None


def test_a_policy_for_failures_may_name_any_container() -> None:
    rules = [fails_on(1), fails_on(2, containerName="trainer"), fails_on(3, containerName="data")]
    assert problem(spec(pod={"initContainers": [{"name": "data"}]}, podFailurePolicy={"rules": rules})) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trainer": {"name": "main"}}, "no container named 'trainer' (it has: main)"),
        ({"pod": {"restartPolicy": "Always"}}, "restartPolicy must be OnFailure"),
        ({"trainer": {"restartPolicy": "Always"}}, "restartPolicy of the trainer container must be OnFailure"),
        ({"pod": {"hostNetwork": True}}, "hostNetwork must be left out, or allowed by spec.hostNetwork.acknowledged"),
        ({"hostNetwork": ON_THE_NODE}, "spec.hostNetwork is for a template with hostNetwork: true"),
        (
            {
                "pod": {"hostNetwork": True},
                "trainer": {"ports": [{"containerPort": 30601}]},
                "hostNetwork": ON_THE_NODE,
            },
            "port 30601 of container trainer",
        ),
        ({"pod": {"nodeName": "node-a"}}, "spec.template.spec.nodeName must be left out"),
        ({"pod": {"initContainers": [{"name": SIDECAR}]}}, "choose another"),
        ({"trainer": {"ports": [{"containerPort": 80}, {"containerPort": 27601}]}}, "port 27601 of container trainer"),
        ({"pod": {"initContainers": [{"name": "log", "ports": [{"containerPort": 27400}]}]}}, "port 27400"),
        ({"pod": {"volumes": [{"name": "elasticjob-token"}]}}, "elasticjob-token"),
        ({"trainer": {"env": [{"name": "PET_RDZV_ID", "value": "x"}]}}, "PET_RDZV_ID is set by the operator"),
        ({"trainer": {"env": [{"name": "PET_STANDALONE", "value": "1"}]}}, "PET_STANDALONE is set by the operator"),
        ({"trainer": {"env": [{"name": "PYTHONPATH", "valueFrom": {}}]}}, "PYTHONPATH must be a plain value"),
        (
            {"podFailurePolicy": {"rules": [fails_on(42, containerName="loader")]}},
            "spec.podFailurePolicy.rules[0].onExitCodes.containerName: spec.template has no container named 'loader' "
            "(it has: trainer): name one of them, or leave it out",
        ),
        ({"trainer": {"command": ["torchrun", "--standalone", "x.py"]}}, "remove --standalone"),
        ({"trainer": {"command": ["sh", "-c", "torchrun --rdzv-backend=c10d x.py"]}}, "remove --rdzv-backend"),
    ],
)
def test_a_problem_says_what_to_change(given: dict[str, Any], words: str) -> None:
    found = problem(spec(**given))
    assert found is not None
    assert words in found


def test_a_field_that_holds_no_quantity_is_named() -> None:
    requests = {"cpu": "one", "memory": "1Gi", "nvidia.com/gpu": 1, "ephemeral-storage": "1e3", "hugepages-2Mi": None}
    volume = {"name": "scratch", "emptyDir": {"sizeLimit": "20GB"}}
    given = spec({"resources": {"requests": requests, "limits": {"cpu": 0.5}}}, {"volumes": [volume]})
    assert sorted(odd_quantities(given.template)) == [
        "spec.template.spec.containers[0].resources.requests.cpu is 'one'",
        "spec.template.spec.volumes[0].emptyDir.sizeLimit is '20GB'",
    ]


def test_all_problems_are_told_at_once() -> None:
    trainer = {"env": [{"name": "PET_NNODES", "value": "4"}], "command": ["torchrun", "--rdzv-id=1", "train.py"]}
    found = problem(spec(trainer, {"hostNetwork": True, "nodeName": "node-a"})) or ""
    for words in ("hostNetwork must be", "nodeName must be", "PET_NNODES is set by", "remove --rdzv-id from"):
        assert words in found


# what a chart renders of values that are not set, wherever the operator looks
NULLS = dict.fromkeys(
    (
        *("affinity", "annotations", "args", "automountServiceAccountToken", "creationTimestamp", "env", "envFrom"),
        *("hostNetwork", "initContainers", "key", "labels", "lifecycle", "matchFields", "nodeName", "ports"),
        *("nodeSelectorTerms", "podAntiAffinity", "resources", "restartPolicy", "securityContext"),
        *(
            "serviceAccount",
            "serviceAccountName",
            "terminationMessagePolicy",
            "tolerations",
            "valueFrom",
            "volumeMounts",
            "volumes",
        ),
    )
)


def with_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [with_nulls(one) for one in value]
    return NULLS | {name: with_nulls(field) for name, field in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("trainer", "pod"),
    [
        ({}, {}),
        ({"env": [{"name": "PYTHONPATH", "value": "/mine"}]}, {"affinity": {"nodeAffinity": {}}}),
        ({"ports": [{"containerPort": 80}]}, {"initContainers": [{"name": "fetch"}], "volumes": [{"name": "data"}]}),
        ({"command": None, "args": ["train.py"]}, {"tolerations": [{"operator": "Exists"}]}),
    ],
)
def test_null_is_as_good_as_left_out(trainer: Object, pod: Object) -> None:
    plain = spec(trainer, pod)
    nulls = plain.parse({**plain.dump(), "template": with_nulls(plain.template)})
    assert problem(nulls) is None
    made = (
        render_pod(job(), one, 2, 1, IMAGE, batch="9f3c01d2", exclude=["node-a"], spare=True) for one in (plain, nulls)
    )
    assert next(made) == next(made)


def test_null_in_a_list_is_what_the_api_server_makes_of_it() -> None:
    """An empty word, and a term that matches no node."""
    terms = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [None]}}}
    given = spec({"command": ["torchrun", None]}, {"affinity": terms})
    assert problem(given) is None
    assert render_pod(job(), given, 0, 0, IMAGE, batch="9f3c01d2", exclude=["node-a"])["spec"]["affinity"] == terms


def render(wanted: ElasticJobSpec, index: int = 2, number: int = 1) -> dict[str, Any]:
    return render_pod(job(), wanted, index, number, IMAGE, batch="9f3c01d2")


def test_a_pod_says_of_which_job_it_is_and_has_the_usual_labels() -> None:
    wanted = spec()
    labels = render_pod(job(), wanted, 0, 0, IMAGE, batch="9f3c01d2")["metadata"]["labels"]
    usual = {"name": "elasticjob-worker", "instance": "digits", "component": "worker", "managed-by": "elasticjob"}
    own = {"job": "digits", "job-uid": JOB_UID, "index": "0"}
    assert labels == {
        **{f"app.kubernetes.io/{key}": value for key, value in usual.items()},
        **{f"elasticjob.io/{key}": value for key, value in own.items()},
    }
    given = {"app.kubernetes.io/name": "digits", "elasticjob.io/job-uid": "another", "team": "ml"}
    wanted.template["metadata"] = {"labels": given}
    found = render_pod(job(), wanted, 0, 0, IMAGE, batch="9f3c01d2")["metadata"]["labels"]
    assert found == {**labels, "app.kubernetes.io/name": "digits", "team": "ml"}


def test_the_jobs_queue_is_its_pods_unless_the_template_names_another() -> None:
    queue, priority = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
    body = job()
    body["metadata"]["labels"] = {queue: "gpus", priority: "low", "team": "ml"}
    wanted = spec()
    labels = render_pod(body, wanted, 0, 0, IMAGE, batch="9f3c01d2")["metadata"]["labels"]
    assert (labels[queue], labels[priority], "team" in labels) == ("gpus", "low", False)
    wanted.template["metadata"] = {"labels": {queue: "cpus"}}
    labels = render_pod(body, wanted, 0, 0, IMAGE, batch="9f3c01d2")["metadata"]["labels"]
    assert labels[queue] == "cpus"


def test_of_a_gang_the_workload_alone_is_queued() -> None:
    body, wanted = job(), spec().model_copy(update={"quota_admission": "Gang"})
    sentence = "spec.quotaAdmission is Gang, and the job has no label kueue.x-k8s.io/queue-name: add it, or leave"
    assert sentence in (workloads.problem(body, wanted) or "")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    assert workloads.problem(body, wanted) is None
    assert workloads.problem(job(), spec()) is None
    labels = render_pod(body, wanted, 0, 0, IMAGE, batch="9f3c01d2")["metadata"]["labels"]
    assert "kueue.x-k8s.io/queue-name" not in labels
    wanted.template["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "cpus"}}
    assert "must be the job's label alone" in (workloads.problem(body, wanted) or "")


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def test_the_pod_is_named_after_its_place_and_owned_by_the_job() -> None:
    meta = render(spec())["metadata"]
    assert meta["name"] == "digits-2-1"
    assert meta["labels"]["elasticjob.io/index"] == "2"
    assert meta["ownerReferences"][0]["uid"] == JOB_UID


@pytest.mark.parametrize("number", [0, 999_999_999, 10**9, 10**15 - 1])
def test_a_place_is_read_from_the_longest_name_too(number: int) -> None:
    """A pod that somebody made and deleted may have raised the number."""
    job_name = "a" * 63
    name = pod_name(job_name, 4095, number)
    assert pod_key_of(job_name, name) == (4095, number)
    assert len(name) <= 253
    assert pod_key_of(job_name, pod_name(job_name, 0, 10**15)) is None


def test_the_sidecar_has_the_resources_that_the_operator_was_given() -> None:
    whole = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}}
    image = SidecarImage("registry.example/sidecar:1", "IfNotPresent", whole)
    (sidecar,) = render_pod(job(), spec(), 0, 0, image, batch="9f3c01d2")["spec"]["initContainers"]
    assert sidecar["resources"] == whole


def test_the_sidecar_has_the_user_ids_of_the_chart_and_before_those_of_the_job() -> None:
    assigned = SidecarImage("sidecar:1", "Always", security={"runAsNonRoot": True, "runAsGroup": 7})
    for ids, expected in (
        ({}, {"runAsGroup": 7}),
        ({"runAsUser": 5, "runAsGroup": 6}, {"runAsUser": 5, "runAsGroup": 6}),
    ):
        given = spec(sidecar={"securityContext": ids})
        sidecar = render_pod(job(), given, 0, 0, assigned, batch="9f3c01d2")["spec"]["initContainers"][-1]
        assert sidecar["securityContext"] == {"runAsNonRoot": True, **expected}


def test_the_trainer_keeps_its_image_and_gets_its_rendezvous_by_environment() -> None:
    trainer = render(spec(nprocPerNode=2, maxReplicas=8))["spec"]["containers"][0]
    assert trainer["image"] == "busybox"
    found = environment(trainer)
    assert found["PET_RDZV_BACKEND"] == "elasticjob"
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("1:8", "2")
    assert found["PET_STANDALONE"] == "0"  # wins over the same variable from envFrom


WHOSE = {"ELASTICJOB_NAME": "digits", "ELASTICJOB_NAMESPACE": "ml", "ELASTICJOB_INDEX": "2"}


def test_each_container_of_the_template_is_told_whose_it_is_and_its_own_variables_win() -> None:
    own = [{"name": "ELASTICJOB_INDEX", "value": "mine"}, {"name": "PREFIX", "value": "$(ELASTICJOB_NAME)"}]
    logs = {"name": "logs", "image": "logs:1"}
    init = [{"name": "data", "image": "data:1", "env": own}, {"name": "proxy", "restartPolicy": "Always"}]
    template = spec(pod={"initContainers": init})
    template.template["spec"]["containers"].append(logs)
    pod = render_pod(job(), template, 2, 0, IMAGE, batch="9f3c01d2")["spec"]
    trainer, beside, data, proxy, _ = (*pod["containers"], *pod["initContainers"])
    assert environment(trainer).items() >= WHOSE.items()
    assert environment(beside) == environment(proxy) == WHOSE
    assert environment(data) == {**WHOSE, "ELASTICJOB_INDEX": "mine", "PREFIX": "$(ELASTICJOB_NAME)"}
    assert data["env"][-1]["name"] == "PREFIX", "it may name the variables before it"


@pytest.mark.parametrize("seconds", [1, 86400])
@pytest.mark.parametrize(
    ("field", "variable"),
    [
        ("stopSeconds", "ELASTICJOB_STOP_SECONDS"),
        ("saveSeconds", "ELASTICJOB_SAVE_SECONDS"),
        ("rejoinSeconds", "ELASTICJOB_REJOIN_SECONDS"),
        ("storeReadySeconds", "ELASTICJOB_STORE_READY_SECONDS"),
    ],
)
def test_the_trainer_is_told_the_jobs_times_that_it_keeps(field: str, variable: str, seconds: int) -> None:
    trainer = render(spec(rendezvous={field: seconds}))["spec"]["containers"][0]
    assert environment(trainer)[variable] == str(seconds)


def test_the_trainer_is_told_whether_processes_are_kept_for_the_next_round() -> None:
    name = "ELASTICJOB_WARM_RESTART"

    def told(wanted: ElasticJobSpec) -> str | None:
        return environment(render(wanted)["spec"]["containers"][0]).get(name)

    assert told(spec()) == "Auto"
    assert told(spec(warmRestart="Enabled")) == "Enabled"
    assert told(spec(warmRestart="Disabled")) is None
    assert told(spec({"env": [{"name": name, "value": "0"}]})) == "0", "the template's own"


def test_what_another_pod_has_learned_is_told_where_processes_are_kept() -> None:
    def told(wanted: ElasticJobSpec, imports: str) -> str | None:
        pod = render_pod(job(), wanted, 2, 1, IMAGE, batch="9f3c01d2", imports=imports)
        return environment(pod["spec"]["containers"][0]).get("ELASTICJOB_WARM_IMPORTS")

    own = {"env": [{"name": "ELASTICJOB_WARM_IMPORTS", "value": "torch"}]}
    assert told(spec(), "torch,sklearn.datasets") == "torch,sklearn.datasets"
    assert told(spec(own), "torch,sklearn.datasets") == "torch", "the template's own"
    assert told(spec(), "") is None
    assert told(spec(warmRestart="Disabled"), "torch") is None


SHOW = ["python3", "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])"]


@pytest.mark.parametrize(
    ("of_the_image", "expected"),
    [
        (None, "/elasticjob/trainer"),
        ("", "/elasticjob/trainer"),
        ("/app:/my lib", "/elasticjob/trainer:/app:/my lib"),
    ],
)
def test_the_images_own_pythonpath_is_extended_when_the_container_starts(
    of_the_image: str | None, expected: str, tmp_path: Path
) -> None:
    (tmp_path / ".complete").touch()
    trainer = at(tmp_path, render(spec({"command": [*SHOW, "a b", "$HOME"], "args": ["*"]})))
    assert "PYTHONPATH" not in environment(trainer)
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    given |= {} if of_the_image is None else {"PYTHONPATH": of_the_image}
    words = [*trainer["command"], *trainer["args"]]
    said = run(words, env=given, check=True).stdout
    assert said == f"{expected} ['a b', '$HOME', '*']\n".replace("/elasticjob/trainer", str(tmp_path))


def at(plugin: Path, pod: Object) -> Object:
    """The trainer as it is where the plug-in's folder is `plugin`."""
    trainer: Object = json.loads(json.dumps(pod["spec"]["containers"][0]).replace("/elasticjob/trainer", str(plugin)))
    return trainer


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_command_waits_for_the_plugin_and_leaves_nothing_of_that(shell: str, tmp_path: Path) -> None:
    show = [sys.executable, "-c", "import os; print(sorted(os.environ), flush=True)"]
    words = at(tmp_path, render(spec({"command": show})))["command"]
    words[0] = shell
    given = {"PATH": os.environ["PATH"], "LC_CTYPE": "C.UTF-8"}
    with subprocess.Popen(words, env=given, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 0.2)  # ten looks of the shell's
        assert not ready
        (tmp_path / ".complete").touch()
        said = process.communicate(timeout=60)[0]
    assert set(ast.literal_eval(said)) - {"PWD", "SHLVL", "_"} == {"LC_CTYPE", "PATH", "PYTHONPATH"}
    assert process.returncode == 0


def test_a_command_that_waits_for_the_plugin_can_be_stopped(tmp_path: Path) -> None:
    """As a container's first process it would be deaf to SIGTERM."""
    words = at(tmp_path, render(spec()))["command"]
    words[2] = words[2].replace("until", "echo; until", 1)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # its trap is set
        process.terminate()
        assert process.wait(timeout=60) == 143


def test_a_command_waits_for_the_plugin_only_so_long(tmp_path: Path) -> None:
    words = at(tmp_path, render(spec()))["command"]
    assert "-le 3000" in words[2]
    words[2] = words[2].replace("-le 3000", "-le 3")
    done = run(words)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "the sidecar brings no torchrun plug-in" in done.stderr


@pytest.mark.parametrize(
    ("trainer", "held"),
    [({}, False), ({"command": None}, True), ({"env": [{"name": "PYTHONPATH", "value": "/app"}]}, True)],
)
def test_the_sidecar_holds_back_a_trainer_that_does_not_wait_itself(trainer: Object, held: bool) -> None:
    (sidecar,) = render(spec(trainer))["spec"]["initContainers"]
    assert ("lifecycle" in sidecar) is held
    if held:
        look = sidecar["lifecycle"]["postStart"]["exec"]["command"]
        assert look[:2] == ["timeout", "10"]
        assert f"{environment(sidecar)['ELASTICJOB_PLUGIN_DIR']}/.complete" in look[-1]


@pytest.mark.parametrize(("images", "expected"), [(None, ""), ("/mine", ":/mine")])
def test_kubectl_exec_has_the_plugin_by_the_line_of_the_documents(images: str | None, expected: str) -> None:
    page = (Path(__file__).parents[4] / "docs" / "scripts.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("    kubectl exec ")]
    shell, option, script = shlex.split(line.partition(" -- ")[2])
    given = {"PATH": os.environ["PATH"]} | ({} if images is None else {"PYTHONPATH": images})
    done = run([shell, option, script.replace("exec torchrun train.py", 'echo "$PYTHONPATH"')], env=given, check=True)
    assert done.stdout == f"{PLUGIN_PATH}{expected}\n"


def test_the_command_stays_the_containers_first_process(tmp_path: Path) -> None:
    (tmp_path / ".complete").touch()
    command = ["python3", "-c", "import os; print(os.getpid())"]
    trainer = at(tmp_path, render(spec({"command": command})))
    with subprocess.Popen(trainer["command"], stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=60)[0] == f"{process.pid}\n"


def test_without_a_command_the_images_entry_point_finds_the_plugin() -> None:
    trainer = render(spec({"command": None}))["spec"]["containers"][0]
    assert trainer.get("command") is None
    assert environment(trainer)["PYTHONPATH"] == "/elasticjob/trainer"


@pytest.mark.parametrize(
    ("own", "expected"), [("$(HOME_OF_APP)/lib", "/elasticjob/trainer:$(HOME_OF_APP)/lib"), ("", "/elasticjob/trainer")]
)
def test_with_a_pythonpath_of_the_template_the_command_stays(own: str, expected: str) -> None:
    """And the value is behind the variables that it names, without which the kubelet would not know them."""
    given = [{"name": "HOME_OF_APP", "value": "/app"}, {"name": "PYTHONPATH", "value": own}]
    trainer = render(spec({"env": given}))["spec"]["containers"][0]
    assert trainer["command"] == ["torchrun", "train.py"]
    assert trainer["env"][-2:] == [given[0], {"name": "PYTHONPATH", "value": expected}]


def test_the_sidecar_alone_gets_a_token() -> None:
    pod = render(spec())["spec"]
    mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"elasticjob-trainer"}
    assert pod["automountServiceAccountToken"] is False
    assert "elasticjob-token" in {mount["name"] for mount in pod["initContainers"][-1]["volumeMounts"]}


def test_the_sidecar_starts_last_of_the_init_containers_and_stays() -> None:
    pod = render(spec(pod={"initContainers": [{"name": "fetch"}]}))["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["fetch", SIDECAR]
    assert pod["initContainers"][-1]["restartPolicy"] == "Always"


def test_a_sidecar_has_five_minutes_to_start_and_holds_back_no_trainer_meanwhile() -> None:
    sidecar = render(spec())["spec"]["initContainers"][-1]
    probe = sidecar["livenessProbe"]
    assert probe["initialDelaySeconds"] + probe["periodSeconds"] * probe["failureThreshold"] >= 300
    assert "startupProbe" not in sidecar


def test_readiness_is_asked_for_when_the_sidecar_can_answer_and_seen_within_a_second_of_it() -> None:
    """A probe that fails is a warning of the pod, and none is due in the first second. What stands still for less than
    a quarter of a minute stays ready."""
    probe = render(spec())["spec"]["initContainers"][-1]["readinessProbe"]
    assert 1 < probe["initialDelaySeconds"] <= 3
    assert probe["periodSeconds"] == 1
    assert probe["periodSeconds"] * probe["failureThreshold"] == 15


def test_whichever_container_fails_the_end_of_its_log_is_kept() -> None:
    own = {"name": "fetch", "terminationMessagePolicy": "File"}
    pod = render(spec(pod={"initContainers": [{"name": "move"}, own]}))["spec"]
    policies = [one["terminationMessagePolicy"] for one in (*pod["initContainers"], pod["containers"][0])]
    assert policies == ["FallbackToLogsOnError", "File", "FallbackToLogsOnError", "FallbackToLogsOnError"]


def test_in_its_nodes_network_a_pod_names_its_ports_to_the_scheduler_and_keeps_the_trainers_api_from_loopback() -> None:
    given = spec(pod={"hostNetwork": True}, hostNetwork=ON_THE_NODE)
    pod = render(given)["spec"]
    sidecar, trainer = pod["initContainers"][-1], environment(pod["containers"][0])
    ports = [(one["name"], one["containerPort"], one["hostPort"]) for one in sidecar["ports"]]
    assert ports == [("tunnel", 30601, 30601), ("health", 27602, 27602), ("store", 30400, 30400)]
    found = environment(sidecar)
    assert [found[f"ELASTICJOB_{name}_PORT"] for name in ("STORE", "TUNNEL", "HEALTH")] == ["30400", "30601", "27602"]
    socket = found["ELASTICJOB_TRAINER_SOCKET"]
    assert trainer["PET_RDZV_ENDPOINT"] == f"unix:{socket}"
    folders = {mount["mountPath"] for one in (sidecar, pod["containers"][0]) for mount in one["volumeMounts"]}
    assert str(Path(socket).parent) in folders
    assert given.template_hash != spec(pod={"hostNetwork": True}).template_hash


def test_the_sidecar_is_told_the_jobs_times() -> None:
    wanted = spec(rendezvous={"saveSeconds": 40, "storeReadySeconds": 7})
    found = environment(render(wanted)["spec"]["initContainers"][-1])
    assert (found["ELASTICJOB_SAVE_SECONDS"], found["ELASTICJOB_STORE_READY_SECONDS"]) == ("40", "7")


def test_the_template_is_not_changed_by_rendering() -> None:
    wanted = spec()
    before = wanted.model_dump_json()
    render(wanted)
    assert wanted.model_dump_json() == before


def test_the_users_tolerations_of_a_lost_node_win() -> None:
    own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 600}
    tolerations = render(spec(pod={"tolerations": [own]}))["spec"]["tolerations"]
    assert [one["tolerationSeconds"] for one in tolerations if one["key"] == own["key"]] == [600]


def test_access_is_to_the_own_job_and_to_records() -> None:
    (_, account), (_, role), (_, binding) = render_access(job(), spec())
    assert account["metadata"]["name"] == "digits-worker"
    assert role["rules"][0]["resourceNames"] == ["digits"]
    assert binding["subjects"][0]["name"] == "digits-worker"


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_a_service_account_that_the_template_names_is_bound_and_not_made(field: str) -> None:
    """Also by its deprecated name, which the API server passes over where the other one is set."""
    given = spec(pod={field: "trainers"})
    (_, role), (_, binding) = render_access(job(), given)
    assert role["kind"] == "Role"
    assert binding["subjects"][0]["name"] == "trainers"
    made = render_pod(job(), given, 0, 0, IMAGE, batch="9f3c01d2")
    assert made["spec"]["serviceAccountName"] == "trainers"


def test_a_network_policy_closes_one_port_to_other_pods_and_no_other_port() -> None:
    (*_, (path, policy)) = render_access(job(), spec(), network_policy=True)
    assert path.endswith("/namespaces/ml/networkpolicies")
    workers = policy["spec"]["podSelector"]
    within, open_to_all = policy["spec"]["ingress"]
    assert within == {"from": [{"podSelector": workers}], "ports": [{"protocol": "TCP", "port": 27601}]}
    assert "from" not in open_to_all
    ports = {(one["protocol"], port) for one in open_to_all["ports"] for port in range(one["port"], one["endPort"] + 1)}
    every = {(kind, port) for kind in ("TCP", "UDP", "SCTP") for port in range(1, 65536)}
    assert every - ports == {("TCP", 27601)}
    assert policy["metadata"]["ownerReferences"][0]["name"] == "digits"


def test_a_replacement_prefers_other_nodes_than_its_lost_predecessors() -> None:
    own = {"preference": {"matchExpressions": []}, "weight": 1}
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    wanted = spec(pod={"affinity": {"podAffinity": {}, "nodeAffinity": {kind: [own]}}})
    affinity = render_pod(job(), wanted, 2, 1, IMAGE, batch="9f3c01d2", avoid={"node-b"})["spec"]["affinity"]
    elsewhere = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}]}
    assert affinity == {
        "podAffinity": {},
        "nodeAffinity": {kind: [own, {"weight": 100, "preference": elsewhere}]},
    }
    assert "affinity" not in render(spec())["spec"]


def test_a_pod_that_keeps_off_nodes_requires_others_beside_all_that_its_template_requires() -> None:
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    fast, named = {"matchExpressions": [{"key": "disk"}]}, {"matchFields": [{"key": "metadata.name"}]}
    given = {"nodeAffinity": {"a": [], kind: {"b": 1, "nodeSelectorTerms": [fast, named, {}]}}, "podAffinity": {}}
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": [one]} for one in ("node-a", "node-b")]

    def made(pod: Object, *nodes: str) -> Object:
        return render_pod(job(), spec(pod=pod), 2, 1, IMAGE, batch="9f3c01d2", exclude=nodes)

    terms = [fast | {"matchFields": elsewhere}, {"matchFields": [{"key": "metadata.name"}, *elsewhere]}, {}]
    assert made({"affinity": given}, "node-b", "node-a")["spec"]["affinity"] == {
        "nodeAffinity": {"a": [], kind: {"b": 1, "nodeSelectorTerms": terms}},
        "podAffinity": {},
    }
    alone = made({}, "node-a")
    assert alone["spec"]["affinity"] == {
        "nodeAffinity": {kind: {"nodeSelectorTerms": [{"matchFields": elsewhere[:1]}]}}
    }
    both, one, none = Pod.read(made({}, "node-b", "node-a")), Pod.read(alone), Pod.read(made({}))
    assert (both.avoided_nodes, none.avoided_nodes) == ({"node-a", "node-b"}, frozenset())
    assert one.made_from == none.made_from, "running pods would be outdated once a node is avoided"


def test_which_nodes_a_pod_keeps_off_its_template_does_not_say() -> None:
    copied = spec()
    copied.template["metadata"] = {"annotations": {AVOIDED_NODES: "node-a", "team": "vision"}}
    made = render_pod(job(), copied, 2, 1, IMAGE, batch="9f3c01d2")
    assert (Pod.read(made).avoided_nodes, made["metadata"]["annotations"]["team"]) == (frozenset(), "vision")


def test_a_spare_prefers_a_node_without_the_jobs_pods() -> None:
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    own = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
    wanted = spec(pod={"affinity": {"podAntiAffinity": {kind: [own]}}})
    affinity = render_pod(job(), wanted, 2, 0, IMAGE, batch="9f3c01d2", spare=True)["spec"]["affinity"]
    beside = {
        "labelSelector": {"matchLabels": {"elasticjob.io/job": "digits"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    assert affinity == {"podAntiAffinity": {kind: [own, {"weight": 100, "podAffinityTerm": beside}]}}


def test_the_pod_says_what_it_was_made_from() -> None:
    made = {spec(**given).template_hash for given in ({}, {"trainer": {"image": "b"}}, {"nprocPerNode": 2})}
    assert len(made) == 3
    others = spec(replicas=2, minReplicas=2, suspend=True, warmRestart="Enabled")
    assert spec(replicas=1).template_hash == others.template_hash
    wanted = spec()
    assert Pod.read(render(wanted)).made_from == wanted.template_hash
    given = ElasticJobSpec.parse(job(template={**wanted.template, "metadata": {"annotations": {"a": "b"}}})["spec"])
    assert render(given)["metadata"]["annotations"] == {"a": "b", "elasticjob.io/template-hash": given.template_hash}


def test_a_newer_operator_finds_running_pods_made_from_the_same_template() -> None:
    """With another hash it would replace them all."""
    names = [{"name": "b", "value": "1"}, {"name": "a", "value": "2"}]
    for variables in (names, names[::-1]):
        container = {"name": "trainer", "image": "i", "env": variables}
        given = {"template": {"spec": {"containers": [container]}}}
        assert ElasticJobSpec.parse(given).template_hash == "5e48cf040feae4b7"
