"""What the documents repeat from the code must stay true."""

import re
from pathlib import Path

from elasticjob.api import ElasticJobSpec, RendezvousSpec

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([\w.]+)` \| `?(\w+)`?", re.M)


def test_the_defaults_in_the_api_page_are_the_models() -> None:
    section = (ROOT / "docs" / "api.md").read_text().split("## ")[1]
    told = dict(ROW.findall(section))
    found = {f"rendezvous.{field.alias}": field.default for field in RendezvousSpec.model_fields.values()}
    for field in ElasticJobSpec.model_fields.values():
        if field.alias != "rendezvous":
            found[str(field.alias)] = "required" if field.is_required() else field.default
    words = {name: "none" if value is None else str(value).lower() for name, value in found.items()}
    assert told == words


def test_the_readme_names_only_tests_and_folders_that_are_there() -> None:
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert (ROOT / "tests" / "e2e" / name).exists(), name
    for name in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (ROOT / name).exists(), name
