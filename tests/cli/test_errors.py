"""What goes wrong for users, and what they are told: text and exit code of each."""
import os
import pathlib
import resource
import stat

import pytest

TINY = "configs/mlp_tiny.toml"


def config(tmp_path, text):
    path = tmp_path / "c.toml"
    path.write_text(text)
    return path


def fails(yoke, *words, code=2, says=(), **options):
    result = yoke(*words, code=code, **options)
    assert result.out == ""
    for text in says:
        assert text in result.err, result.err
    assert "Traceback" not in result.err and "terminate called" not in result.err
    assert len(result.err.strip().splitlines()) <= 4, result.err
    return result


COMMAND_LINE = [
    (["frobnicate"], ["--help"]),
    ([], ["--help"]),
    (["train"], ["FILE is required"]),
    (["train", "no_such.toml"], ["no_such.toml: no such configuration file"]),
    (["train", "configs/lenet_fashon.toml"], ["Did you mean configs/lenet_fashion.toml?"]),
    (["train", "lenet_fashion"], ["Did you mean configs/lenet_fashion.toml?"]),
    (["train", TINY, "--train.lerning_rate", "1"], ["--train.lerning_rate: unknown key", "Did you mean `train.lr`?"]),
    (["train", TINY, "--train.frobnicate", "1"], ["unknown key", "yoke config keys"]),
    (["train", TINY, "--train.lrr", "1"], ["Did you mean `train.lr`?"]),
    (["train", TINY, "--train.lr", "fast"], ["--train.lr: train.lr = \"fast\": expected a number of at least 0"]),
    (["train", TINY, "--train.lr"], ["--train.lr needs a value"]),
    (["train", TINY, "--set", "train.lr"], ["--set section.key=value"]),
    (["train", TINY, "--train.optimizer", "adam"], ["one of sgd, adamw, adagrad, ftrl, proximal, lbfgs", "did you mean adamw?"]),
    (["train", TINY, "--data.batch_size", "0"], ["an integer of at least 1"]),
    (["train", TINY, "--train.precision", "fp8"], ["one of fp32, tf32, bf16, fp16"]),
    (["train", TINY, "--train.precision", "tf32"], ["tf32 is a mode of NVIDIA GPUs"]),
    (["train", TINY, "--train.recompute", "budget:lots"], ["budget:512MB"]),
    (["train", TINY, "--device", "tpu"], ["cpu, cuda or cuda:N"]),
    (["train", TINY, "--nosuch"], ["--nosuch", "--help"]),
    (["train", TINY, "--train.nesterov", "--train.momentum", "0"], ["Nesterov needs a momentum"]),
    (["train", TINY, "--train.epochs", "0", "--train.steps", "0"], ["nothing to do"]),
    (["model", "info", "lenett"], ["one of lenet", "did you mean lenet?"]),
    (["model", "info", "vgg16", "--model.layers", "3"], ["model.layers"]),
    (["model", "info", "gpt2", "--model.width", "100", "--model.heads", "7"], ["heads"]),
    (["bench", "step", "--model", "nope"], ["--model: model.name"]),
    (["bench", "step", "--model", "lenet", "--precision", "int3"], ["--precision: train.precision"]),
    (["bench", "step", "--model", "lenet", "--steps", "0"], ["--steps"]),
    (["report", "no/such/run"], ["no/such/run"]),
    (["report", "configs", "--train.lr", "1"], ["takes no configuration keys"]),
    (["ckpt", "ls", "no/such/run"], ["no/such/run"]),
    # What would have no effect, before anything starts.
    (["train", TINY, "--ps.policy", "k_async"], ["ps.policy", "need parallel.sync = \"ps\""]),
    (["train", TINY, "--nproc", "2", "--pipeline.microbatches", "4"], ["pipeline.microbatches", "parallel.pipeline = 1"]),
    (["train", TINY, "--parallel.zero", "1"], ["parallel.zero", "--nproc N"]),
    (["train", TINY, "--nproc", "2", "--parallel.sync", "ps", "--train.sync_batchnorm"], ["train.sync_batchnorm"]),
    (["train", TINY, "--slowdown.law", "exp:5"], ["'5' has no unit"]),
    (["train", TINY, "--steps", "5", "--train.steps", "6"], ["--steps 5 and --train.steps 6"]),
    (["train", "configs/vgg_small.toml", "--train.epochs", "3"], ["train.steps = 30", "overrides it"]),
    (["train", TINY, "--nproc", "2", "--parallel.sync", "threads", "--parallel.data", "4"], ["--nproc 2 with parallel.data = 4"]),
    (["bench", "ps", "--policy", "async", "--workers", "2", "--delay", "exp:5"], ["'5' has no unit"]),
    (["bench", "ps", "--throughput", "--policy", "async"], ["--policy has no effect", "--throughput"]),
    (["bench", "collectives", "--backend", "mpi", "--algorithm", "ring"], ["--algorithm has no effect"]),
    (["simulate", "--schedule", "gpipe", "--chunks", "2"], ["--chunks has no effect"]),
    (["eval", TINY, "--init", "w", "--outputs", "o"], ["--outputs has no effect", "--inputs"]),
    (["model", "info", "lenet", "--train.lr", "1"], ["does not use train.lr"]),
    (["verify", TINY, "--layouts", "data=2", "--tolerance", "inf"], ["--tolerance: inf is not a number of at least 0"]),
]


@pytest.mark.parametrize("words,says", COMMAND_LINE, ids=[" ".join(words) or "nothing" for words, _ in COMMAND_LINE])
def test_command_line_mistakes(yoke, tmp_path, words, says):
    if words[:1] == ["train"] and len(words) > 2:
        words = words + ["--out.dir", str(tmp_path / "run")]
    fails(yoke, *words, says=says)


FILES = [
    ("[train\n", ["c.toml:1", "not valid TOML"]),
    ("[train]\nlr = 1\nlr = 2\n", ["c.toml:3", "not valid TOML"]),
    ("[trian]\nlr = 1\n", ["c.toml:2", "Did you mean `train.lr`?"]),
    ("[train]\nsteps = \"ten\"\n", ["c.toml:2", "train.steps = \"ten\"", "integer"]),
    ("[train]\nsteps = 1.5\n", ["c.toml:2", "integer"]),
    ("lr = 3\n", ["c.toml:1", "unknown key `lr`"]),
    ("[model]\nsizes = [784, \"x\"]\n", ["c.toml:2", "integers"]),
]


@pytest.mark.parametrize("text,says", FILES, ids=[repr(text) for text, _ in FILES])
def test_mistakes_in_the_file(yoke, tmp_path, text, says):
    fails(yoke, "train", config(tmp_path, text), says=says)


def test_mistakes_in_the_environment(yoke, tmp_path):
    fails(yoke, "train", TINY, env={"YOKE_TRAIN__LR": "high"}, says=["YOKE_TRAIN__LR: train.lr"])
    fails(yoke, "train", TINY, env={"YOKE_TRAIN__LRR": "1"}, says=["YOKE_TRAIN__LRR: unknown key", "train.lr"])


def test_configuration_mistakes_cost_no_libtorch(yoke, tmp_path):
    result = yoke("train", TINY, "--train.lr", "fast", code=2, env={"LD_DEBUG": "files"})
    assert "libtorch" not in result.err


def test_a_model_that_does_not_fit_the_data(yoke, tmp_path):
    fails(yoke, "train", "configs/lenet_fashion.toml", "--model.name", "vgg_small", "--out.dir", tmp_path / "r",
          says=["image 3x32x32", "image 1x28x28"])


def test_an_impossible_batch(yoke, tmp_path):
    fails(yoke, "train", TINY, "--data.samples", "10", "--data.batch_size", "64", "--out.dir", tmp_path / "r",
          says=["64", "10", "data.batch_size"])


def test_missing_data_names_the_places(yoke, tmp_path):
    fails(yoke, "train", "configs/lenet_fashion.toml", "--data.dir", tmp_path / "empty", "--out.dir", tmp_path / "r",
          says=["train-images-idx3-ubyte", str(tmp_path / "empty")])


def test_truncated_data_names_file_and_offset(yoke, tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (tmp_path / "d" / name).write_bytes(b"\x00\x00\x08\x03\x00\x00")
    fails(yoke, "train", "configs/lenet_fashion.toml", "--data.dir", tmp_path / "d", "--out.dir", tmp_path / "r",
          says=["train-images-idx3-ubyte", "byte 6"])


def test_what_is_wrong_for_all_ranks_is_told_once(yoke, tmp_path):
    words = ["train", TINY, "--nproc", "2", "--data.samples", "1", "--out.dir", tmp_path / "r", "-q"]
    says = "data.batch_size = 32 with 2 replicas needs 64 samples"
    result = fails(yoke, *words, says=[says])
    assert len(result.err.strip().splitlines()) == 1, result.err
    result = yoke(*words, "--json", code=2)
    assert says in result.json["error"] and len(result.err.strip().splitlines()) == 1, result.err


def test_cuda_without_cuda(yoke, tmp_path):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    fails(yoke, "train", TINY, "--device", "cuda", "--out.dir", tmp_path / "r", says=["cuda"])


def test_weights_of_another_model(yoke, tmp_path):
    yoke("model", "export", "lenet", "-o", tmp_path / "lenet.safetensors")
    fails(yoke, "train", TINY, "--init", tmp_path / "lenet.safetensors", "--out.dir", tmp_path / "r", code=5,
          says=["lenet.safetensors"])


def test_weights_that_are_no_safetensors(yoke, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"PK\x03\x04 a pickle, perhaps")
    fails(yoke, "train", TINY, "--init", tmp_path / "w.safetensors", "--out.dir", tmp_path / "r", code=2,
          says=["w.safetensors"])
    fails(yoke, "train", TINY, "--init", tmp_path / "none.safetensors", "--out.dir", tmp_path / "r", code=2,
          says=["none.safetensors"])


def test_a_checkpoint_of_another_model(yoke, tmp_path):
    yoke("train", TINY, "--steps", "4", "--out.dir", tmp_path / "r", "-q")
    fails(yoke, "train", TINY, "--steps", "8", "--model.sizes", "784,32,10", "--out.dir", tmp_path / "r", code=5,
          says=["layers.0.weight"])


def test_no_good_checkpoint_left(yoke, tmp_path):
    yoke("train", TINY, "--steps", "4", "--checkpoint.every_steps", "2", "--out.dir", tmp_path / "r", "-q")
    for path in (tmp_path / "r/checkpoints").rglob("*.safetensors"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    result = yoke("train", TINY, "--steps", "8", "--out.dir", tmp_path / "r", code=5)
    assert "step-4" in result.err
    assert yoke("ckpt", "verify", tmp_path / "r", "--json", code=5).json["ok"] is False


def test_nan_names_step_and_parameter(yoke, tmp_path):
    result = fails(yoke, "train", TINY, "--train.lr", "1e30", "--steps", "50", "--out.dir", tmp_path / "r", "-q",
                   says=["step ", "not finite", "train.lr", "layers."])
    assert yoke("ckpt", "ls", tmp_path / "r", code=None).code in (0, 5)
    skipped = yoke("train", TINY, "--train.lr", "1e30", "--steps", "50", "--train.non_finite", "skip",
                   "--out.dir", tmp_path / "s", "-q")
    assert "skipped" in skipped.err


def test_a_full_disk_loses_nothing(yoke, tmp_path):
    run = tmp_path / "r"
    yoke("train", TINY, "--steps", "4", "--checkpoint.every_steps", "2", "--out.dir", run, "-q")
    limit = 9_000  # bytes a file may have: less than a checkpoint

    def small_files():
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    failed = yoke("train", TINY, "--steps", "8", "--checkpoint.every_steps", "2", "--out.dir", run, "-q", code=5, preexec_fn=small_files)
    assert "the newest state (step 8) could not be saved" in failed.err
    assert yoke("ckpt", "verify", run, "--json").json["ok"] is True
    assert yoke("train", TINY, "--steps", "8", "--out.dir", run, "-q", "--json").json["resumed_from"] == 4


def test_an_unwritable_folder(yoke, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    fails(yoke, "train", TINY, "--out.dir", tmp_path / "file" / "run", says=["out.dir", "--out.dir"])


def test_json_errors_are_one_document(yoke):
    result = yoke("train", "no.toml", "--json", code=2)
    assert result.json["exit_code"] == 2 and "no.toml" in result.json["error"]


@pytest.mark.parametrize("steps", ["-3", "0", "x"])
def test_a_number_that_must_be_positive_says_so(yoke, steps):
    assert f"--steps: {steps} is not a number above 0" in yoke("bench", "step", "--model", "lenet", "--steps", steps, code=2).err
