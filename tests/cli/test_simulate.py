"""yoke simulate: closed forms, plans, pictures, mistakes."""
import json
import xml.etree.ElementTree as xml

import pytest

SIMPLE = ["--forward", 1, "--backward", 2, "--json"]


def simulate(yoke, schedule, p, m, *words):
    return yoke("simulate", "--schedule", schedule, "--stages", p, "--microbatches", m, *words, *SIMPLE).json


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "pipedream"])
def test_closed_forms(yoke, schedule, m):
    run = simulate(yoke, schedule, 4, m)
    assert run["makespan"] == pytest.approx((m + 3) * 3)
    assert run["bubble_fraction"] == pytest.approx(3 / (m + 3))
    assert all(s["busy"] == pytest.approx(3 * m) and s["idle"] == pytest.approx(9) for s in run["stages"])


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b", "pipedream", "2bw", "interleaved", "zb-h1"])
def test_nothing_deadlocks(yoke, schedule, m):
    if schedule == "2bw" and m < 4:
        m += 4
    assert simulate(yoke, schedule, 4, m)["makespan"] >= 3 * m


def test_interleaved_and_zero_bubble(yoke):
    assert simulate(yoke, "interleaved", 4, 8, "--chunks", 2)["makespan"] == pytest.approx(28.5)
    assert simulate(yoke, "interleaved", 2, 4)["makespan"] == pytest.approx(13.5)  # two chunks, as in train
    run = simulate(yoke, "zb-h1", 4, 8, "--weight-backward", 1)
    assert run["makespan"] == pytest.approx(27)
    assert [s["peak_activations"] for s in run["stages"]] == [4, 4, 4, 4]


def test_memory(yoke):
    assert [s["peak_activations"] for s in simulate(yoke, "gpipe", 4, 8)["stages"]] == [8] * 4
    assert [s["peak_activations"] for s in simulate(yoke, "1f1b", 4, 8)["stages"]] == [4, 3, 2, 1]
    assert [s["versions"] for s in simulate(yoke, "pipedream", 4, 8)["stages"]] == [4, 3, 2, 1]
    assert [s["versions"] for s in simulate(yoke, "2bw", 4, 8)["stages"]] == [2] * 4
    assert [s["versions"] for s in simulate(yoke, "1f1b", 4, 8)["stages"]] == [1] * 4
    assert [s["versions"] for s in simulate(yoke, "pipedream", 3, 12, "--replicas", "2,1,1")["stages"]] == [2, 2, 1]


def test_times_of_each_stage_and_transfers(yoke):
    words = ["simulate", "--schedule", "1f1b", "--stages", 4, "--microbatches", 1, "--forward", "1,2,1,1", "--backward", "2,4,2,2",
             "--transfer", "500ms", "--json"]
    assert yoke(*words).json["makespan"] == pytest.approx(15 + 6 * 0.5)


def test_plans(yoke, tmp_path):
    profile, plan, svg, trace = (tmp_path / name for name in ("p.json", "plan.json", "t.svg", "t.json"))
    layers = [{"name": f"l{i}", "forward": 1, "backward": 2, "activation_bytes": 0.1, "parameter_bytes": w}
              for i, w in enumerate([1, 1, 1, 80])]
    profile.write_text(json.dumps({"layers": layers}))
    best = yoke("plan", "--profile", profile, "--devices", 4, "--bandwidth", 20, "-o", plan, "--json").json
    run = yoke("simulate", "--plan", plan, "--minibatches", 400, "--svg", svg, "--trace", trace, "--json").json
    assert run["makespan"] / 400 == pytest.approx(best["bottleneck_seconds"], rel=0.05)
    assert [s["versions"] for s in run["stages"]] == [s["versions"] for s in best["stages"]]
    assert xml.parse(svg).getroot().tag.endswith("svg")
    assert len([e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]) >= 800


def test_output_is_plain(yoke):
    out = yoke("simulate", "--schedule", "1f1b", "--stages", 4, "--microbatches", 8, "--forward", 1, "--backward", 2).out
    assert "27.3 % idle" in out and "\033" not in out


MISTAKES = [
    ([], ["--schedule or --plan"]),
    (["--schedule", "1f2b", "--stages", "2", "--microbatches", "2", *map(str, SIMPLE[:4])], ["naive gpipe 1f1b pipedream 2bw interleaved zb-h1"]),
    (["--schedule", "1f1b", "--microbatches", "2", *map(str, SIMPLE[:4])], ["--stages"]),
    (["--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--backward", "2"], ["--forward"]),
    (["--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--forward", "x", "--backward", "2"], ["--forward x"]),
    (["--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--forward", "1,2,3", "--backward", "2"], ["3 forward times for 2 stages"]),
    (["--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--chunks", "2", *map(str, SIMPLE[:4])], ["only interleaved"]),
    (["--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--weight-backward", "1", *map(str, SIMPLE[:4])], ["only zb-h1"]),
    (["--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--replicas", "1,x", *map(str, SIMPLE[:4])], ["--replicas 1,x"]),
    (["--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--cluster", "c.toml", *map(str, SIMPLE[:4])], ["--plan"]),
    (["--plan", "no_such.json"], ["no_such.json"]),
]


@pytest.mark.parametrize("words,says", MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes(yoke, words, says):
    result = yoke("simulate", *words, code=2)
    assert result.out == ""
    for text in says:
        assert text in result.err
