# SPDX-License-Identifier: Apache-2.0
"""Check that all files that name the version agree: what a release would otherwise get wrong.

python hack/release/check_version.py           each pyproject.toml, __version__, Chart.yaml, images in pages, examples
python hack/release/check_version.py v0.2.0    and the tag, and CHANGELOG.md, which must have notes for it
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from changelog import ChangelogError, check_ready
from project import ROOT, projects

TAG = re.compile(r"v(\d+\.\d+\.\d+)")
MODULE = Path("core/elasticjob/__init__.py")
PAGES = ("README.md", "docs/quick-start.md", "docs/installation.md")  # that name our images
MANIFESTS = "examples/**/*.yaml"  # some do
IMAGE = re.compile(r"/(?:elasticjob-)?(operator|sidecar|torch-plugin):(\d+\.\d+\.\d+)")
VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)


def versions(root: Path) -> Iterator[tuple[str, str]]:
    """Each place that has the version, and what it has."""
    for file, project in projects(root).items():
        name = str(file.relative_to(root))
        yield f"{name}: project.version", project["version"]
        for requirement in project.get("dependencies", []):
            if ours := re.fullmatch(r"elasticjob[\w-]* *==(.*)", requirement):
                yield f"{name}: project.dependencies, '{requirement}'", ours[1]
    named = VERSION.search((root / MODULE).read_text())
    yield f"{MODULE}: __version__", named[1] if named else "missing"
    chart = yaml.safe_load((root / "charts" / "elasticjob" / "Chart.yaml").read_text())
    for key in ("version", "appVersion"):
        yield f"charts/elasticjob/Chart.yaml: {key}", str(chart[key])
    for image in yaml.safe_load(chart["annotations"]["artifacthub.io/images"]):
        yield f"charts/elasticjob/Chart.yaml: artifacthub.io/images, {image['name']}", image["image"].rpartition(":")[2]
    for file in [*(root / page for page in PAGES), *sorted(root.glob(MANIFESTS))]:
        for image, version in sorted(set(IMAGE.findall(file.read_text()))):
            yield f"{file.relative_to(root)}: the image {image}", version


def mistakes(root: Path, tag: str | None) -> Iterator[str]:
    """Sentences that say what has to be changed; none when a release may be made."""
    found = dict(versions(root))
    wanted = found["pyproject.toml: project.version"]
    if tag is not None:
        if not (match := TAG.fullmatch(tag)):
            yield f"the tag must be vX.Y.Z, not '{tag}'"
            return
        wanted = match[1]
        try:
            check_ready((root / "CHANGELOG.md").read_text(), wanted)
        except ChangelogError as error:
            yield str(error)
    for place, version in found.items():
        if version != wanted:
            yield f"{place} is {version}; it must be {wanted}, as {'the tag' if tag else 'pyproject.toml'} says"


def main() -> None:
    parser = argparse.ArgumentParser(prog="check_version.py", description="Check that all say the same version.")
    parser.add_argument("tag", nargs="?", help="vX.Y.Z, that of the release")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    arguments = parser.parse_args()
    if found := list(mistakes(arguments.root, arguments.tag)):
        sys.exit("\n".join(f"error: {sentence}" for sentence in found))


if __name__ == "__main__":
    main()
