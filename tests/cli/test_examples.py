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


@pytest.mark.parametrize("ranks", [1, 2])
def test_lenet_by_hand_learns_what_the_library_learns(yoke, ranks):
    programs = [ROOT / f"build/example_lenet_{name}" for name in ("from_scratch", "with_yoke")]
    for program in programs:
        if not program.exists():
            pytest.skip(f"{program} is not built: make examples")
    by_hand, library = ([float(loss) for loss in re.findall(r"loss ([0-9.]+)", yoke("run", "--nproc", ranks, program).out)] for program in programs)
    assert len(by_hand) == 4 and by_hand[0] == pytest.approx(library[0], abs=0.002)  # after 16 steps; later, rounding grows
    assert by_hand[3] < 0.3 and library[3] < 0.3  # log 10 = 2.303 before the first step


def test_every_cluster_of_the_examples_reads(yoke):
    for path in sorted((ROOT / "examples/clusters").glob("*.toml")):
        assert yoke("topo", "show", path, "--json").json["links"]
