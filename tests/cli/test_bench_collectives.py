"""`yoke bench collectives`: what each rank sends is what the formulas say, and the algorithm is the one that ran."""
import json
import math
import subprocess

import pytest
from conftest import YOKE

COUNT = 12 * 1024  # divides by 2, 3 and 4: all parts are equal
S = COUNT * 4


def bench(ranks, *words, sizes=S):
    command = [YOKE, "bench", "collectives", "--nproc", ranks, "--bytes", sizes, "--iterations", 1, "--json", "-q", *words]
    run = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)["results"]


def all_reduce_formulas(n):
    """By algorithm: (bytes, messages) of the ranks, in any order."""
    power = 1 << (n.bit_length() - 1)
    core = (2 * (power - 1) * S // power, 2 * int(math.log2(power)))
    folded = n - power  # that many hand their data to a partner, which hands the result back
    halving = [core] * (power - folded) + [(core[0] + S, core[1] + 1)] * folded + [(S, 1)] * folded
    each = (2 * (n - 1) * S // n, 2 * (n - 1))
    return {"ring": [each] * n, "direct": [each] * n, "hierarchical": [each] * n,  # of machines with one rank
            "star": [((n - 1) * S, n - 1)] + [(S, 1)] * (n - 1), "halving_doubling": halving,
            "exchange": [((n - 1) * S, n - 1)] * n}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_reduce_sends_what_the_formulas_say(ranks):
    wanted = all_reduce_formulas(ranks)
    rows = bench(ranks, "--backend", "tcp", "--algorithm", ",".join([*wanted, "tree"]))
    assert [row["algorithm"] for row in rows] == [*wanted, "tree"] and all(row["correct"] for row in rows)
    for row in rows[:-1]:
        assert sorted(zip(row["bytes_sent"], row["messages"])) == sorted(wanted[row["algorithm"]]), row
    # Half of the data up and down each of two trees of N-1 edges; nobody sends more than twice the data.
    assert sum(rows[-1]["bytes_sent"]) == 2 * (ranks - 1) * S and max(rows[-1]["bytes_sent"]) <= 2 * S


def others(n):
    part = S // n
    chain = [S] * (n - 1) + [0]
    return {
        "reduce_scatter": {"ring": [(n - 1) * part] * n, "direct": [(n - 1) * part] * n},
        "all_gather": {"ring": [(n - 1) * part] * n, "direct": [(n - 1) * part] * n},
        "all_to_all": {"direct": [(n - 1) * part] * n},
        "broadcast": {"ring": chain, "star": [(n - 1) * S] + [0] * (n - 1), "direct": [S] + [S * (n - 2) // (n - 1)] * (n - 1)},
        "reduce": {"ring": chain, "star": [0] + [S] * (n - 1)},
        "gather": {"direct": [0] + [part] * (n - 1), "star": [0] + [part] * (n - 1)},
        "scatter": {"direct": [(n - 1) * part] + [0] * (n - 1), "star": [(n - 1) * part] + [0] * (n - 1)},
    }


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("op", others(2))
def test_other_operations_send_what_the_formulas_say(op, ranks):
    wanted = others(ranks)[op]
    rows = bench(ranks, "--backend", "tcp", "--op", op, "--algorithm", ",".join(wanted))
    for row in rows:
        assert row["correct"] and sorted(row["bytes_sent"]) == sorted(wanted[row["algorithm"]]), row


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_shared_memory_counts_alike(ranks):
    row = bench(ranks, "--backend", "shm")[0]
    assert row["algorithm"] == "direct"
    assert row["bytes_sent"] == [2 * (ranks - 1) * S // ranks] * ranks and row["messages"] == [2 * (ranks - 1)] * ranks


def test_the_algorithm_shown_is_the_one_that_ran():
    small, large = bench(3, "--backend", "tcp", "--no-check", sizes="1K,64M")
    assert small["algorithm"] != "auto" and large["algorithm"] == "ring"


def test_shared_memory_is_measured_beside_its_limit():
    row = bench(2, "--backend", "shm", sizes="4M")[0]
    assert 0 < row["limit_fraction"] < 10
    assert "limit_fraction" not in bench(2, "--backend", "tcp")[0]
