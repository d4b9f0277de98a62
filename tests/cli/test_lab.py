"""`yoke lab`: the list, the frame that all labs share, and theory beside what they simulate."""
import csv
import json
import math
import re
import signal
import subprocess
import xml.etree.ElementTree as xml

import pytest
from conftest import ROOT, YOKE

MLP = ROOT / "configs/mlp_tiny.toml"
QUICK = ["averaging", "batch", "collectives", "compare", "downpour", "memory", "pipeline", "precision", "scaling", "sparse", "staleness", "stall", "stragglers", "throughput", "topology"]


def test_the_list_names_every_lab_with_a_question_and_a_time(yoke):
    labs = yoke("lab", "--json").json["labs"]
    assert [lab["name"] for lab in labs] == sorted(QUICK)
    assert all(lab["question"].endswith("?") and lab["time"] and lab["example"].startswith("yoke lab " + lab["name"]) for lab in labs)
    text = yoke("lab").out
    page = (ROOT / "docs/lab/README.md").read_text().splitlines()
    for lab in labs:
        assert lab["question"] in text and lab["time"] in text
        assert (ROOT / f"docs/lab/{lab['name']}.md").exists()
        row = next(line for line in page if line.startswith(f"| [{lab['name']}]("))
        assert row.endswith(f"| {lab['time']} |"), "docs/lab/README.md tells another time"
        assert "--quick" in yoke("lab", lab["name"], "--help").out


@pytest.mark.parametrize("name", QUICK)
def test_quick_writes_a_page_figures_and_results(yoke, tmp_path, name):
    result = yoke("lab", name, "--quick", "-o", tmp_path, "--json")
    assert result.json == json.loads((tmp_path / "results.json").read_text())
    assert result.json["quick"] and result.json["results"] and "failed" not in result.json and result.json["seconds"] > 0
    rows = list(csv.DictReader((tmp_path / "results.csv").open()))
    assert rows and all(None not in row for row in rows)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page and "prefers-color-scheme: dark" in page and "nan" not in page.split("</style>")[-1]
    figures = list(tmp_path.glob("*.svg"))
    assert len(figures) == page.count("<figure") >= 2
    for figure in figures:
        assert xml.parse(figure).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert f"lab {name} " in result.err or f"lab {name}:" in result.err  # progress


def test_pipeline_equals_the_formulas(yoke, tmp_path):
    rows = yoke("lab", "pipeline", "--stages", 4, "--microbatches", 8, "--up-to", 8, "--epochs", 0, "-o", tmp_path, "--json", "-q").json["results"]
    found = {row["schedule"]: row for row in rows}
    for name in ("gpipe", "1f1b", "interleaved", "zb-h1", "naive"):
        assert found[name]["bubble_fraction"] == pytest.approx(found[name]["bubble_fraction_theory"]), name
    assert found["1f1b"]["bubble_fraction"] == pytest.approx(3 / 11)
    assert found["pipedream"]["versions"] == 4 and found["2bw"]["versions"] == 2
    # The versions of PipeDream's weights are drawn: it differs from 1f1b.
    assert ">v3<" in (tmp_path / "timeline_pipedream.svg").read_text()
    assert ">v1<" not in (tmp_path / "timeline_1f1b.svg").read_text()


def test_pipelines_pass_data_parallel_training_on_slow_links(yoke, tmp_path):
    words = ["lab", "pipeline", "--stages", 2, "--up-to", 2, "--epochs", 1, "--json", "-q"]
    found = yoke(*words, "-o", tmp_path).json
    rows = {row["method"]: row for row in found["accuracy"]}
    assert list(rows) == ["bsp", "gpipe", "1f1b", "pipedream", "2bw"]
    # The same updates: the same accuracy, whatever the schedule.
    for name in ("gpipe", "1f1b"):
        assert rows[name]["accuracy"] == pytest.approx(rows["bsp"]["accuracy"], abs=0.05), name
    assert rows["pipedream"]["updates_per_round"] == 2 and rows["2bw"]["updates_per_round"] == 1
    assert rows["pipedream"]["round_seconds"] == rows["2bw"]["round_seconds"] < rows["1f1b"]["round_seconds"] < rows["bsp"]["round_seconds"]
    fast = yoke(*words, "--methods", "bsp,1f1b,2bw", "--bandwidth", "100gbit", "--latency", "0ms", "-o", tmp_path / "fast").json
    bsp, flushed, streamed = (row["round_seconds"] for row in fast["accuracy"])
    assert flushed == pytest.approx(3 * 0.03, rel=0.01) and bsp < flushed  # the bubble is all that differs
    assert streamed == pytest.approx(2 * 0.03, rel=0.1)  # both stages compute all the time


def test_staleness_equals_the_laws(yoke, tmp_path):
    found = yoke("lab", "staleness", "--updates", 20000, "--up-to", 2, "-o", tmp_path, "--json", "-q").json
    for row in found["results"]:
        if "mean_theory" in row:
            assert row["mean"] == pytest.approx(row["mean_theory"], rel=0.02), row["policy"]
        if "fresh_theory" in row:
            assert row["fresh"] == pytest.approx(row["fresh_theory"], abs=0.02), row["policy"]
    assert found["one_worker"]["loss"] == pytest.approx(found["one_worker"]["theory"], rel=0.1)


    # The staler the gradients, the higher the floor; mean staleness of P asynchronous workers is P - 1.
    stale = yoke("lab", "staleness", "--updates", 20000, "--up-to", 8, "-o", tmp_path / "stale", "--json", "-q").json["loss_by_staleness"]
    for lr in (0.05, 0.1, 0.2):
        rows = [row for row in stale if row["lr"] == lr]
        assert [row["staleness"] for row in rows] == pytest.approx([1, 3, 7], rel=0.05)
        assert rows[0]["loss"] < rows[-1]["loss"]
    assert (tmp_path / "stale/loss_staleness.svg").exists()
def test_stragglers_show_the_floor_against_k(yoke, tmp_path):
    rows = yoke("lab", "stragglers", "--policies", "k_sync,k_batch_async", "--workers", 8, "-o", tmp_path, "--json", "-q").json["results"]
    sync = {row["k"]: row for row in rows if row["policy"] == "k_sync"}
    for k, row in sync.items():
        assert row["loss_floor"] == pytest.approx(0.1 / (2 * k * 1.9), rel=0.05)
        expected = 0.01 * sum(1 / (8 - i) for i in range(k))
        assert row["seconds_per_update"] == pytest.approx(expected, rel=0.05)
    loose = {row["k"]: row for row in rows if row["policy"] == "k_batch_async"}
    assert loose[1]["loss_floor"] > 4 * loose[8]["loss_floor"]
    assert loose[4]["staleness_mean"] == pytest.approx(7 / 4, rel=0.02)


def test_a_part_that_fails_is_named_and_the_others_run(yoke, tmp_path):
    island = tmp_path / "island.toml"
    island.write_text('[cluster]\nname = "island"\n[[machine]]\nname = "m"\n[[device]]\nname = "a"\nmachine = "m"\nkind = "gpu"\n'
                      '[[device]]\nname = "b"\nmachine = "m"\nkind = "gpu"\n')
    result = yoke("lab", "topology", "--presets", "pcie4", "--file", island, "-o", tmp_path / "lab", "--json", code=2)
    assert [row["machine"] for row in result.json["results"]] == ["pcie4"]
    assert len(result.json["failed"]) == 1 and result.json["failed"][0].startswith("island: ")
    assert "island: " in (tmp_path / "lab/report.html").read_text() and "island: " in result.err


def test_an_interrupted_lab_writes_what_it_has_and_names_the_rest(tmp_path):
    words = [YOKE, "lab", "sparse", "--examples", 20000, "--keys", 20000, "--passes", 8, "--workers", 2, "--max-delay", "0,1,2,4,8", "-o", tmp_path]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    while "1 of" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    failed = json.loads((tmp_path / "results.json").read_text())["failed"]
    assert failed and all("interrupted" in part for part in failed)
    assert "interrupted" in (tmp_path / "report.html").read_text()


def test_memory_falls_with_recomputation_and_with_each_zero_stage(yoke, tmp_path):
    found = yoke("lab", "memory", "--quick", "--recompute", "none,blocks", "--layers", 6, "-o", tmp_path, "--json", "-q").json
    none, blocks = found["results"]
    assert (none["recompute"], blocks["recompute"]) == ("none", "blocks")
    assert blocks["activation_bytes"] < none["activation_bytes"] and blocks["recomputed_blocks"] > 0 == none["recomputed_blocks"]
    assert none["time_ratio"] == 1 and blocks["time_ratio_low"] <= blocks["time_ratio"] <= blocks["time_ratio_high"]
    assert none["time_ratio_theory"] == 1 < blocks["time_ratio_theory"] < 4 / 3
    for row in found["results"]:  # the pass in the order of time
        times = [seconds for seconds, _ in row["memory_seconds"]]
        assert times == sorted(times) and max(held for _, held in row["memory_seconds"]) == row["activation_bytes"]
    for row in found["results"]:  # what the formula counts is a part of what is measured
        assert row["activation_bytes_theory"] <= row["activation_bytes"] and len(row["memory"]) > 20
    stages = {row["stage"]: row for row in found["zero"]}
    assert sorted(stages) == [0, 1, 2, 3]
    assert stages[1]["optimizer"] == pytest.approx(stages[0]["optimizer"] / 2, rel=0.05)
    assert stages[2]["gradients"] < 0.7 * stages[0]["gradients"]
    assert stages[3]["parameters"] < 0.7 * stages[0]["parameters"]
    bars = (tmp_path / "zero.svg").read_text()
    assert all(part in bars for part in ("parameters", "gradients", "optimizer", "activations"))


def test_stall_equals_the_formula_on_two_devices(yoke, tmp_path):
    rows = yoke("lab", "stall", "--quick", "--models", "vgg16", "--measured", "none", "-o", tmp_path, "--json", "-q").json["results"]
    for device, peak in (("V100", 125e12), ("H100", 989e12)):
        row = next(row for row in rows if row["device"] == device and row["machines"] == 2)
        compute, all_reduce = 3 * 31e9 * 64 / (0.4 * peak), row["all_reduce_seconds"]
        assert row["compute_seconds"] == pytest.approx(compute)
        # 25 MB travel after backward, which is two thirds of the computation.
        exposed = max(all_reduce * 25e6 / row["gradient_bytes"], all_reduce - 2 / 3 * compute)
        assert row["stall"] == pytest.approx(exposed / (compute + exposed))
        assert row["stall_without_overlap"] == pytest.approx(all_reduce / (compute + all_reduce))


def test_precision_counts_what_fp16_loses(yoke, tmp_path):
    found = yoke("lab", "precision", "--quick", "--precisions", "fp32", "--scale-steps", 0, "-o", tmp_path, "--json", "-q").json
    sizes = found["gradients"]
    exponents = {sizes["lowest_exponent"] + i: count for i, count in enumerate(sizes["counts"])}
    for row in found["fp16"]:
        scale = math.log2(row["loss_scale"])
        lost = sum(count for exponent, count in exponents.items() if exponent + scale < -25)
        infinite = sum(count for exponent, count in exponents.items() if exponent + scale >= 16)
        assert row["underflow"] == pytest.approx(lost / sum(exponents.values()))
        assert row["overflow"] == pytest.approx(infinite / sum(exponents.values()))


def test_throughput_compares_with_the_roofline(yoke, tmp_path):
    found = yoke("lab", "throughput", "--quick", "--models", "mlp", "--batches", "1,8,64", "-o", tmp_path, "--json", "-q").json
    assert [row["batch"] for row in found["results"]] == [1, 8, 64]
    for row in found["results"]:
        assert row["samples_per_s"] > 0 and row["knee_batch"] in (1, 8, 64) and row["largest_batch"] > 64
        # mlp: 784 x 256 x 10, forward and backward; weights are read, so the intensity grows with the batch
        assert row["roofline_samples_per_s"] > 0
    small, large = found["results"][0], found["results"][-1]
    assert large["intensity"] > 5 * small["intensity"]
    speed = {row["device"]: row["samples_per_s"] for row in found["predictions"]}
    assert speed["K80"] < speed["P100"] < speed["V100"] < speed["A100"] < speed["H100"] <= speed["H200"]
def test_scaling_divides_the_time_of_a_step(yoke, tmp_path):
    found = yoke("lab", "scaling", "--quick", "--ways", "ddp,zero2,pipeline,tensor", "-o", tmp_path, "--json", "-q").json
    rows = {(row["way"], row["scaling"]): row for row in found["results"]}
    # A pipeline with the batch of one worker is strong scaling, as with every way.
    assert set(rows) == {("one worker", "weak"), *((way, kind) for way in ("ddp", "zero2", "pipeline", "tensor") for kind in ("weak", "strong"))}
    for (way, kind), row in rows.items():
        parts = [row[key] for key in ("compute_seconds", "exposed_comm_seconds", "waiting_seconds", "undivided_seconds")]
        assert sum(parts) == pytest.approx(row["step_seconds"]) and min(parts) >= 0
        assert row["efficiency"] == pytest.approx(row["speed_up"] / row["workers"])
        samples = 64 if kind == "weak" and way != "one worker" else 32
        assert row["samples_per_s"] == pytest.approx(samples / row["step_seconds"])
    for kind in ("weak", "strong"):
        staged, sliced = rows["pipeline", kind], rows["tensor", kind]
        # Stages wait for each other: not all of a step is computing, and what they wait is not called communication.
        assert 0 < staged["compute_seconds"] < staged["step_seconds"] and staged["waiting_seconds"] > 0 == staged["exposed_comm_seconds"]
        assert sliced["undivided_seconds"] == sliced["step_seconds"]
    assert "pipeline" in (tmp_path / "strong.svg").read_text()
    assert "pipeline" in (tmp_path / "efficiency_strong.svg").read_text()


def test_scaling_takes_all_ways_that_suit_the_model(yoke, tmp_path):
    result = yoke("lab", "scaling", "--quick", "--ways", "all", "--model", "lenet", "--nproc", "2", "--steps", "1", "-o", tmp_path, "--json")
    ways = {row["way"] for row in result.json["results"]}
    assert ways == {"one worker", "ddp", "zero1", "zero2", "zero3", "ps", "pipeline", "tensor"}


def test_batch_tells_divergence_from_other_failures(yoke, tmp_path):
    words = ["lab", "batch", "--quick", "--batches", "8", "--factors", "1", "--json"]
    steep = yoke(*words, "--lr", "1e6", "-o", tmp_path / "steep").json
    assert "failed" not in steep and all(row["diverged"] for row in steep["results"])
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[model]\nname = "gpt2"\n[data]\nname = "tokens"\ndir = "{tmp_path}/none.bin"\n[train]\noptimizer = "sgd"\nmomentum = 0.0\n')
    missing = yoke(*words, "--file", recipe, "-o", tmp_path / "missing", code=2)
    assert "none.bin" in missing.err and "not finite" not in missing.err
    assert not (tmp_path / "missing/report.html").exists()


def test_bandwidths_are_in_the_picture(yoke, tmp_path):
    yoke("lab", "topology", "--presets", "dgx1", "-o", tmp_path, "-q")
    words = re.sub(r"<title>.*?</title>", "", (tmp_path / "links_dgx1.svg").read_text())  # seen without a pointer
    assert re.search(r"nvlink 25.* GB/s", words) and re.search(r"pcie [\d.]+ GB/s", words)


@pytest.mark.parametrize("words,expected", [
    (["memory", "--model", "lenet", "--layers", "3"], "only gpt2 has it"),
    (["memory", "--recompute", "most"], "most"),
    (["memory", "--budgets", "2"], "--budgets 2"),
    (["throughput", "--models", "lennet"], "lennet"),
    (["throughput", "--largest", "guessed"], "--largest guessed"),
    (["throughput", "--precisions", "fp8"], "fp8"),
    (["pipeline", "--stages", "1"], "--stages 1: expected an integer from 2 to 64"),
    (["pipeline", "--forward", "soon"], "--forward soon"),
    (["pipeline", "--methods", "bsp,pipedreams"], "--methods pipedreams: unknown"),
    (["staleness", "--delay", "none"], "--delay none"),
    (["staleness", "--k", "99"], "--k 99"),
    (["collectives", "--op", "barrier"], "barrier"),
    (["collectives", "--bytes", "many"], "--bytes many"),
    (["collectives", "--ring", "pcie9"], "pcie9"),
    (["compare", "--seeds", "0"], "--seeds 0"),
    (["topology", "--presets", "dgx9"], "dgx9"),
    (["stragglers", "--train.lr", "0.1"], "nothing is trained"),
    (["stragglers", "--trained", MLP], "--trained"),
    (["stragglers", "--workers", "0"], "--workers 0"),
    (["scaling", "--ways", "ddp,zero4"], "--ways zero4: unknown"),
    (["pipelines"], "Did you mean `yoke lab pipeline`?"),
])
def test_wrong_requests_are_refused(yoke, tmp_path, words, expected):
    assert expected in yoke("lab", *words, *([] if words == ["pipelines"] else ["-o", tmp_path]), code=2).err


def test_collectives_measure_several_numbers_of_ranks_and_draw_a_ring_on_a_machine(yoke, tmp_path):
    found = yoke("lab", "collectives", "--quick", "--nproc", "3,2", "--bytes", "1K,4K", "--ring", "p2.16xlarge", "-o", tmp_path, "--json", "-q").json
    assert {row["ranks"] for row in found["results"]} == {2, 3} and all(row["correct"] for row in found["results"])
    assert [fit["ranks"] for fit in found["fits"]] == [2, 3] and all(fit["alpha"] > 0 for fit in found["fits"])
    for name in ("measured_2", "measured_3", "measured_ranks"):
        assert "ring" in (tmp_path / f"{name}.svg").read_text()
    drawn = (tmp_path / "ring_p2.16xlarge.svg").read_text()
    assert drawn.count("step ") == 14 and "step 30 of 30: pass on" in drawn and "rank 15, part 0: 16 of 16 ranks" in drawn


def test_compare_tells_the_spread_of_its_runs(yoke, tmp_path):
    words = ["lab", "compare", "--quick", "--methods", "one,ddp", "--compute", "5ms", "--target-accuracy", "0.3", "--epochs", "4", "--json", "-q"]
    found = yoke(*words, "--seeds", 3, "-o", tmp_path).json["results"]
    for row in found:
        assert row["runs"] == 3 and row["reached"] >= 2, row["method"]
        assert row["seconds_to_target_low"] <= row["seconds_to_target"] <= row["seconds_to_target_high"]
    page = (tmp_path / "report.html").read_text()
    assert "the median of 3 runs" in page and "3 of 3" in page
    assert sorted(folder.name for folder in tmp_path.glob("ddp*") if folder.is_dir()) == ["ddp_seed1", "ddp_seed2", "ddp_seed3"]
    yoke(*words, "-o", tmp_path / "one")
    assert "--seeds 3 tells how much" in (tmp_path / "one/report.html").read_text()


def test_who_sends_nothing_is_in_the_answer(yoke, tmp_path):
    rows = yoke("lab", "compare", "--quick", "--methods", "one,ddp", "--target-accuracy", "0.01", "-o", tmp_path, "--json", "-q").json["results"]
    assert {row["method"]: row["bytes_to_target"] > 0 for row in rows} == {"one": False, "ddp": True}
    answer = (tmp_path / "answer.svg").read_text()
    assert "one: sends nothing" in answer and "ddp" in answer
