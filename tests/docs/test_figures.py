"""The commands of docs/figures.md: those on a virtual clock run, of the others every option exists."""
import re
import shlex

import pytest
from conftest import ROOT
from known_options import mistakes

PAGE = (ROOT / "docs/figures.md").read_text()
COMMANDS = sorted(set(re.findall(r"`yoke ([^`]+)`", PAGE)))
RUN = [c for c in COMMANDS if c.startswith("simulate") or "--clock virtual" in c or c.startswith("topo predict")]


@pytest.mark.parametrize("command", RUN)
def test_a_figure_on_the_virtual_clock_is_drawn(yoke, tmp_path, command):
    assert yoke(*shlex.split(command), cwd=tmp_path).out
    for svg in re.findall(r"--svg (\S+)", command):
        assert "<svg" in (tmp_path / svg).read_text()


def test_options_of_the_other_commands_exist(yoke):
    wrong = [problem for command in sorted(set(COMMANDS) - set(RUN)) for problem in mistakes(yoke, command)]
    assert not wrong


def test_every_script_that_is_named_exists():
    for script in re.findall(r"`(?:sudo )?((?:bench|tools)/\w+(?:\.py)?)", PAGE):
        assert (ROOT / script).exists(), script
