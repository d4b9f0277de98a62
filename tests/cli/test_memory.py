"""Memory: budgets that are kept, and what is said when there is not enough."""
import re
import resource

GPT = ["--model", "gpt2", "--model.layers", "8", "--model.heads", "2", "--model.width", "64", "--model.vocabulary", "256",
       "--model.positions", "64", "--batch", "64", "--steps", "1", "--threads", "1"]
# Nearly all of its memory is one activation, so that nothing is computed before it is missed.
WIDE = ["configs/mlp_tiny.toml", "--model.sizes", "32,20000,10", "--data.batch_size", "25000", "--data.samples", "25000",
        "--no-train.evaluate"]


def limited(gigabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes * 1e9), int(gigabytes * 1e9)))


def one_line_of_advice(err):
    lines = [line for line in err.splitlines() if "out of memory" in line]
    assert lines, err
    assert "Exception raised" not in err and "allocator" not in err.lower(), err
    return lines


def test_a_recomputation_budget_is_the_peak_memory_of_the_process(yoke):
    def peak(recompute):
        return yoke("bench", "step", *GPT, "--recompute", recompute, "--json").json["results"][0]["peak_memory_bytes"]

    whole, least = peak("none"), peak("blocks")
    budget = (whole + least) // 2
    assert least < 0.9 * budget
    kept = peak(f"budget:{budget}")
    assert kept <= 1.05 * budget
    assert kept > 0.9 * least  # and it is used
    refused = yoke("bench", "step", *GPT, "--recompute", "budget:10MB", code=2)
    assert re.search(r"needs at least .* Hint: budget:\d+MB", refused.err), refused.err


def test_a_budget_for_a_pipeline_is_refused_before_anything_starts(yoke):
    result = yoke("train", "configs/gpt2_tiny.toml", "--nproc", "2", "--parallel.pipeline", "2", "--train.recompute",
                  "budget:1GB", code=2)
    assert "pipeline" in result.err and "blocks or sqrt" in result.err
    assert "rank" not in result.err


def test_a_step_without_memory_says_what_takes_it_and_which_batch_fits(yoke, tmp_path):
    words = ["train", *WIDE, "--out.dir", tmp_path, "--steps", "1", "--train.threads", "1"]
    result = yoke(*words, code=2, preexec_fn=limited(1.6))
    (line,) = one_line_of_advice(result.err)
    for part in ("in step 1", "allocation of", "are free", "Weights take", "gradients", "optimizer state", "per sample"):
        assert part in line, line
    batch = int(re.search(r"data.batch_size = (\d+) should fit", line)[1])
    assert 500 < batch < 25000
    yoke(*words, "--data.batch_size", batch, preexec_fn=limited(1.6))


def test_a_model_without_memory_is_no_internal_error(yoke, tmp_path):
    result = yoke("train", "configs/mlp_tiny.toml", "--model.sizes", "32,22000,22000,10", "--out.dir", tmp_path, code=2,
                  preexec_fn=limited(1.6))
    (line,) = one_line_of_advice(result.err)
    assert "while the model was made" in line and "model.*" in line


def test_other_ranks_end_with_the_reason_of_the_one_without_memory(yoke, tmp_path):
    # The first rank takes nearly all of the batch. (Shared memory would need more address space than there is.)
    result = yoke("train", *WIDE, "--data.batch_size", "12500", "--nproc", "2", "--parallel.split", "49:1", "--train.threads",
                  "1", "--parallel.backend", "tcp", "--out.dir", tmp_path, code=2, preexec_fn=limited(1.6))
    lines = one_line_of_advice(result.err)
    assert sum("[0]" in line for line in lines) <= 1, result.err
    assert any("rank 0" in line and "Weights take" in line for line in lines), result.err


def test_what_runs_out_elsewhere_is_no_internal_error_either(yoke, tmp_path):
    result = yoke("bench", "step", "--model", "mlp", "--model.sizes", "32,20000,10", "--batch", "25000", code=2,
                  preexec_fn=limited(1.6))
    assert "data.batch_size = " in one_line_of_advice(result.err)[0]


def test_the_largest_batch_that_fits_is_found_and_fits(yoke):
    words = ["bench", "step", "--model", "mlp", "--model.sizes", "32,20000,10", "--threads", "1", "--steps", "1", "--json"]
    (result,) = yoke(*words, "--largest-batch", preexec_fn=limited(0.8)).json["results"]
    batch = result["largest_batch"]
    assert result["batch"] == batch and batch > 100
    yoke(*words, "--batch", 2 * batch, code=2, preexec_fn=limited(0.8))
    both = yoke(*words, "--batch", 8, "--largest-batch", code=2)
    assert "--largest-batch" in both.err
