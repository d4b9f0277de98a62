"""yoke plan: published profiles and vectors, options, JSON fields, mistakes."""
import json

import pytest
from conftest import ROOT, YOKE

PROFILES = ROOT / "tests/data/pipedream"
FIELDS = {"cost_model", "bottleneck_seconds", "config", "stages", "noam", "data_parallel_seconds", "speedup_over_one",
          "speedup_over_data_parallel", "communication_saved"}
STAGE_FIELDS = {"first", "last", "replicas", "compute_seconds", "sync_seconds", "memory_bytes", "versions"}


@pytest.fixture
def profile(tmp_path):
    """Writes a profile of the given times, activations and weights."""

    def write(t, a, w, name="p.json"):
        layers = [{"name": f"layer{i}", "forward": x / 4, "backward": x * 3 / 4, "activation_bytes": y, "parameter_bytes": z}
                  for i, (x, y, z) in enumerate(zip(t, a, w))]
        path = tmp_path / name
        path.write_text(json.dumps({"device": "test", "batch": 1, "layers": layers}))
        return path

    return write


@pytest.fixture
def e3(profile):
    return profile([6, 2, 3, 3], [8, 2, 2, 0], [2, 2, 50, 50])


def test_fields_and_values(yoke, e3):
    plan = yoke("plan", "--profile", e3, "--devices", 4, "--bandwidth", 4, "--json").json
    assert FIELDS <= plan.keys() and plan["cost_model"] == "ring"
    assert plan["config"] == "2-1-1" and plan["bottleneck_seconds"] == 4 and plan["noam"] == 2
    assert all(STAGE_FIELDS <= stage.keys() for stage in plan["stages"])
    assert [(s["first"], s["last"], s["replicas"]) for s in plan["stages"]] == [(0, 1, 2), (2, 2, 1), (3, 3, 1)]
    assert [s["versions"] for s in plan["stages"]] == [2, 2, 1]
    assert plan["data_parallel_seconds"] == pytest.approx(9.75) and plan["speedup_over_one"] == pytest.approx(3.5)
    assert plan["stages"][0]["memory_bytes"] == 2 * (4 + 10)
    assert 0 < plan["communication_saved"] < 1


@pytest.mark.parametrize("model,seconds", [("ring", 9.75), ("paper2018", 19.5), ("paper2019", 39), ("released", 23)])
def test_cost_models(yoke, e3, model, seconds):
    plan = yoke("plan", "--profile", e3, "--devices", 4, "--bandwidth", 4, "--cost-model", model, "--json").json
    assert plan["data_parallel_seconds"] == pytest.approx(seconds)


def test_activations_count_unless_switched_off(yoke, profile):
    path = profile([4, 4, 4, 4], [2, 50, 2, 0], [100] * 4)
    words = ["plan", "--profile", path, "--devices", 2, "--bandwidth", 5, "--json"]
    assert yoke(*words).json["bottleneck_seconds"] == 12
    assert yoke(*words, "--activation-cost", "off").json["bottleneck_seconds"] == 8


def test_levels(yoke, profile):
    path = profile([4] * 4, [2, 2, 2, 0], [20] * 4)
    plan = yoke("plan", "--profile", path, "--levels", "2@20,2@2", "--json").json
    assert plan["bottleneck_seconds"] == 4 and plan["config"] == "1(2)-1(2)"
    assert [s["replicas"] for s in plan["stages"]] == [2, 2]


def test_straight_memory_and_fewer(yoke, e3):
    words = ["plan", "--profile", e3, "--devices", 4, "--bandwidth", 4, "--json"]
    assert yoke(*words, "--straight").json["config"] == "1-1-1-1"
    limited = yoke(*words, "--memory", 110).json
    assert all(s["memory_bytes"] <= 110 for s in limited["stages"])
    assert limited["bottleneck_seconds"] >= 4
    assert "no plan" in yoke(*words, "--memory", 10, code=2).err
    fewer = yoke("plan", "--profile", e3, "--devices", 64, "--bandwidth", 4, "--cost-model", "paper2019", "--fewer-devices", "--json").json
    assert fewer["devices_used"] < 64


def test_explain_names_bounds_and_runners_up(yoke, e3):
    words = ["plan", "--profile", e3, "--devices", 4, "--bandwidth", 4, "--explain"]
    text = yoke(*words).out
    assert "bottleneck" in text and "2-1-1" in text and "slower by" in text
    others = yoke(*words, "--json").json["runners_up"]
    assert min(o["bottleneck_seconds"] for o in others) == 4 and len(others) == 4


def test_the_plan_goes_into_a_file(yoke, e3, tmp_path):
    out = tmp_path / "plan.json"
    yoke("plan", "--profile", e3, "--devices", 4, "--bandwidth", 4, "-o", out)
    assert json.loads(out.read_text())["config"] == "2-1-1"


def test_clusters(yoke, e3):
    plan = yoke("plan", "--profile", e3, "--cluster", ROOT / "examples/clusters/two_desktops.toml", "--json").json
    assert plan["levels"] and sum(s["replicas"] for s in plan["stages"]) == plan["devices_used"]


@pytest.mark.parametrize("model", ["paper2018", "paper2019", "ring", "released", "released+act"])
@pytest.mark.parametrize("name", ["vgg16", "gnmt", "squeezenet1_0"])
def test_published_profiles(yoke, name, model):
    answers = json.loads((PROFILES / "answers.json").read_text())
    for states in ("prefix", "antichain"):
        for shape, answer in answers["profiles"][name]["answers"][states][model].items():
            levels = ",".join(f"{l['machines']}@{l['bandwidth']}" for l in answers["shapes"][shape]["levels"])
            extra = ["--activation-cost", "on"] if model.endswith("+act") else []
            plan = yoke("plan", "--profile", PROFILES / f"{name}.json", "--levels", levels, "--states", states,
                        "--cost-model", model.split("+")[0], *extra, "--json").json
            assert plan["bottleneck_seconds"] == pytest.approx(answer["time_s"], rel=1e-6), (states, shape, plan["config"])
            assert plan["data_parallel_seconds"] == pytest.approx(answer["data_parallel_s"], rel=1e-6)
            assert plan["one_device_seconds"] == pytest.approx(answer["single_s"], rel=1e-6)


@pytest.mark.parametrize("name,bandwidth,config", [("vgg16", "25gbit", "7-1"), ("vgg16", "10gbit", "7-1"),
                                                   ("inception_v3", "25gbit", "8"), ("inception_v3", "10gbit", "7-1")])
def test_the_paper_table(yoke, name, bandwidth, config):
    # Table 1 of the 2018 paper, eight machines: batch 32 where the profiles have 128.
    path = PROFILES / f"{name}.json"
    plan = yoke("plan", "--profile", path, "--devices", 8, "--bandwidth", bandwidth, "--cost-model", "paper2018",
                "--batch-factor", 0.25, "--json").json
    assert plan["config"] == config


def test_tables_are_plain(yoke, e3):
    out = yoke("plan", "--profile", e3, "--devices", 4, "--bandwidth", 4).out
    assert "\033" not in out and "\r" not in out and "2-1-1" in out


def test_help_has_an_example(yoke):
    for command in ("plan", "simulate"):
        text = yoke(command, "--help").out
        assert "Example: yoke " + command in text
        assert len(text.splitlines()) <= 24 and all(len(line) <= 110 for line in text.splitlines())


MISTAKES = [
    (["--devices", "4"], ["--bandwidth"]),
    (["--devices", "4", "--bandwidth", "fast"], ["--bandwidth fast", "10gbit"]),
    (["--devices", "0", "--bandwidth", "1gbit"], ["--devices 0"]),
    (["--devices", "-1", "--bandwidth", "1gbit"], ["--devices -1"]),
    (["--devices", "4", "--bandwidth", "1gbit", "--levels", "4@1"], ["in one way"]),
    (["--levels", "4"], ["--levels 4", "4@12GB/s"]),
    (["--levels", "0@1gbit"], ["at least 1"]),
    (["--devices", "4", "--bandwidth", "1gbit", "--cost-model", "paper2020"], ["ring paper2018 paper2019 released"]),
    (["--devices", "4", "--bandwidth", "1gbit", "--activation-cost", "maybe"], ["on off"]),
    (["--devices", "4", "--bandwidth", "1gbit", "--states", "all"], ["prefix antichain"]),
    (["--devices", "4", "--bandwidth", "1gbit", "--memory", "lots"], ["--memory lots"]),
    (["--devices", "40", "--bandwidth", "1gbit", "--straight"], ["only 4 layers", "--fewer-devices"]),
    (["--devices", "4", "--bandwidth", "1gbit", "--train.lr", "1"], ["takes no configuration keys"]),
]


@pytest.mark.parametrize("words,says", MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes(yoke, e3, words, says):
    result = yoke("plan", "--profile", e3, *words, code=2)
    assert result.out == ""
    for text in says:
        assert text in result.err


FILES = [
    ("", ["no layers"]),
    ("{", [":1", "not valid JSON"]),
    ('{"layers": []}', ["no layers"]),
    ('{"layers": [{"forward": 1}]}', ["layers[0]", "backward"]),
    ('{"layers": [{"forward": -1, "backward": 1, "activation_bytes": 0, "parameter_bytes": 0}]}', ["forward"]),
    ("node1 -- Conv\n", [":1", "nodeN"]),
    ("node1 -- Conv -- forward_compute_time=x, backward_compute_time=1, activation_size=1, parameter_size=1\n", [":1", "forward_compute_time=x"]),
    ("node1 -- Conv -- forward_compute_time=1, backward_compute_time=1, activation_size=1, parameter_size=1\n\tnode1 -- node7\n", [":2", "node7"]),
]


@pytest.mark.parametrize("text,says", FILES, ids=[repr(text)[:40] for text, _ in FILES])
def test_mistakes_in_the_file(yoke, tmp_path, text, says):
    path = tmp_path / "p.txt"
    path.write_text(text)
    result = yoke("plan", "--profile", path, "--devices", 2, "--bandwidth", "1gbit", code=2)
    for part in ["p.txt", *says]:
        assert part in result.err


def test_unequal_devices(yoke, profile):
    path = profile([2] * 12, [1] * 12, [1000] * 12)
    words = ["plan", "--profile", path, "--devices", 3, "--bandwidth", 100, "--straight"]
    plan = yoke(*words, "--speeds", "1,2,1", "--json").json
    assert plan["bottleneck_seconds"] == pytest.approx(6) and plan["one_device_seconds"] == pytest.approx(12)
    fast = next(s for s in plan["stages"] if s["devices"] == [1])
    assert fast["last"] - fast["first"] + 1 == 6 and fast["slowest"] == 2
    text = yoke(*words, "--speeds", "1,2,1", "--explain").out
    assert "slowest" in text and "2x" in text and "bottleneck" in text
    # Equal devices need no list.
    assert yoke(*words, "--speeds", "1,1,1", "--json").json == yoke(*words, "--json").json


def test_unequal_memories(yoke, e3):
    words = ["plan", "--profile", e3, "--devices", 3, "--bandwidth", 4, "--json"]
    plan = yoke(*words, "--memory", "200,110,60").json
    for stage in plan["stages"]:
        assert stage["memory_bytes"] <= min([200, 110, 60][d] for d in stage["devices"])
    assert yoke(*words, "--memory", "200,200,200").json == yoke(*words, "--memory", "200").json


def test_a_cluster_of_unequal_devices(yoke, e3, tmp_path):
    text = (ROOT / "examples/clusters/two_desktops.toml").read_text()
    path = tmp_path / "cluster.toml"
    path.write_text(text.replace('name = "left.gpu0"\nmachine = "left"', 'name = "left.gpu0"\nmachine = "left"\nspeed = 0.5\nmemory = "1GB"'))
    plan = yoke("plan", "--profile", e3, "--cluster", path, "--json").json
    assert plan["levels"] == [{"bandwidth": 1.25e9, "count": 4}]
    assert sorted(d for s in plan["stages"] for d in s["devices"]) == [0, 1, 2, 3]
    assert next(s for s in plan["stages"] if 0 in s["devices"])["slowest"] == 0.5
    path.write_text(text.replace('name = "left.gpu0"', 'name = "left.gpu0"\nspeed = 0'))
    assert "left.gpu0" in yoke("plan", "--profile", e3, "--cluster", path, code=2).err


@pytest.mark.parametrize("words,says", [(["--speeds", "1,x"], "--speeds 1,x"), (["--speeds", "1,0"], "above 0"), (["--speeds", "1,1,2"], "3 speeds"),
                                        (["--speeds", "1,2", "--memory", "1,2,3"], "one of each"), (["--memory", "1GB,none"], "--memory 1GB,none")])
def test_mistakes_in_lists(yoke, e3, words, says):
    assert says in yoke("plan", "--profile", e3, "--devices", 2, "--bandwidth", 4, *words, code=2).err
