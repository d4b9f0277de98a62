"""Every example has its command in its first lines, the same in docs/examples.md, and a test that runs it."""
import re

import pytest
from conftest import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.cpp"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_example_has_its_command_and_is_run(path):
    command = re.search(r"^//   (build/.*)$", path.read_text(), re.MULTILINE).group(1)
    assert f"build/example_{path.stem}" in command
    assert f"`{command}`" in (ROOT / "docs/examples.md").read_text()
    cmake = (ROOT / "examples/CMakeLists.txt").read_text()
    assert f"NAME example.{path.stem} " in cmake


def test_every_cluster_of_the_examples_reads(yoke):
    for path in sorted((ROOT / "examples/clusters").glob("*.toml")):
        assert yoke("topo", "show", path, "--json").json["links"]
