"""yoke bench ps: fields, theory, mistakes; real servers."""
import json

import pytest
from conftest import script

RULES = ["sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async", "bounded_delay", "ssp"]
FIELDS = ["policy", "workers", "k", "updates", "seconds_per_update", "staleness", "idle_fraction", "cancelled", "gradients", "bytes"]


def bench(yoke, policy, *words, workers=8, updates=50000, delay="exp:1s", **options):
    more = [w for name, value in options.items() for w in ("--" + name.replace("_", "-"), value)]
    return yoke("bench", "ps", "--policy", policy, "--workers", workers, "--updates", updates, "--delay", delay,
                "--clock", "virtual", *more, *words, "--json", "-q").json


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


def test_help_is_one_screen_and_offers_what_there_is(yoke):
    text = yoke("bench", "ps", "--help").out
    assert "Example: yoke bench ps" in text
    assert len(text.splitlines()) <= 32
    assert all(len(line) <= 110 for line in text.splitlines())
    assert "--throughput" in text and "real" in text


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_every_field(yoke, rule):
    document = bench(yoke, rule, k=4, max_delay=2, updates=2000)
    for field in FIELDS:
        assert field in document
    assert document["policy"] == rule and document["workers"] == 8 and document["updates"] == 2000
    k = {"sync": 8, "async": 1, "bounded_delay": 1, "ssp": 1}.get(rule, 4)
    assert document["k"] == k and document["gradients"] == k * 2000
    staleness = document["staleness"]
    assert sum(staleness["histogram"]) == document["gradients"]
    assert staleness["fresh"] == staleness["histogram"][0] / document["gradients"]
    mean = sum(s * n for s, n in enumerate(staleness["histogram"])) / document["gradients"]
    assert staleness["mean"] == pytest.approx(mean)
    assert 0 <= document["idle_fraction"] < 1
    assert "loss_floor" not in document


# Five standard errors of 50,000 updates are 2.2 %; times vary less than their mean.
@pytest.mark.parametrize("rule,k,delay,seconds", [
    ("sync", 8, "exp:1s", harmonic(8)), ("k_sync", 4, "exp:1s", 0.634524), ("k_batch_sync", 4, "exp:1s", 0.5),
    ("async", 1, "exp:1s", 1 / 8), ("k_async", 4, "exp:1s", 0.634524), ("k_batch_async", 4, "exp:1s", 0.5),
    ("bounded_delay", 1, "exp:1s", harmonic(8) / 8), ("k_sync", 4, "shifted_exp:1s,1s", 1.634524),
    ("k_batch_async", 4, "shifted_exp:1s,1s", 1.0), ("k_sync", 4, "pareto:1s,3", 1.242967),
    ("k_batch_async", 4, "pareto:1s,3", 0.75)])
def test_time_per_update(yoke, rule, k, delay, seconds):
    assert bench(yoke, rule, k=k, delay=delay)["seconds_per_update"] == pytest.approx(seconds, rel=0.022)


@pytest.mark.parametrize("delay", ["exp:5ms", "shifted_exp:1ms,5ms", "pareto:1ms,3", "const:3x"])
def test_mean_staleness_needs_no_law(yoke, delay):
    assert bench(yoke, "k_async", k=4, delay=delay, updates=20000)["staleness"]["mean"] == pytest.approx(1, rel=0.01)
    assert bench(yoke, "k_batch_async", k=4, delay=delay, updates=20000)["staleness"]["mean"] == pytest.approx(7 / 4, rel=0.01)


def test_loss_floors(yoke):
    for rule, k, floor in [("k_sync", 1, 0.026316), ("k_async", 4, 0.0072049), ("k_batch_async", 4, 0.0077133)]:
        document = bench(yoke, rule, k=k, updates=200000, objective="quadratic", noise=1, lr=0.1)
        # w^2 is correlated over about ten updates: a relative error of sqrt(2 * 10 / 200,000) = 1 %
        assert document["loss_floor"] == pytest.approx(floor, rel=0.05)


def test_the_dial_has_two_ends(yoke):
    def numbers(*args, **options):
        document = bench(yoke, *args, updates=5000, objective="quadratic", **options)
        return [document[f] for f in ("seconds_per_update", "staleness", "cancelled", "gradients", "bytes", "loss_floor")]

    sync, asynchronous = numbers("sync"), numbers("async")
    assert numbers("k_sync", k=8) == sync and numbers("k_async", k=8) == sync
    assert numbers("k_async", k=1) == numbers("k_batch_async", k=1) == asynchronous
    assert numbers("bounded_delay", max_delay="inf") == asynchronous
    assert numbers("k_batch_async", k=8) != sync


def test_the_same_seed_gives_the_same_document(yoke):
    first = bench(yoke, "k_async", k=3, updates=2000, seed=5)
    assert first == bench(yoke, "k_async", k=3, updates=2000, seed=5)
    assert first != bench(yoke, "k_async", k=3, updates=2000, seed=6)


def test_bytes_are_pushes_and_pulls(yoke):
    document = bench(yoke, "k_sync", k=3, updates=1000, bytes="1K", servers=4)
    assert document["bytes"] == 1000 * (3 + 8) * 1024
    assert document["bytes_per_server"] == document["bytes"] // 4
    assert document["cancelled"] == 1000 * 5


def test_chosen_workers_are_slow(yoke):
    slow = dict(delay="const:4x", delay_workers="2", compute="1s", workers=4, updates=4000)
    assert bench(yoke, "sync", **slow)["seconds_per_update"] == pytest.approx(4)
    assert bench(yoke, "k_batch_async", k=4, **slow)["seconds_per_update"] == pytest.approx(4 / 3.25, rel=1e-3)


def test_traces_are_replayed(yoke, tmp_path):
    trace = tmp_path / "delays.txt"
    trace.write_text("# seconds\n1\n2s\n3000ms\n")
    document = bench(yoke, "async", delay=f"trace:{trace}", updates=24000)
    assert document["seconds_per_update"] == pytest.approx(2 / 8, rel=1e-3)


def test_text_for_people(yoke):
    result = yoke("bench", "ps", "--policy", "sync", "--workers", "4", "--k", "2", "--delay", "exp:1ms", "--updates", "50")
    assert "time per update" in result.out and "staleness" in result.out
    assert "--k 2 is ignored" in result.err
    assert all(len(line) <= 80 for line in result.out.splitlines())


MISTAKES = [
    (["--policy", "asink"], ["policy 'asink' is unknown. Accepted: sync k_sync"]),
    (["--policy", "k_async"], ["needs --k"]),
    (["--policy", "k_async", "--k", "9"], ["k = 9 with 8 workers", "1..8"]),
    (["--policy", "k_sync", "--k", "-2"], ["k = -2"]),
    (["--policy", "ssp", "--max-delay", "-1"], ["--max-delay -1"]),
    (["--policy", "ssp", "--max-delay", "some"], ["or inf"]),
    (["--policy", "async", "--delay", "gauss:1ms"], ["'gauss:1ms' is unknown", "shifted_exp:SHIFT,MEAN"]),
    (["--policy", "async", "--delay", "exp:5parsec"], ["'5parsec' is not a time"]),
    (["--policy", "async", "--delay", "trace:no_such_file"], ["no_such_file"]),
    (["--policy", "async", "--delay", "exp:1ms", "--delay-workers", "8"], ["'8' is not a worker", "from 0 to 7"]),
    (["--policy", "async", "--compute", "soon"], ["--compute soon"]),
    (["--policy", "async", "--compute", "0"], ["take no time"]),
    (["--policy", "async", "--updates", "0"], ["--updates 0"]),
    (["--policy", "async", "--servers", "0"], ["--servers 0"]),
    (["--policy", "async", "--bytes", "many"], ["--bytes many"]),
    (["--policy", "async", "--bytes", "8000000TB"], ["too large"]),
    (["--policy", "async", "--objective", "cubic"], ["Accepted: quadratic"]),
    (["--policy", "async", "--objective", "quadratic", "--lr", "2"], ["--lr 2"]),
    (["--policy", "async", "--objective", "quadratic", "--lr", "1.9", "--clock", "virtual"], ["diverge"]),
    (["--policy", "async", "--clock", "sun"], ["Accepted: real virtual"]),
    (["--policy", "async", "--backend", "pigeon"], ["Accepted: shm tcp"]),
    (["--throughput", "--bytes", "1K,none"], ["--bytes none"]),
    (["--throughput", "--in-flight", "-1"], ["--in-flight -1"]),
    (["--policy", "async", "--bytes", "8000000TB", "--clock", "virtual"], ["more than can be counted"]),
    (["--policy", "async", "--train.lr", "1"], ["takes no configuration keys"]),
]


@pytest.mark.parametrize("words,says", MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes(yoke, words, says):
    result = yoke("bench", "ps", "--workers", "8", *words, code=2)
    assert result.out == ""
    for text in says:
        assert text in result.err
    failed = yoke("bench", "ps", "--workers", "8", *words, "--json", code=2)
    assert json.loads(failed.out)["exit_code"] == 2


def test_workers_are_needed_and_counted(yoke):
    assert "--workers is required" in yoke("bench", "ps", "--policy", "async", code=2).err
    for count in ("0", "-1", "70000"):
        for more in (["--policy", "async"], ["--throughput"]):
            assert f"--workers {count}: expected an integer" in yoke("bench", "ps", *more, "--workers", count, code=2).err
    assert "--updates -1: expected an integer" in yoke("bench", "ps", "--policy", "async", "--workers", 2, "--updates", "-1", code=2).err


def test_one_worker_is_plain_sgd_under_every_rule(yoke):
    for rule in RULES:
        document = bench(yoke, rule, workers=1, k=1, max_delay=0, updates=2000, objective="quadratic")
        assert document["staleness"]["mean"] == 0 and document["idle_fraction"] == 0
        assert document["loss_floor"] == bench(yoke, "sync", workers=1, updates=2000, objective="quadratic")["loss_floor"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("servers", [1, 2])
def test_real_servers_tell_the_same_fields(yoke, rule, servers):
    document = yoke("bench", "ps", "--policy", rule, "--workers", 4, "--k", 2, "--max-delay", 1, "--updates", 60, "--delay", "exp:1ms",
                    "--bytes", "600K", "--servers", servers, "--json", "-q").json
    for field in FIELDS:
        assert field in document
    k = {"sync": 4, "async": 1, "bounded_delay": 1, "ssp": 1}.get(rule, 2)
    assert document["clock"] == "real" and document["updates"] == 60 and document["k"] == k
    assert document["gradients"] == k * 60 == sum(document["staleness"]["histogram"])
    if rule in ("sync", "k_sync", "k_batch_sync"):
        assert document["staleness"]["fresh"] == 1


def test_real_staleness_needs_no_law(yoke):
    # Sums of staleness telescope: exact up to the workers at both ends.
    for rule, k, mean in (("async", 1, 3), ("k_async", 2, 1), ("k_batch_async", 2, 1.5)):
        document = yoke("bench", "ps", "--policy", rule, "--workers", 4, "--k", k, "--updates", 400, "--delay", "exp:1ms",
                        "--bytes", "1K", "--json", "-q").json
        assert document["staleness"]["mean"] == pytest.approx(mean, abs=0.1)


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_throughput(yoke, backend):
    rows = yoke("bench", "ps", "--throughput", "--servers", 1, "--workers", 1, "--bytes", "1K,1MB", "--backend", backend,
                "--seconds", "0.2", "--json", "-q").json["results"]
    assert [row["bytes"] for row in rows] == [1024, 1000000]
    for row in rows:
        assert row["backend"] == backend and row["pushpull_per_s"] > 10
        assert row["bandwidth"] == pytest.approx(2 * row["bytes"] * row["pushpull_per_s"])


def test_the_shortest_step_follows_the_schedule_of_sync():
    schedule = script("../bench/overlap_schedule.py")
    chunk = schedule.CHUNK
    step = lambda layers, seconds: schedule.shortest_step([(*times, size) for *times, size in layers], seconds / chunk)
    assert step([(1, 2, chunk)], 0) == 3
    assert step([(1, 2, chunk)], 1) == 5  # nothing to hide behind: pushed after backward, pulled before forward
    # The last layer leaves and returns while backward continues, the first one after it.
    assert step([(1, 3, chunk), (1, 1, chunk)], 1) == pytest.approx(6 + 2)
    # The rest of the second layer goes behind the first one, and is hidden by its forward pass.
    assert step([(4, 1, chunk), (1, 1, 2 * chunk)], 1) == pytest.approx(7 + 2)
    # A link that is slower than computing sets the pace.
    assert step([(0, 1, 0), (0, 0, 20 * chunk)], 1) == pytest.approx(21)
