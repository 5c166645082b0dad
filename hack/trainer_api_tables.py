"""The tables of `docs/trainer-api.md`: each call with its fields, the refusals, the limits.

What a field is for is written in `elasticjob_torch.wire`; what it may be is read from the sidecar's models.
"""

import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from elasticjob_sidecar.trainer_api import bodies
from elasticjob_torch import wire

SCHEMA = dict[str, Any]

SCRIPTS = (wire.WATCH, wire.SAVED, wire.PROGRESS)

ANSWERS = {int: "whole number", str: "text", bool: "true or false", float: "number"}


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
    if call.refusals:
        parts.append(f"Refusals: {', '.join(f'`{code}`' for code in call.refusals)}; `{wire.Code.BAD_REQUEST}`.")
    elif call.sends is not None:
        parts.append(f"Refusal: `{wire.Code.BAD_REQUEST}`.")
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


def taken(fields: type) -> Iterable[Sequence[str]]:
    """Rows of what a call takes."""
    schema: SCHEMA = getattr(bodies, fields.__name__).model_json_schema()
    required = schema.get("required", [])
    for name, meaning in meanings(fields).items():
        one = schema["properties"][name]
        default = "needed" if name in required else default_of(one)
        yield f"`{name}`", kind(one, schema.get("$defs", {})), default, meaning


def told(fields: type) -> Iterable[Sequence[str]]:
    """Rows of what is answered."""
    hints = typing.get_type_hints(fields)
    for name, meaning in meanings(fields).items():
        if typing.is_typeddict(hints[name]):
            for inner, (_, of_what, means) in zip(hints[name].__annotations__, told(hints[name]), strict=True):
                yield f"`{name}.{inner}`", of_what, means
        else:
            yield f"`{name}`", answered(name, hints[name]), meaning


def meanings(fields: type) -> dict[str, str]:
    hints = typing.get_type_hints(fields, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def answered(name: str, hint: Any) -> str:
    words = {"phase": wire.Phase, "outcome": wire.Outcome}
    if name in words:
        return one_of(list(words[name]))
    if isinstance(hint, types.UnionType):
        return " or ".join("null" if one is type(None) else ANSWERS[one] for one in typing.get_args(hint))
    return ANSWERS[hint]


def kind(schema: SCHEMA, definitions: SCHEMA) -> str:
    """What a field may be, in words."""
    if "$ref" in schema:
        return kind(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return ", or ".join(kind(one, definitions) for one in schema["anyOf"])
    if "enum" in schema:
        return one_of(schema["enum"])
    if schema["type"] == "integer":
        return "whole number" + bounds(schema)
    if schema["type"] == "number":
        return "number" + bounds(schema)
    if schema["type"] == "string":
        return f"text of 1 to {schema['maxLength']} characters" if "maxLength" in schema else "text"
    if schema["type"] == "array":
        return f"list of at most {schema['maxItems']}: {kind(schema['items'], definitions)}"
    if schema["type"] == "object":
        names = kind({"type": "string"} | schema["propertyNames"], definitions)
        return f"object: {names} to {kind(schema['additionalProperties'], definitions)}"
    return {"boolean": "true or false", "null": "null"}[schema["type"]]


def bounds(schema: SCHEMA) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']:g}, at most {most:g}"
    if most == wire.MAX_JSON_INTEGER:
        return f" from {least}"
    return "" if least is None else f" from {least} to {most}"


def default_of(schema: SCHEMA) -> str:
    value = schema["default"]
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
