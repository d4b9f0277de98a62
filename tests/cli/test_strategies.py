"""Every recipe of configs/strategies trains a few steps with the command in its first lines."""
import os
import re
import subprocess
import tomllib

import pytest
from conftest import ROOT, YOKE

RECIPES = sorted((ROOT / "configs/strategies").glob("*.toml"))
SMALL = {"YOKE_TRAIN__STEPS": "3", "YOKE_TRAIN__EVALUATE": "false", "YOKE_DATA__BATCH_SIZE": "8", "YOKE_TRAIN__THREADS": "1"}


def command_of(path):
    return re.search(rf"^#   (yoke .*configs/strategies/{path.name}\b.*)$", path.read_text(), re.MULTILINE).group(1)


@pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])
def test_a_recipe_trains(path, tmp_path, cache_folder):
    command = command_of(path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "runs").mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")} | SMALL
    environment |= {"PATH": f"{YOKE.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache_folder)}
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    folder = tomllib.loads(path.read_text())["out"]["dir"]
    assert (tmp_path / folder / "summary.json").exists()


def test_every_way_to_keep_replicas_equal_has_a_recipe():
    text = "\n".join(path.read_text() for path in RECIPES)
    for value in ('sync = "ps"', 'sync = "average"', 'sync = "hybrid"', "zero = ", "tensor = ", "pipeline = ", 'split = "speed"',
                  "[elastic]", "[collab]", "n_push", 'optimizer = "lbfgs"', "partition = ", "sparse = "):
        assert value in text, value
    page = (ROOT / "docs/methods/README.md").read_text()
    for path in RECIPES:
        assert f"configs/strategies/{path.name}" in page, f"docs/methods/README.md does not list {path.name}"
