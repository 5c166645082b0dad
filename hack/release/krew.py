# SPDX-License-Identifier: Apache-2.0
"""Print krew's manifest of the command line tool, for the archives that krew.sh has made.

python hack/release/krew.py 0.2.0 DIRECTORY --owner OWNER

krew refuses a manifest that breaks its rules only when somebody installs by it, so they are asked here: `mistakes`.
"""

import argparse
import hashlib
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

NAME, BIN = "elasticjob", "kubectl-elasticjob"
API_VERSION = "krew.googlecontainertools.github.com/v1alpha2"
PLATFORMS = (("linux", "amd64"), ("linux", "arm64"), ("darwin", "amd64"), ("darwin", "arm64"))
HOME = "https://github.com/{owner}/elasticjob"
SHORT = "Look into elastic PyTorch jobs, and change them"
SHORT_LENGTH = 50  # `kubectl krew search` shows no more of it
DESCRIPTION = """\
Says what an ElasticJob does, why it waits, and what its last rounds cost; shows its trainers' logs over rounds and
pods; scales, suspends, resumes and restarts it, and waits until that is done.
"""
CAVEATS = """\
It needs Python 3.11, 3.12, 3.13 or 3.14 on PATH, and ElasticJob's operator in the cluster, of the same version.
"""
FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "metadata": {"name"},
    "spec": {"version", "homepage", "shortDescription", "description", "caveats", "platforms"},
    "platform": {"uri", "sha256", "bin", "files", "selector"},
}
VERSION = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
SHA256 = re.compile(r"[a-f0-9]{64}")


class KrewError(Exception):
    """The manifest cannot be made, or is none that krew takes; the message says why."""


def archive_name(version: str, os: str, arch: str) -> str:
    return f"{BIN}_v{version}_{os}_{arch}.tar.gz"


def manifest(version: str, directory: Path, owner: str) -> dict[str, Any]:
    """`directory` has the archives. Raises KrewError where one is missing."""
    home = HOME.format(owner=owner)
    platforms = []
    for os, arch in PLATFORMS:
        archive = directory / archive_name(version, os, arch)
        if not archive.exists():
            raise KrewError(f"there is no {archive}; run hack/release/krew.sh")
        platform = {
            "selector": {"matchLabels": {"os": os, "arch": arch}},
            "uri": f"{home}/releases/download/v{version}/{archive.name}",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "bin": BIN,
        }
        platforms.append(platform)
    spec = {
        "version": f"v{version}",
        "homepage": home,
        "shortDescription": SHORT,
        "description": DESCRIPTION,
        "caveats": CAVEATS,
        "platforms": platforms,
    }
    return {"apiVersion": API_VERSION, "kind": "Plugin", "metadata": {"name": NAME}, "spec": spec}


def mistakes(body: dict[str, Any], directory: Path) -> Iterator[str]:
    """Sentences that say what krew, or who installs by it, would stumble over."""
    spec = body.get("spec", {})
    for where, given in (("", body), ("metadata", body.get("metadata", {})), ("spec", spec)):
        for field in sorted(given.keys() - FIELDS[where]):
            yield f"{where or 'the manifest'} has a field {field} that krew does not know"
    if body.get("apiVersion") != API_VERSION or body.get("kind") != "Plugin":
        yield f"apiVersion and kind must be {API_VERSION} and Plugin"
    if body.get("metadata", {}).get("name") != NAME:
        yield f"metadata.name must be {NAME}, as the file's name is"
    if not VERSION.fullmatch(spec.get("version", "")):
        yield "spec.version must be vX.Y.Z"
    short = spec.get("shortDescription", "")
    if not short or "\n" in short or len(short) > SHORT_LENGTH:
        yield f"spec.shortDescription must be one line of at most {SHORT_LENGTH} letters"
    if not spec.get("homepage", "").startswith("https://"):
        yield "spec.homepage must be an https address"
    if not spec.get("platforms"):
        yield "spec.platforms is empty"
    for number, platform in enumerate(spec.get("platforms") or ()):
        for sentence in _platform_mistakes(platform, directory):
            yield f"spec.platforms[{number}]: {sentence}"


def _platform_mistakes(platform: dict[str, Any], directory: Path) -> Iterator[str]:
    for field in sorted(platform.keys() - FIELDS["platform"]):
        yield f"krew does not know the field {field}"
    labels = platform.get("selector", {}).get("matchLabels") or {}
    if not labels or labels.keys() - {"os", "arch"}:
        yield "selector.matchLabels must have os and arch, and nothing else"
    if "files" in platform and not platform["files"]:
        yield "files must have entries, or not be there"
    uri = platform.get("uri", "")
    if not uri.startswith("https://") or not uri.endswith((".tar.gz", ".zip")):
        yield "uri must be the https address of a .tar.gz or .zip"
    if not SHA256.fullmatch(platform.get("sha256", "")):
        yield "sha256 must have 64 digits from 0 to f"
    archive = directory / uri.rpartition("/")[2]
    if not archive.is_file():
        yield f"there is no {archive.name} in {directory}"
        return
    if hashlib.sha256(archive.read_bytes()).hexdigest() != platform.get("sha256"):
        yield f"sha256 is not that of {archive.name}"
    yield from _archive_mistakes(archive, platform.get("bin", ""))


def _archive_mistakes(archive: Path, program: str) -> Iterator[str]:
    with tarfile.open(archive) as inside:
        members = {member.name.removeprefix("./"): member for member in inside}
    found = members.get(program)
    if found is None or not found.mode & 0o111:
        yield f"bin: {archive.name} has no program {program or 'of that name'}"
    if "LICENSE" not in members:
        yield f"{archive.name} has no LICENSE, which krew's index asks for"
    if links := [name for name, member in members.items() if member.issym() or member.islnk()]:
        yield f"{archive.name} has links, which krew does not unpack: {', '.join(links)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="krew.py", description="Print krew's manifest of the command line tool.")
    parser.add_argument("version", help="X.Y.Z")
    parser.add_argument("directory", type=Path, help="where the archives are")
    parser.add_argument("--owner", default="OWNER", help="whose repository has the release")
    arguments = parser.parse_args()
    try:
        body = manifest(arguments.version, arguments.directory, arguments.owner)
    except KrewError as error:
        sys.exit(f"error: {error}")
    if found := list(mistakes(body, arguments.directory)):
        sys.exit("\n".join(f"error: {sentence}" for sentence in found))
    print(yaml.safe_dump(body, sort_keys=False, width=120), end="")


if __name__ == "__main__":
    main()
