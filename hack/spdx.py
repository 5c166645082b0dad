"""Puts the licence's line at the head of each source file: `SPDX-License-Identifier: Apache-2.0`.

    python hack/spdx.py            adds it where it is missing
    python hack/spdx.py --check    fails and names the files that lack it

Source files are code, scripts, Dockerfiles and Makefiles; manifests, pages and what is generated have none. It stands
in the first line, or behind a `#!`.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINE = "SPDX-License-Identifier: Apache-2.0"
HASH, SLASHES, STARS = f"# {LINE}\n", f"// {LINE}\n", f"/* {LINE} */\n"
# a blank line keeps Go from taking it for the package's description
COMMENTS = {".py": HASH, ".sh": HASH, ".awk": HASH, ".c": SLASHES, ".go": f"{SLASHES}\n", ".css": STARS}
NAMES = {"Makefile": HASH, "Dockerfile": HASH}


def comment_of(path: Path) -> str | None:
    """The line as a file of this name has it; None where a file of this kind has none."""
    return COMMENTS.get(path.suffix) or NAMES.get(path.name) or NAMES.get(path.suffix.removeprefix("."))


def with_line(text: str, comment: str) -> str:
    """`text` with the line; unchanged if it has it, or is empty."""
    first, _, rest = text.partition("\n")
    if not text or LINE in first or LINE in rest.partition("\n")[0]:
        return text
    return f"{first}\n{comment}{rest}" if first.startswith("#!") else comment + text


def sources(root: Path) -> Iterator[tuple[Path, str]]:
    """The source files that git knows or would take, and the comment that each has."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in listed.rstrip("\0").split("\0"):
        path = root / name
        if (comment := comment_of(path)) and os.path.isfile(path) and not path.is_symlink():
            yield path, comment


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the licence's line at the head of each source file.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file lacks it")
    given = parser.parse_args()
    lacking = []
    for path, comment in sources(ROOT):
        text = path.read_text()
        if (made := with_line(text, comment)) == text:
            continue
        lacking.append(str(path.relative_to(ROOT)))
        if not given.check:
            path.write_text(made)
    if given.check and lacking:
        sys.exit(f"no line '{LINE}' at the head of {', '.join(lacking)}; run `make licences` and commit the result")


if __name__ == "__main__":
    main()
