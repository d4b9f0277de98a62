"""Every layout, over shared memory and tcp, reports the numbers of one device: evaluation, parameters, exit code."""
import pytest
from conftest import ROOT

MLP, GPT = ROOT / "configs/mlp_tiny.toml", ROOT / "configs/gpt2_tiny.toml"
LAYOUTS = {
    "ddp": ["--nproc", 2],
    "zero 1": ["--nproc", 2, "--parallel.zero", 1],
    "zero 2": ["--nproc", 2, "--parallel.zero", 2],
    "zero 3": ["--nproc", 2, "--parallel.zero", 3],
    "tensor": ["--nproc", 2, "--parallel.tensor", 2],
    "tensor x data": ["--nproc", 4, "--parallel.tensor", 2],
    "tensor x zero 3": ["--nproc", 4, "--parallel.tensor", 2, "--parallel.zero", 3],
    "pipeline": ["--nproc", 2, "--parallel.pipeline", 2],
    "pipeline x tensor": ["--nproc", 4, "--parallel.pipeline", 2, "--parallel.tensor", 2],
    "pipeline x zero 1": ["--nproc", 4, "--parallel.pipeline", 2, "--parallel.zero", 1],
    "pipeline x zero 3": ["--nproc", 4, "--parallel.pipeline", 2, "--parallel.zero", 3],
    "pipeline x tensor x zero 3": ["--nproc", 8, "--parallel.pipeline", 2, "--parallel.tensor", 2, "--parallel.zero", 3],
}


def train(yoke, tmp_path, recipe, *words):
    """Nothing is learned: every layout evaluates the same parameters."""
    return yoke("train", recipe, "--steps", 1, "--train.lr", 0, "--train.threads", 1, "--data.batch_size", 8, "--checkpoint.every_steps", 0,
                "--out.dir", tmp_path, "--no-out.report", "--json", "-q", *words).json


ONE_DEVICE = {}


@pytest.mark.parametrize("recipe, backend", [(MLP, "shm"), (GPT, "tcp")], ids=["mlp over shm", "gpt2 over tcp"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_evaluation_and_parameters(yoke, tmp_path, recipe, backend, layout):
    one = ONE_DEVICE.get(recipe) or train(yoke, tmp_path / "one", recipe)
    ONE_DEVICE[recipe] = one
    got = train(yoke, tmp_path / "many", recipe, *LAYOUTS[layout], "--parallel.backend", backend)
    assert got["eval_loss"] == pytest.approx(one["eval_loss"], rel=1e-5)
    assert got.get("accuracy") == pytest.approx(one.get("accuracy"), abs=1e-9)
    assert [got[key] for key in ("parameter_hash", "parameters")] == [one[key] for key in ("parameter_hash", "parameters")]
