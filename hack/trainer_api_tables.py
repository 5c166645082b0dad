# SPDX-License-Identifier: Apache-2.0
"""The tables of `docs/trainer-api.md`: each call with its fields, the refusals, the limits.

What a field is for and what it may be is written in `elasticjob_torch.wire`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from elasticjob_torch import wire
from elasticjob_torch.wire.fields import Inner, OneOf, Rule, Text, Truth, Whole, fields_of

SCRIPTS = (wire.WATCH, wire.SAVED, wire.PROGRESS)

ANSWERS: dict[type, str] = {Whole: "whole number", Text: "text", Truth: "true or false"}


def tables() -> dict[str, str]:
    """Name to text, for everything that is generated."""
    return {
        "overview": overview(),
        "calls": "\n\n".join(map(section, (call for call in wire.CALLS if call not in SCRIPTS))),
        "scripts": "\n\n".join(map(section, SCRIPTS)),
        "refusals": refusals(),
        "limits": limits(),
    }


def overview() -> str:
    rows = (
        (f"[`{call.method} {call.path}`](#{anchor(call)})", "script" if call in SCRIPTS else "trainer", call.does)
        for call in wire.CALLS
    )
    return table(("call", "of a", "what it does"), rows)


def section(call: wire.Call) -> str:
    """All of one call: what it does, what it takes and answers, and how it may be refused."""
    parts = [f"### `{call.method} {call.path}`", call.does]
    if call.sends is not None:
        place = "query" if call.method == "GET" else "JSON body"
        parts.append(table((place, "is", "default", "meaning"), taken(call.sends)))
    if call.answers is None:
        parts.append("Answer: 204, without a body.")
    else:
        answer = "event, as JSON" if call.stream else "answer, as JSON"
        parts.append(table((answer, "is", "meaning"), told(call.answers)))
    if call.sends is not None:
        kinds = filter(None, (call.refusals, call.common_refusals))
        parts.append(f"Refusals: {'; '.join(', '.join(f'`{code}`' for code in codes) for codes in kinds)}.")
    return "\n\n".join(parts)


def refusals() -> str:
    rows = ((f"`{code}`", str(one.status), one.means, one.then) for code, one in wire.REFUSALS.items())
    return table(("code", "status", "meaning", "what the caller does"), rows)


def limits() -> str:
    seconds = "{:g} s".format
    rows = [
        ("a name", f"{wire.NAME_LENGTH} characters"),
        ("a number", f"{wire.MAX_JSON_INTEGER} (2^53 - 1)"),
        ("a wait", seconds(wire.LONGEST_SECONDS)),
        ("a request's body", f"{wire.BODY_BYTES} bytes, within {seconds(wire.BODY_SECONDS)}"),
        ("a request's line, and each header", f"{wire.HEAD_BYTES} bytes; {wire.HEADERS} headers"),
        ("connections", f"{wire.MAX_CONNECTIONS}; a further one is closed unanswered"),
        ("streams of scripts", f"{wire.MAX_SCRIPTS}; a further one is refused with `{wire.Code.TOO_MANY}`"),
        ("a connection without a request", seconds(wire.IDLE_SECONDS)),
        ("silence on a stream", f"a comment every {seconds(wire.COMMENT_SECONDS)}"),
    ]
    return table(("of what", "most"), rows)


def anchor(call: wire.Call) -> str:
    """As the pages' viewers make it of the heading."""
    return f"{call.method}-{call.path}".lower().replace("/", "")


def taken(message: type[wire.Message]) -> Iterable[Sequence[str]]:
    """Rows of what a call takes."""
    for field in fields_of(message):
        default = "needed" if field.needed else default_of(field.default)
        yield f"`{field.key}`", kind(field.rule) + ", or null" * field.nullable, default, field.meaning


def told(message: type[wire.Message]) -> Iterable[Sequence[str]]:
    """Rows of what is answered."""
    for field in fields_of(message):
        if isinstance(field.rule, Inner):
            for key, of_what, means in told(field.rule.message):
                yield f"`{field.key}.{key[1:]}", of_what, means
        else:
            yield f"`{field.key}`", answered(field.rule) + " or null" * field.nullable, field.meaning


def answered(rule: Rule) -> str:
    return kind(rule) if isinstance(rule, OneOf) else ANSWERS[type(rule)]


def kind(rule: Rule) -> str:
    """What a field may be, in words."""
    return one_of(str(word) for word in rule.words) if isinstance(rule, OneOf) else str(rule)


def default_of(value: Any) -> str:
    if value is None or value == {} or value == "":
        return "none"
    if isinstance(value, str):
        return f"`{value}`"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def one_of(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" if line[0] != "---" else "|" + "---|" * len(line) for line in lines)
