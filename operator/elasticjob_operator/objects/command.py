# SPDX-License-Identifier: Apache-2.0
"""Reads a container's command: the programs that it starts, including those inside a shell's -c. Pure.

It judges nothing, and skips what it cannot read: substitutions, here-documents, scripts in files.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

SHELLS = frozenset(["ash", "bash", "dash", "ksh", "sh", "zsh"])
WRAPPERS = frozenset(["dumb-init", "env", "exec", "nice", "nohup", "numactl", "stdbuf", "time", "timeout", "tini"])
RUNNERS = frozenset(["conda", "mamba", "micromamba", "pdm", "pipenv", "pixi", "poetry", "uv"])  # before the word run
KEYWORDS = frozenset(["!", "{", "do", "elif", "else", "if", "then", "until", "while"])
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
DURATION = re.compile(r"[0-9.]+[smhd]?")
TAKES_VALUE = re.compile(r"-[A-Za-z]|--(name|prefix|signal|kill-after|chdir|unset)")
PYTHON = re.compile(r"python[0-9.]*")
SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")
UNKNOWN = "$_"  # instead of a substitution

Words = Sequence[str]


class Program(NamedTuple):
    """A program that a command starts. `name`: the file without its folder, or the module that Python is given with -m.
    `words`: its arguments. `python`: the interpreter runs it; its name is then that of a script, or empty for -c."""

    name: str
    words: Words
    python: bool = False
    module: bool = False


def programs(words: Words) -> Iterator[Program]:
    words = _unwrapped(words)
    if not words:
        return
    name, rest = PurePosixPath(words[0]).name, words[1:]
    if name in SHELLS:
        for command in _commands(_script(rest)):
            yield from programs(command)
    elif PYTHON.fullmatch(name):
        yield from _of_python(rest)
    else:
        yield Program(name, rest)


def options(words: Words, switches: Collection[str]) -> dict[str, str]:
    """The options at the beginning of `words`, by name, with dashes instead of underscores. `switches` take no
    value."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word = rest.pop(0)
        key, is_whole, value = word.lstrip("-").partition("=")
        key = key.replace("_", "-")
        attached = len(word) > 2 and not word.startswith("--")
        if not (is_whole or attached or key in switches) and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[key] = value
    return found


def _unwrapped(words: Words) -> Words:
    """`words` from the program on that does the work, without its wrappers."""
    while words:
        name = PurePosixPath(words[0]).name
        if name in RUNNERS and list(words[1:2]) == ["run"]:
            words = _after_options(words[2:])
        elif name in WRAPPERS:
            words = _after_options(words[1:])
        elif ASSIGNMENT.fullmatch(words[0]) or words[0] in KEYWORDS:
            words = words[1:]
        else:
            break
    return words


def _after_options(words: Words) -> Words:
    while words and (words[0].startswith("-") or ASSIGNMENT.fullmatch(words[0]) or DURATION.fullmatch(words[0])):
        if words[0] == "--":
            return words[1:]
        words = words[2 if TAKES_VALUE.fullmatch(words[0]) else 1 :]
    return words


def _script(words: Words) -> str:
    """The script that a shell started with `words` gets by -c; empty without one."""
    while words and words[0][:1] in ("-", "+"):
        option, words = words[0], words[1:]
        if option.startswith("--"):
            continue
        if "o" in option:
            words = words[1:]
        if "c" in option:
            return words[0] if words else ""
    return ""


def _commands(script: str) -> Iterator[Words]:
    """The simple commands in a shell's `script`."""
    text = re.sub(r"(?m)^[ \t]*#.*$", "", script.replace("\\\n", " "))
    while (shorter := SUBSTITUTION.sub(UNKNOWN, text)) != text:
        text = shorter
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        tokens = list(lexer)
    except ValueError:  # a quotation that is not closed
        return
    if any("<<" in token for token in tokens):
        return
    command: list[str] = []
    skip = False
    for token in tokens:
        if token[:1] in ("<", ">"):  # a redirection: the next word is a file
            skip = True
        elif token and not token.strip("();|&\n"):
            yield command
            command, skip = [], False
        elif skip:
            skip = False
        else:
            command.append(token)
    yield command


def _of_python(words: Words) -> Iterator[Program]:
    while words and words[0].startswith("-") and words[0] != "-":
        option, words = words[0], words[1:]
        if option.endswith("m") and not option.startswith("--"):
            if words:
                yield Program(words[0], words[1:], python=True, module=True)
            return
        if option.endswith("c") and not option.startswith("--"):
            yield Program("", words, python=True)
            return
        if option in ("-W", "-X"):
            words = words[1:]
    if words:
        yield Program(words[0], words[1:], python=True)
