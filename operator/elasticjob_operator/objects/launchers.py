# SPDX-License-Identifier: Apache-2.0
"""What the trainer's command has to be: it starts torchrun with the job's rendezvous. Pure.

A correct command must never be refused. So a command that may start torchrun in the end is accepted, for example a
script of the user's own.
"""

from collections.abc import Iterator
from itertools import chain

from elasticjob.api import TRAINER_API_PORT
from elasticjob.objects import Object
from elasticjob_operator.objects.command import Program, Words, options, programs

BACKEND, ENDPOINT = "elasticjob", f"127.0.0.1:{TRAINER_API_PORT}"
TORCHRUN_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
TORCHRUN_SWITCHES = frozenset(
    {"standalone", "m", "module", "no-python", "run-path", "use-env", "virtual-local-rank", "h", "help"}
)
# by the program's name, or the first part of a module's
OTHERS = {"horovod": "horovodrun"} | {name: name for name in ("colossalai", "composer", "deepspeed", "horovodrun")}
# these have other uses too: beside a Python program, which may start torchrun, they are accepted
GENERAL = {name: name for name in ("mpiexec", "mpirun", "orterun", "ray", "srun")}
LONGEST = 10_000  # characters; templates come from anybody, and the time to read one may grow with the square
# words by which a command may start torchrun after all
SIGNS = ("torchrun", "torch.distributed", "torch/distributed", "accelerate")


def problems(container: Object) -> Iterator[str]:
    """What has to be changed in the command of `container`, one sentence each."""
    words = _words(container)
    if not container.get("command") and words and words[0].startswith("-"):  # arguments of the image's own program
        given = options(words, TORCHRUN_SWITCHES)
        yield from _passes_over({name: value for name, value in given.items() if name.startswith("rdzv-")})
        return
    started = list(programs(words))
    launches = [found for program in started if (found := _of_launch(program)) is not None]
    if all(launches):  # otherwise one launch is correct, and the others may have another purpose
        yield from chain.from_iterable(launches)
    if not any(sign in word for word in words for sign in SIGNS):
        others = OTHERS if any(program.python for program in started) else OTHERS | GENERAL
        for name in filter(others.__contains__, map(_launcher_name, started)):
            yield (
                f"spec.template: the trainer's command starts {others[name]}, which knows nothing of elastic "
                "rendezvous: start the script with torchrun instead"
            )


def hint(container: Object) -> str | None:
    """What is unusual about a command that runs Python without torchrun, for trainers that fail before they join. None
    if nothing is."""
    words = _words(container)
    started = list(programs(words))
    if any(sign in word for word in words for sign in SIGNS) or any(one.name.endswith(".sh") for one in started):
        return None
    python = next((one for one in reversed(started) if one.python), None)
    if python is None:
        return None
    script = f"-m {python.name}" if python.module else python.name
    return (
        f"the trainer's command is `python {script or '-c'}`: it must be torchrun, as in `torchrun {script or 'x.py'}`"
    )


def _words(container: Object) -> Words:
    given = [*(container.get("command") or ()), *(container.get("args") or ())]
    words = ["" if word is None else str(word) for word in given]
    return words if sum(map(len, words)) + len(words) <= LONGEST else ()


def _of_launch(program: Program) -> list[str] | None:
    """What is wrong with a launch of torchrun; None if the program is no such launch."""
    if (given := _torchrun(program)) is not None:
        return list(_passes_over(options(given, TORCHRUN_SWITCHES)))
    if (given := _accelerate(program)) is not None:
        return list(_of_accelerate(given))
    return None


def _torchrun(program: Program) -> Words | None:
    """The arguments of torchrun; None if the program does not start it."""
    if program.module:
        return program.words if program.name in TORCHRUN_MODULES else None
    is_file = program.name.endswith(("torch/distributed/run.py", "torch/distributed/launch.py"))
    return program.words if is_file or program.name.rpartition("/")[2] == "torchrun" else None


def _accelerate(program: Program) -> Words | None:
    """The arguments of `accelerate launch`; None if the program does not start it."""
    name = program.name.rpartition("/")[2]
    if name in ("accelerate-launch", "accelerate.commands.launch"):
        return program.words
    if name in ("accelerate", "accelerate.commands.accelerate_cli") and list(program.words[:1]) == ["launch"]:
        return program.words[1:]
    return None


def _launcher_name(program: Program) -> str:
    return program.name.partition(".")[0] if program.module else program.name.rpartition("/")[2]


def _passes_over(given: dict[str, str]) -> Iterator[str]:
    """Options that override the environment, so that the agent would not meet the others."""
    wrong = [("standalone", "standalone" in given)]
    backend, endpoint = given.get("rdzv-backend", BACKEND), given.get("rdzv-endpoint", ENDPOINT)
    wrong.append(("rdzv-backend", backend != BACKEND and "$" not in backend))
    wrong.append(("rdzv-endpoint", endpoint != ENDPOINT and "PET_RDZV_ENDPOINT" not in endpoint))
    wrong.append(("rdzv-id", "$" not in given.get("rdzv-id", "$")))  # the id is the job's uid, unknown to any manifest
    if names := [f"--{name}" for name, is_wrong in wrong if is_wrong]:
        passes = f"{'it passes' if len(names) == 1 else 'they pass'} over the job's own rendezvous"
        yield f"spec.template: remove {', '.join(names)} from the trainer's command: {passes}"


def _of_accelerate(words: Words) -> Iterator[str]:
    """What is wrong with the options of `accelerate launch`, whose own default is a static rendezvous regardless of the
    environment."""
    before_script = _until_script(words)
    given = {word.partition("=")[0].replace("_", "-") for word in before_script}
    backend = _value(words, "--rdzv-backend")
    if "--cpu" in given:
        yield (
            "spec.template: remove --cpu from accelerate's options, with which it starts no torchrun: set "
            "ACCELERATE_USE_CPU to true in the trainer container's env, and start the script with torchrun instead of "
            "accelerate, or with --multi_gpu and a --num_processes of at least 2"
        )
    is_unknown = "$" in (backend or "".join(before_script))
    if backend != BACKEND and not is_unknown:
        yield (
            f"spec.template: accelerate launch needs --rdzv_backend {BACKEND}, as its own {backend or 'static'} one "
            "passes over the job's rendezvous; add --multi_gpu where a worker has one GPU, and start the script with "
            "torchrun where it has none"
        )
    processes = _value(before_script, "--num-processes")
    if "--multi-gpu" in given and processes in ("0", "1"):
        yield (
            f"spec.template: accelerate refuses --multi_gpu with --num_processes={processes}: remove --num_processes "
            "where a worker has a GPU, and start the script with torchrun where it has none"
        )
    machines = _value(before_script, "--num-machines")
    if machines not in (None, "1") and "$" not in str(machines):
        yield (
            "spec.template: remove --num_machines from accelerate's options: each worker starts accelerate for itself, "
            "and --num_processes are those of one worker"
        )


def _until_script(words: Words) -> Words:
    ends = (position for position, word in enumerate(words) if word.endswith(".py") or word in ("-m", "--module"))
    return words[: next(ends, len(words))]


def _value(words: Words, option: str) -> str | None:
    for position, word in enumerate(words):
        key, is_whole, value = word.partition("=")
        if key.replace("_", "-") == option:
            return value if is_whole else next(iter(words[position + 1 : position + 2]), "")
    return None
