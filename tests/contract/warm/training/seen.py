# SPDX-License-Identifier: Apache-2.0
"""What a process can see of itself, item by item. A module of the script's own folder."""

import builtins
import ctypes
import gc
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import warnings

LIBC = ctypes.CDLL(None)
PR_GET_DUMPABLE, PR_GET_PDEATHSIG, PR_GET_NO_NEW_PRIVS, PR_GET_CHILD_SUBREAPER, PR_GET_TIMERSLACK = 3, 2, 39, 37, 30
STATUS = ("Name", "Umask", "TracerPid", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapInh")
STATUS += ("CapEff", "NoNewPrivs", "Seccomp", "Cpus_allowed")


def main():
    module = sys.modules["__main__"]
    spec = module.__spec__
    return {
        "name": module.__name__,
        "file": module.__file__,
        "package": module.__package__,
        "loader": type(module.__loader__).__name__,
        "spec": spec and [spec.name, spec.origin, spec.parent],
        "cached": getattr(module, "__cached__", None),
        "documented": (module.__doc__ or "")[:20],
        "builtins": module.__builtins__ is builtins,
        "names": sorted(vars(module)),
    }


def command():
    with open("/proc/self/cmdline") as file:
        line = file.read().split("\0")
    return [sys.argv, sys.orig_argv, line, sys.executable, sys.prefix, sys.base_prefix, os.getcwd()]


def path():
    return [sys.path, [repr(hook) for hook in sys.path_hooks], sys.pycache_prefix]


def meta_path():
    return [repr(finder) for finder in sys.meta_path]


def flags():
    return [repr(sys.flags), sys._xoptions, sys.warnoptions, sys.dont_write_bytecode, __debug__]


def interpreter():
    hooks = [sys.displayhook, sys.unraisablehook, threading.excepthook, sys.gettrace(), sys.getprofile()]
    return {
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()],
        "hooks": [repr(hook) for hook in hooks],
        "excepthook": [sys.excepthook.__module__, sys.excepthook.__qualname__],
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count(), len(gc.callbacks)],
        "atexit": sys.modules["atexit"]._ncallbacks(),
        "asyncio": sys.get_asyncgen_hooks() == (None, None),
    }


def modules():
    return sorted(sys.modules)


def module_files():
    return {name: getattr(module, "__file__", None) for name, module in sorted(sys.modules.items())}


def builtin_functions():
    bootstrap = sys.modules["importlib._bootstrap"]
    return {
        "names": sorted(vars(builtins)),
        "imports": [repr(builtins.__import__), bootstrap._find_and_load.__code__.co_filename],
        "environ": [repr(type(os.environ)), os._Environ.__getitem__.__code__.co_filename],
        "of the environment": {
            name: getattr(getattr(value, "__code__", None), "co_filename", None)
            for name, value in sorted(vars(os._Environ).items())
        },
        "putenv": [repr(os.putenv), repr(os.getenv.__code__.co_filename), repr(os._exit), repr(os.fork)],
    }


def environment():
    return _comparable(dict(os.environ))


def environment_of_a_child():
    printed = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.decode()
    return _comparable(dict(line.split("=", 1) for line in printed.split("\0") if line))


def environment_in_c():
    LIBC.getenv.restype = ctypes.c_char_p
    return _comparable({name: (LIBC.getenv(name.encode()) or b"unset").decode() for name in os.environ})


def _comparable(variables):
    """Each start of a process has an id of its own; that there is one is the same for all."""
    start = variables.pop("ELASTICJOB_START", "")
    return {**variables, "has an id": len(start)}


def threads():
    return [[thread.name for thread in threading.enumerate()], len(os.listdir("/proc/self/task"))]


def main_thread():
    thread = threading.main_thread()
    return [
        thread is threading.current_thread(),
        thread.native_id == os.getpid(),
        thread.ident == threading.get_ident(),
    ]


def signals():
    return {
        "handlers": {number.name: repr(signal.getsignal(number)).split(" at 0x")[0] for number in signal.Signals},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "pending": sorted(signal.sigpending()),
        "timers": [signal.getitimer(timer) for timer in (0, 1, 2)],
        "wakeup": signal.set_wakeup_fd(-1),
    }


def limits():
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def status():
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in file)
    return {name: lines.get(name) for name in STATUS}


def scheduling():
    me = os.getpid()
    policy = [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))]
    ionice = LIBC.syscall(252, 1, 0) if os.uname().machine == "x86_64" else 0
    asked = (PR_GET_DUMPABLE, PR_GET_NO_NEW_PRIVS, PR_GET_TIMERSLACK)
    flags = [LIBC.prctl(one, 0, 0, 0, 0) for one in asked]
    return [policy, ionice, flags, [prctl_value(one) for one in (PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER)], me == 1]


def prctl_value(which):
    value = ctypes.c_int(-1)
    LIBC.prctl(which, ctypes.byref(value), 0, 0, 0)
    return value.value


def identity():
    me, of_process = os.getpid(), {}
    for name in ("oom_score_adj", "coredump_filter", "timerslack_ns", "personality", "cgroup", "comm", "loginuid"):
        try:
            with open(f"/proc/self/{name}") as file:
                of_process[name] = file.read()
        except OSError as error:
            of_process[name] = error.strerror
    umask = os.umask(0)
    os.umask(umask)
    own = [
        os.getsid(0) == me,
        os.getpgrp() == me,
        f"parent {os.getppid()}",
        umask,
        os.getuid(),
        os.getgroups(),
        os.ctermid(),
    ]
    return [own, of_process]


def descriptors():
    return sys.modules["__main__"].descriptors()


def streams():
    shown = {}
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        kind = [type(stream).__name__, stream.name, stream.mode, stream.encoding, stream.errors, stream.isatty()]
        kind += [stream.line_buffering, stream.write_through, stream.fileno(), stream is getattr(sys, f"__{name}__")]
        shown[name] = [*kind, type(stream.buffer).__name__]
    return shown


def stdin():
    return [os.readlink("/proc/self/fd/0"), os.lseek(0, 0, os.SEEK_CUR) if sys.stdin.seekable() else None]


def warning_filters():
    here = repr(warnings.filters), warnings.showwarning.__module__, warnings.formatwarning.__module__
    return [*here, sorted(map(str, warnings.defaultaction.split())), sorted(warnings.onceregistry)]


def loggers():
    known = logging.root.manager.loggerDict
    return {
        "root": [logging.root.level, repr(logging.root.handlers), logging.root.manager.disable],
        "known": {
            name: [getattr(log, "level", None), repr(getattr(log, "handlers", None)).split(" at 0x")[0]]
            for name, log in sorted(known.items())
        },
        "class": repr(logging.getLoggerClass()),
    }


def chance():
    """Numbers that nobody has seeded."""
    return {
        "random": random.random(),
        "hash": hash("a word"),
        "urandom": os.urandom(8).hex(),
        "name": next(sys.modules["tempfile"]._get_candidate_names()) if "tempfile" in sys.modules else None,
    }


def seeded():
    random.seed(7)
    return [random.random(), random.getrandbits(64)]


def place():
    return [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), sys.flags.utf8_mode, os.nice(0)]


def of_multiprocessing():
    process = multiprocessing.current_process()
    from multiprocessing import resource_tracker, spawn

    kinds = [multiprocessing.get_start_method(allow_none=True), spawn.get_executable()]
    who = [process.name, process.daemon, len(process.authkey), list(process._identity)]
    return [who, repr(kinds), resource_tracker._resource_tracker._fd, multiprocessing.parent_process() is None]


def imported():
    """What modules saw when they were imported."""
    names = ("early_state", "early_sees", "early_rank", "early_main", "early_shadows", "early_prefix")
    return {name: sys.modules[name].SEEN for name in names if name in sys.modules}


ITEMS = (
    main, command, path, meta_path, flags, interpreter, modules, module_files, builtin_functions, environment,
    environment_of_a_child, environment_in_c, threads, main_thread, signals, limits, status, scheduling, identity,
    descriptors, streams, stdin, warning_filters, loggers, chance, seeded, place, of_multiprocessing, imported,
)  # fmt: skip


def of_child():
    return {
        "main": [sys.modules["__main__"].__name__, getattr(sys.modules["__main__"], "__file__", None)],
        "argv": sys.argv,
        "path": sys.path,
        "flags": repr(sys.flags),
        "modules": sorted(name for name in sys.modules if "elasticjob" in name or "sitecustomize" in name),
        "environment": environment(),
        "threads": threads()[1],
        "signals": signals()["handlers"]["SIGINT"],
        "status": status(),
        "meta_path": meta_path(),
        "excepthook": sys.excepthook.__module__,
        "oom": identity()[1]["oom_score_adj"],
    }


def children(function):
    """What processes see that multiprocessing starts in each of its ways, with a function of `__main__`."""
    found = {}
    for method in ("spawn", "forkserver", "fork"):
        pool = multiprocessing.get_context(method).Pool(1)
        found[method] = pool.apply(function)
        pool.close()
        pool.join()
    return found
