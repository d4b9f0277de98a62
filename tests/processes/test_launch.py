"""`yoke run`: output, environment, exit codes, root causes, restarts."""
import json
import os
import pathlib
import re
import signal
import socket
import stat

import pytest
from conftest import YOKE
from launching import Job, clean_environment


@pytest.fixture
def job(tmp_path):
    started = []

    def start(*words, **options):
        folder = tmp_path / f"job{len(started)}"
        folder.mkdir()
        started.append(Job(folder, *words, **options))
        return started[-1]

    yield start
    for one in started:
        one.end()


def sh(text):
    return ["/bin/sh", "-c", text]


def test_lines_carry_their_rank(job):
    run = job("--nproc", 3, *sh("echo out $YOKE_RANK; echo err $YOKE_RANK >&2"))
    assert run.wait() == 0
    assert sorted(run.out.splitlines()) == [f"[rank {r}] out {r}" for r in range(3)]
    assert sorted(run.err.splitlines()) == [f"[rank {r}] err {r}" for r in range(3)]


def test_an_error_of_all_ranks_is_printed_once(job):
    run = job("--nproc", 3, *sh("echo error: no such file >&2; echo error: no such file >&2; echo error: of $YOKE_RANK >&2; echo error: out; echo warning: w >&2"))
    assert run.wait() == 0
    common = [text for text in run.err.splitlines() if "no such file" in text]
    assert len(common) == 2 and len(set(common)) == 1  # one rank's, which printed it twice
    assert sorted(text for text in run.err.splitlines() if text not in common) == sorted(
        f"[rank {r}] {text}" for r in range(3) for text in (f"error: of {r}", "warning: w"))
    assert sorted(run.out.splitlines()) == [f"[rank {r}] error: out" for r in range(3)]


def test_lines_stay_whole_when_everybody_talks(job):
    line = "x" * 300
    run = job("-np", 4, *sh(f"i=0; while [ $i -lt 2000 ]; do echo $YOKE_RANK {line} $i; i=$((i+1)); done"))
    assert run.wait(120) == 0
    lines = run.out.splitlines()
    assert len(lines) == 8000
    seen = {rank: 0 for rank in range(4)}
    for text in lines:
        match = re.fullmatch(rf"\[rank (\d)\] (\d) {line} (\d+)", text)
        assert match and match[1] == match[2], text
        assert int(match[3]) == seen[int(match[1])]
        seen[int(match[1])] += 1


def test_unfinished_and_huge_lines(job):
    run = job("--nproc", 1, *sh("head -c 3000000 /dev/zero | tr '\\0' y; echo; printf last"))
    assert run.wait() == 0
    lines = run.out.splitlines()
    assert lines[-1] == "[rank 0] last"
    assert all(len(text) <= 1048576 + 9 for text in lines)
    assert sum(text.count("y") for text in lines) == 3000000


def test_output_of_grandchildren_does_not_hold_the_job(job):
    run = job("--nproc", 1, *sh("setsid sleep 600 & echo $!; exit 0"))
    assert run.wait(30) == 0
    with pytest.raises(ProcessLookupError):  # though it made itself a session of its own, it ended with the job
        os.kill(int(run.out.split()[-1]), 0)


@pytest.mark.parametrize("program,code", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)])
def test_exit_codes(job, program, code):
    run = job("--nproc", 2, *sh(f'[ $YOKE_RANK = 1 ] && {{ {program}; }}; [ {code} = 0 ] || sleep 30'))
    assert run.wait() == code


def box(text):
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("+- the job failed"))
    last = next(i for i in range(first + 1, len(lines)) if lines[i].startswith("+--"))
    assert all(len(line) == 80 for line in lines[first:last + 1])
    assert text.count("the job failed") == 1
    return "\n".join(lines[first:last + 1])


def test_a_killed_rank_is_named_although_others_fail_too(job):
    # Victims end with "a peer failed" (3), one of them before the culprit.
    run = job("--nproc", 4, *sh("echo $YOKE_RANK $$; echo why $YOKE_RANK >&2; [ $YOKE_RANK = 2 ] && sleep 60; sleep 2; exit 3"))
    run.wait_for_lines(4)
    pid = int(next(line for line in run.out.splitlines() if line.startswith("[rank 2]")).split()[-1])
    os.kill(pid, signal.SIGKILL)
    assert run.wait() == 137
    text = box(run.err)
    assert f"rank 2 on {os.uname().nodename}, pid {pid}" in text
    assert "was killed by signal 9 (SIGKILL)" in text
    assert "dmesg" in text and "why 2" in text and "exit code 137" in text


def test_the_box_is_ascii_and_shows_last_lines(job):
    run = job("--nproc", 2, *sh('[ $YOKE_RANK = 1 ] || sleep 30; printf "zeile \\303\\244 \\033[31mrot\\n" >&2; exit 9'))
    assert run.wait() == 9
    text = box(run.err)
    assert text.isascii() and "\033" not in text
    assert "exited with code 9" in text and "zeile ?" in text


def test_no_box_when_all_is_well(job):
    run = job("--nproc", 2, "true")
    assert run.wait() == 0 and run.err == "" and run.out == ""


def test_restarts_all_ranks_with_the_next_generation(job, tmp_path):
    run = job("--nproc", 2, "--max-restarts", 3,
              *sh("echo generation $YOKE_GENERATION $TORCHELASTIC_RESTART_COUNT; [ $YOKE_GENERATION = 2 ] || exit 5"))
    assert run.wait() == 0
    assert sorted(run.out.split("\n"))[1:] == sorted(f"[rank {r}] generation {g} {g}" for r in range(2) for g in range(3))
    assert "Restarting all ranks (1 of 3)" in run.err and "the job failed" not in run.err


def test_restarts_come_to_an_end(job):
    run = job("--nproc", 1, "--max-restarts", 2, *sh("echo try; exit 5"))
    assert run.wait() == 5
    assert run.out.count("try") == 3 and "2 restarts" in box(run.err)


def test_tee_and_redirects(job, tmp_path):
    logs = tmp_path / "logs"
    run = job("--nproc", 2, "--tee", "0:3", "--redirects", "1:1", "--log-dir", logs, "--rdzv-id", "j7",
              *sh("echo out $YOKE_RANK; echo err $YOKE_RANK >&2"))
    assert run.wait() == 0
    folder = logs / "j7" / "attempt_0"
    assert (folder / "0/stdout.log").read_text() == "out 0\n" and (folder / "0/stderr.log").read_text() == "err 0\n"
    assert (folder / "1/stdout.log").read_text() == "out 1\n" and not (folder / "1/stderr.log").exists()
    assert run.out == "[rank 0] out 0\n"
    assert sorted(run.err.splitlines()) == ["[rank 0] err 0", "[rank 1] err 1"]


def test_local_ranks_filter(job):
    run = job("--nproc", 3, "--local-ranks-filter", "1", *sh("echo $YOKE_RANK"))
    assert run.wait() == 0 and run.out == "[rank 1] 1\n"


def test_environment_handed_down(job):
    run = job("--nproc", 2, "--rdzv-id", "my-job", *sh("env | sort | sed s/^/$YOKE_RANK:/"), env={"KEPT": "yes"})
    assert run.wait() == 0
    tables = [{}, {}]
    for line in run.out.splitlines():
        match = re.fullmatch(r"\[rank \d\] (\d):([A-Z_0-9]+)=(.*)", line)
        if match:
            tables[int(match[1])][match[2]] = match[3]
    for rank, table in enumerate(tables):
        expected = {"YOKE_RANK": rank, "YOKE_WORLD_SIZE": 2, "YOKE_LOCAL_RANK": rank, "YOKE_LOCAL_WORLD_SIZE": 2, "YOKE_NODE_RANK": 0,
                    "YOKE_JOB_ID": "my-job", "YOKE_GENERATION": 0, "RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank,
                    "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1",
                    "TORCHELASTIC_RUN_ID": "my-job", "TORCHELASTIC_RESTART_COUNT": 0, "KEPT": "yes"}
        for name, value in expected.items():
            assert table[name] == str(value), name
        assert table["YOKE_COORDINATOR"].startswith("unix:@") and int(table["MASTER_PORT"]) > 0
        assert re.fullmatch("[0-9a-f]{64}", table["YOKE_JOB_KEY"])
        threads = {int(table[name]) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        assert len(threads) == 1 and 1 <= max(threads) <= max(1, len(os.sched_getaffinity(0)) // 2)
    assert tables[0]["YOKE_JOB_KEY"] == tables[1]["YOKE_JOB_KEY"]


def test_thread_counts_of_the_user_stay(job):
    run = job("--nproc", 1, *sh("echo $OMP_NUM_THREADS"), env={"OMP_NUM_THREADS": 7})
    assert run.wait() == 0 and run.out == "[rank 0] 7\n"


def test_the_key_is_on_no_command_line(job):
    run = job("--nproc", 2, *sh("echo key $YOKE_JOB_KEY; exec sleep 60"))
    run.wait_for_lines(2, "key")
    key = run.out.splitlines()[0].split()[-1]
    assert len(key) == 64
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert key.encode() not in path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            pass
    run.signal(signal.SIGINT)
    run.wait()


def test_what_cannot_be_started_is_a_usage_error(job, tmp_path):
    plain = tmp_path / "train.py"
    plain.write_text("print(1)\n")
    noexec = tmp_path / "noexec"
    noexec.write_text("no program\n")
    noexec.chmod(0o755)
    for program, says in [("no_such_program_anywhere", "no such program"), ("./no/such", "no such program"),
                          (str(plain), "python3"), (str(tmp_path), "not an executable file"), (str(noexec), "#!")]:
        run = job("--nproc", 2, program)
        assert run.wait() == 2, run.err
        assert says in run.err and "the job failed" not in run.err


@pytest.mark.parametrize("words,says", [
    ([], "PROGRAM is missing"),
    (["--nproc"], "needs a value"),
    (["--nproc", "0", "true"], "1..65536"),
    (["--nproc", "many", "true"], "--nproc-per-node many"),
    (["--nprocs", "2", "true"], "Did you mean --nproc?"),
    (["--nnodes", "4:1", "true"], "MIN:MAX"),
    (["--nnodes", "2", "true"], "--node-rank"),
    (["--nnodes", "2", "--node-rank", "0", "true"], "--rdzv-endpoint"),
    (["--nnodes", "2", "--node-rank", "2", "true"], "0..1"),
    (["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "localhost:0", "true"], "with a port"),
    (["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "localhost:29400", "true"], "--secret-file"),
    (["--rdzv-backend", "consul", "true"], "tcp, c10d, static or etcd"),
    (["--tee", "4", "true"], "0..3"),
    (["-H", "nowhere.invalid:2,elsewhere.invalid:2", "true"], "--node-rank"),
    (["-H", "a:b", "true"], "HOST:SLOTS"),
    (["--insecure", "--encrypt", "true"], "one of them"),
    (["--standalone=1", "true"], "takes no value"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_mistakes_in_flags(job, words, says):
    run = job(*words)
    assert run.wait() == 2
    assert says in run.err and len(run.err.splitlines()) <= 3


def test_flags_with_underscores_and_from_kubeflow(job):
    run = job("--nproc_per_node=2", "--max_restarts=0", "--no-python", "--", *sh("echo $YOKE_RANK"))
    assert run.wait() == 0 and len(run.out.splitlines()) == 2
    run = job("--standalone", *sh("echo $YOKE_WORLD_SIZE"), env={"PET_NPROC_PER_NODE": "3", "PET_NNODES": "1"})
    assert run.wait() == 0 and sorted(run.out.splitlines()) == [f"[rank {rank}] 3" for rank in range(3)]


def test_arguments_of_the_program_are_untouched(job):
    run = job("--nproc", 1, "/bin/echo", "--nproc", "9", "--train.lr", "0.1", "--", "-h", "a b")
    assert run.wait() == 0 and run.out == "[rank 0] --nproc 9 --train.lr 0.1 -- -h a b\n"


def test_json_says_how_it_ended(job):
    run = job("--nproc", 2, "--json", *sh("echo hello; [ $YOKE_RANK = 0 ] || exit 4; sleep 30"))
    assert run.wait() == 4
    says = json.loads(run.out)
    assert says["exit_code"] == 4 and says["world_size"] == 2 and says["failure"]["rank"] == 1
    assert "[rank 0] hello" in run.err


def test_torchruns_error_file(job, tmp_path):
    file = tmp_path / "error.json"
    run = job("--nproc", 1, *sh("[ -z $TORCHELASTIC_ERROR_FILE ] || exit 1; exit 6"), env={"TORCHELASTIC_ERROR_FILE": file})
    assert run.wait() == 6
    message = json.loads(file.read_text())["message"]
    assert "exited with code 6" in message["message"] and int(message["extraInfo"]["timestamp"]) > 1e9


def test_hosts_give_sizes_and_commands_for_the_others(job, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(stat.S_IRUSR | stat.S_IWUSR)
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# two machines\nlocalhost slots=2\nother.invalid:3\n")
    run = job("--hostfile", hostfile, "--rdzv-endpoint", "127.0.0.1:0", "--secret-file", key, *sh("echo hi"))
    assert run.wait() == 2 and "with a port" in run.err
    run = job("-H", "localhost:2,other.invalid:3", "--rdzv-endpoint", "127.0.0.1:29471", "--secret-file", key,
              *sh("echo $YOKE_RANK of $YOKE_WORLD_SIZE on $YOKE_LOCAL_WORLD_SIZE"))
    run.wait_for_lines(2, "of 5 on 2")
    assert "on other.invalid start: yoke run -H localhost:2,other.invalid:3 --node-rank 1" in run.err
    assert "[rank 1|node0] 1 of 5 on 2" in run.out
    run.signal(signal.SIGINT)
    run.wait()


def test_stdin_goes_to_the_first_rank(tmp_path):
    import subprocess
    from conftest import ROOT, YOKE
    result = subprocess.run([str(YOKE), "run", "--nproc", "2", *sh("echo $YOKE_RANK $(cat)")], input="hello", text=True,
                            capture_output=True, env=clean_environment(), cwd=ROOT, timeout=60)
    assert sorted(line.strip() for line in result.stdout.splitlines()) == ["[rank 0] 0 hello", "[rank 1] 1"]


@pytest.fixture
def key(tmp_path):
    file = tmp_path / "key"
    file.write_bytes(os.urandom(32))
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return file


def test_a_port_in_use_comes_with_one_that_is_free(job, key):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = job("--nnodes", 2, "--node-rank", 0, "--rdzv-endpoint", f"127.0.0.1:{port}", "--secret-file", key, *sh("true"))
        assert run.wait() == 4
    free = int(re.search(r"choose another port, the same on all machines: (\d+) is free", run.err).group(1))
    assert port < free <= port + 20 and "port 0" not in run.err


def test_a_coordinator_that_others_cannot_reach_is_warned_of(job, key):
    words = ("--node-rank", 0, "--rdzv-endpoint", "localhost:29472", "--join-timeout", 60, "--secret-file", key, *sh("echo up"))
    run = job("-H", "localhost:1,other.invalid:1", *words)
    run.wait_for_lines(1, "up")
    assert "localhost is a loopback address on this machine: other.invalid cannot reach it. Next: --rdzv-endpoint" in run.err
    run.signal(signal.SIGINT)
    run.wait()
    run = job("-H", "localhost:1,127.0.0.1:1", *words)
    run.wait_for_lines(1, "up")
    assert "loopback" not in run.err
    run.signal(signal.SIGINT)
    run.wait()


def test_a_foreign_protocol_at_the_coordinators_port_is_told_at_once(job, key):
    with socket.socket() as web:
        web.bind(("127.0.0.1", 0))
        web.listen()
        run = job("--nnodes", 2, "--node-rank", 1, "--rdzv-endpoint", f"127.0.0.1:{web.getsockname()[1]}", "--secret-file", key,
                  YOKE.parent / "yoke_rank_program", "tcp", 3, 4000)
        web.settimeout(60)
        caller, _ = web.accept()
        caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert run.wait() == 4, run.err
        caller.close()
    said = " ".join(run.err.split())
    assert "it speaks another protocol. Next: check --rdzv-endpoint" in said
