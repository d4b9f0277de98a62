"""Wrong requests and damaged files, over all commands: each is refused before anything starts, with the promised exit code and a
sentence that names what is wrong. One row a request: words, exit code, what the message says."""
import concurrent.futures
import json
import struct

import pytest

TINY = "configs/mlp_tiny.toml"
GPT = "configs/gpt2_tiny.toml"
HUGE = "4611686018427387904"

STAGE = {"first": 0, "last": 0, "replicas": 1, "compute_seconds": 1}
LAYER = '{"forward": 1, "backward": 1, "activation_bytes": 1, "parameter_bytes": 1}'


def safetensors(header, data=b""):
    text = header.encode()
    return struct.pack("<Q", len(text)) + text + data


# Files that the rows name as {name}.
FILES = {
    "empty.json": "",
    "torn.json": '{"layers": [',
    "huge.json": '{"layers": [{"forward": 1e999, "backward": 1, "activation_bytes": 1, "parameter_bytes": 1}]}',
    "comma.json": '{"layers": [' + LAYER + ',]}',
    "list.json": "[1, 2, 3]",
    "words.json": '{"layers": [{"forward": "fast", "backward": 1, "activation_bytes": 1, "parameter_bytes": 1}]}',
    "good.json": '{"layers": [' + ", ".join([LAYER] * 4) + "]}",
    "edges.json": '{"layers": [' + LAYER + '], "edges": [[0, 9]]}',
    "plan_torn.json": '{"stages": [{"first": 0,',
    "plan_gap.json": json.dumps({"stages": [STAGE, STAGE | {"first": 5, "last": 6}]}),
    "plan_huge.json": '{"stages": [{"first": 0, "last": 0, "replicas": 1, "compute_seconds": 1e999}]}',
    "plan_four.json": json.dumps({"stages": [STAGE, STAGE | {"first": 1, "last": 1}, STAGE | {"first": 2, "last": 2}, STAGE | {"first": 3, "last": 3}]}),
    "plan_long.json": json.dumps({"stages": [STAGE, STAGE | {"first": 1, "last": 8}]}),
    "comma.safetensors": safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},}', b"\0" * 4),
    "torn.safetensors": safetensors('{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}', b"\0" * 4),
    "words.safetensors": safetensors('{"a":{"dtype":"F32","shape":["x"],"data_offsets":[0,4]}}', b"\0" * 4),
    "short.safetensors": b"abc",
    "longer.safetensors": struct.pack("<Q", 1 << 60) + b"{}",
    "cluster.toml": "[[devices]]\nname = 1\n",
    "torn.toml": "[model\n",
    "bare.toml": "[model]\nname = mlp\n",
    "rate.toml": "[train]\nlearning_rate = 0.1\n",
    "flight_torn/rank-0.json": '{"rank": 0,',
    "flight_list/rank-0.json": "[]",
    "flight_number/rank-0.json": '{"rank": 1e999}',
    "flight_empty/notes.txt": "",
    "run_torn/summary.json": '{"model": "mlp", "steps": 1',
    "run_torn/config.toml": "[model]\n",
    "run_number/summary.json": '{"steps": 1e999}',
    "run_words/summary.json": '{"steps": "many", "epochs": 1}',
    "run_words/metrics.jsonl": "",
    "run_good/config.toml": "[model]\nname = \"mlp\"\n",
    "ckpt/checkpoints/step-3/manifest.json": '{"format": 1e999,}',
    "ckpt/checkpoints/step-3/COMMITTED": "",
    "secret": "too short",
    "hosts": "node1 slots=many\n",
    "program.txt": "not a program",
    "trace.txt": "1ms\nsoon\n",
}

train = ["train", TINY, "--out.dir", "{out}"]

ROWS = {
    "words": [
        ("trian", 2, "`yoke trian`: there is no such command. Did you mean `yoke train`?"),
        ("trace --help", 2, "`yoke trace`: there is no such command"),
        ("bench stpe", 2, "Did you mean `yoke bench step`?"),
        ("lab straglers x", 2, "Did you mean `yoke lab stragglers`?"),
        ("ckpt list x", 2, "`yoke ckpt list`: there is no such command"),
        ("model infos lenet", 2, "Did you mean `yoke model info`?"),
        ("config", 2, "subcommand"),
        ("env extra", 2, "extra"),
        ("doctor --fast", 2, "--fast: `yoke doctor` has no such option"),
        ("env --jsn", 2, "Did you mean --json?"),
    ],
    "train": [
        (train + ["--lr", "0.1"], 2, "Did you mean --train.lr?"),
        (train + ["--epochs", "3"], 2, "Did you mean --train.epochs?"),
        (train + ["--batch-size", "3"], 2, "Did you mean --data.batch_size?"),
        (train + ["--nproc_per_node", "2"], 2, "Did you mean --nproc?"),
        (train + ["--world-size", "2"], 2, "Did you mean --nproc?"),
        (train + ["--gpus", "2"], 2, "Did you mean --nproc?"),
        (train + ["--resume_from", "run"], 2, "Did you mean --resume?"),
        (train + ["--fp16"], 2, "Did you mean --train.precision fp16?"),
        (train + ["--amp"], 2, "Did you mean --train.precision bf16?"),
        (train + ["--num-workers", "2"], 2, "Did you mean --data.workers?"),
        (train + ["--train.learning_rate", "1"], 2, "Did you mean `train.lr`?"),
        (train + ["--train.batch_size", "1"], 2, "Did you mean `data.batch_size`?"),
        (train + ["--data.samples", HUGE], 2, f"data.samples = {HUGE}"),
        (train + ["--parallel.sync", "threads", "--parallel.data", HUGE], 2, "an integer from 0 to 65536"),
        (train + ["--train.accumulate", HUGE], 2, "an integer from 1 to 1000000"),
        (["train", GPT, "--data.seq_len", HUGE], 2, f"data.seq_len = {HUGE}"),
        (train + ["--nproc", "0"], 2, "--nproc"),
        (train + ["--nproc", "two"], 2, "--nproc"),
        (train + ["more.toml"], 2, "more.toml"),
        (["train", "{torn.toml}"], 2, "torn.toml:1: not valid TOML"),
        (["train", "{bare.toml}"], 2, 'Strings need quotes: name = "mlp".'),
        (["train", "{rate.toml}"], 2, "Did you mean `train.lr`?"),
        (["train", "{out}"], 2, "no such configuration file"),
        (["train", "configs"], 2, "configs"),
        (train + ["--data.batch_size", HUGE], 2, f"data.batch_size = {HUGE}"),
        (train + ["--model.sizes", f"784,{HUGE},10"], 2, "model.sizes: a layer of " + HUGE),
        (["train", "configs/sparse_lr.toml", "--model.features", HUGE], 2, f"model.features = {HUGE}"),
        (["train", GPT, "--model.layers", HUGE], 2, f"model.layers = {HUGE}"),
        (["train", GPT, "--model.positions", HUGE], 2, f"model.positions = {HUGE}"),
        (["train", GPT, "--nproc", "2", "--model.vocabulary", HUGE], 2, f"model.vocabulary = {HUGE}"),
        (["train", "configs/s2vt_synthetic.toml", "--model.frames", HUGE], 2, f"model.frames = {HUGE}"),
        (["train", "configs/lenet_fashion.toml", "--model.classes", HUGE], 2, f"model.classes = {HUGE}"),
        (["train", "configs/vgg16_synthetic.toml", "--model.image_size", HUGE], 2, f"model.image_size = {HUGE}"),
        (train + ["--nproc", "4", "--parallel.pipeline", "4"], 2, "the model has 2 blocks"),
        (train + ["--nproc", "3", "--parallel.pipeline", "2"], 2, "a multiple of 2 is needed"),
        (train + ["--nproc", "2", "--parallel.data", "3"], 2, "the mesh has 3"),
        (train + ["--nproc", "2", "--parallel.sync", "ps", "--parallel.data", "3"], 2, "the mesh has 3"),
        (train + ["--nproc", "2", "--parallel.sync", "ps", "--ps.policy", "k_sync", "--ps.k", "5"], 2, "5"),
        (train + ["--nproc", "2", "--parallel.plan", "{plan_torn.json}"], 2, "plan_torn.json:1: not valid JSON"),
        (train + ["--nproc", "2", "--parallel.plan", "{plan_huge.json}"], 2, "1e999"),
        (train + ["--nproc", "2", "--parallel.plan", "{plan_gap.json}"], 2, "start at layer 1"),
        (train + ["--nproc", "2", "--parallel.plan", "{plan_four.json}"], 2, "the plan has 4 devices, but 2 ranks"),
        (train + ["--nproc", "2", "--parallel.plan", "{plan_long.json}"], 2, "the plan has 9 layers, but mlp has 2 blocks"),
        (train + ["--nproc", "2", "--parallel.plan", "{none.json}"], 2, "none.json"),
        (train + ["--nproc", "2", "--parallel.pipeline", "2", "--pipeline.stages", "0-9,10-11"], 2, "blocks 0 to 1"),
        (train + ["--nproc", "2", "--parallel.pipeline", "2", "--pipeline.microbatches", "1000"], 2, "pipeline.microbatches = 1000"),
        (train + ["--nproc", "2", "--parallel.backend", "ssh"], 2, "one of auto, shm"),
        (train + ["--init", "{comma.safetensors}"], 2, "not valid JSON at byte"),
        (train + ["--resume", "{none}"], 5, "none"),
    ],
    "eval, model, ckpt": [
        (["eval", TINY], 2, "--init is required"),
        (["eval", TINY, "--init", "{torn.safetensors}"], 2, "torn.safetensors"),
        (["eval", TINY, "--init", "{words.safetensors}"], 2, "shape"),
        (["eval", TINY, "--init", "{longer.safetensors}"], 2, "header length"),
        ("data tokens", 2, "FILES is required"),
        (["data", "tokens", "{good.json}"], 2, "--output is required"),
        (["data", "tokens", "{empty.json}", "-o", "{out}"], 2, "empty.json: the file is empty"),
        (["data", "tokens", "{good.json}", "-o", "{out}", "--tokenizer", "{torn.json}"], 2, "torn.json:1: not valid JSON"),
        (["data", "tokens", "{good.json}", "-o", "{out}", "--tokenizer", "{list.json}"], 2, "is not a JSON object"),
        (["data", "tokens", "{good.json}", "-o", "{out}", "--tokenizer", "{good.json}"], 2, "no pre_tokenizer"),
        (["data", "tokens", "{good.json}", "-o", "{out}", "--validation", "1.5"], 2, "--validation"),
        (["data", "tokens", "{short.safetensors}", "-o", "{out}", "--validation", "0.1"], 2, "3 tokens: too few"),
        ("data token x", 2, "Did you mean `yoke data tokens`?"),
        ("generate", 2, "PATH is required"),
        (["generate", "{run_good}"], 5, "no checkpoint"),
        (["generate", "{ckpt}"], 5, "step-3"),
        (["generate", "{run_good}", "--temperature", "-1"], 2, "--temperature"),
        (["generate", "{run_good}", "--temperature", "0", "--seed", "3"], 2, "--temperature 0 draws nothing"),
        (["generate", "{run_good}", "--top-p", "2"], 2, "--top-p"),
        (["generate", "{run_good}", "--tokens", "0"], 2, "--tokens"),
        (["generate", "{run_good}", "--train.lr", "0.1"], 2, "takes no configuration keys"),
        (["model", "info", "lenet", "--seed", "1"], 2, "Did you mean --train.seed?"),
        (["model", "info", "sparse_lr", "--model.features", HUGE], 2, f"model.features = {HUGE}"),
        (["model", "export", "lenet", "-o", "{none}/x/y.safetensors"], 2, "y.safetensors"),
        (["ckpt", "import", "{short.safetensors}", "-o", "{out}"], 2, "too short"),
        (["ckpt", "verify", "{run_good}"], 5, "no checkpoint here"),
        (["ckpt", "export", "{ckpt}", "-o", "{out}.safetensors"], 5, "step-3"),
        (["ckpt", "export", "{run_good}"], 2, "--output is required"),
    ],
    "bench": [
        ("bench collectives --nproc 2 --backend local --algorithm ring", 2, "--algorithm ring: backend local has direct"),
        ("bench collectives --nproc 2 --backend shm --algorithm tree", 2, "--algorithm tree: backend shm has direct"),
        ("bench collectives --nproc 2 --algorithm ring", 2, "--algorithm ring: backend shm has direct"),
        ("bench collectives --nproc 2 --backend tcp --op all_to_all --algorithm ring", 2, "--algorithm ring: backend tcp has"),
        ("bench collectives --nproc 2 --backend mpi --algorithm ring", 2, "choose their own"),
        ("bench collectives --nproc 2 --backend ssh", 2, "--backend ssh: unknown"),
        ("bench collectives --nproc 2 --op all_redcue", 2, "all_redcue"),
        ("bench collectives --nproc 2 --bytes lots", 2, "--bytes lots"),
        ("bench collectives --nproc 2 --bytes 4000000000GB", 2, "--bytes"),
        ("bench collectives --nproc 2 --bytes 9000TB", 2, "this machine has"),
        ("bench collectives --nproc 2 --dtype fp8", 2, "fp8"),
        ("bench collectives --nproc 2 --reduce average", 2, "average"),
        ("bench collectives --nproc 2 --memory mine", 2, "--memory mine"),
        ("bench kernels --device tpu", 2, "--device"),
        ("bench kernels --precision bf16", 2, "--precision fp32"),
        ("bench kernels --rows 3000000", 2, "--rows"),
        ("bench average --bytes x", 2, "--bytes x"),
        ("bench average --peers 2 --link 1mbit", 2, "--link has 1 rates for --peers 2"),
        ("bench average --peers 2 --link 1mbit,fast", 2, "--link fast"),
        ("bench average --peers 0", 2, "--peers: Value 0"),
        ("collab start configs/nope.toml", 2, "configs/nope.toml"),
        ("collab start configs/mlp_tiny.toml --target-batch 0", 2, "--target-batch"),
        ("collab start configs/mlp_tiny.toml --robust mean", 2, "centered_clip"),
        ("collab start configs/mlp_tiny.toml --collab.bandwidth fast", 2, "20mbit"),
        ("collab start configs/mlp_tiny.toml --parallel.pipeline 2", 2, "parallel.pipeline"),
        ("collab start configs/mlp_tiny.toml --train.precision fp16", 2, "fp16"),
        ("collab start configs/mlp_tiny.toml --train.optimizer lbfgs", 2, "lbfgs"),
        ("collab start configs/mlp_tiny.toml --collab.suspects 2", 2, "only krum"),
        ("collab join nowhere.ticket", 2, "nowhere.ticket"),
        ("collab join yoke1/a:1/b", 2, "3 parts between slashes"),
        ("collab watch yoke1/a", 2, "2 parts between slashes"),
        ("bench messenger --backend udp", 2, "--backend udp"),
        ("bench messenger --bytes x", 2, "--bytes x"),
        ("bench messenger --bytes 9000TB", 2, "--bytes 9000TB"),
        ("bench messenger --seconds 0", 2, "--seconds"),
        ("bench ps --policy fast --workers 2", 2, "fast"),
        ("bench ps --policy k_sync --workers 2 --k 5", 2, "5"),
        ("bench ps --policy sync --workers 0", 2, "--workers 0"),
        ("bench ps --policy sync --workers 2 --clock wall", 2, "wall"),
        ("bench ps --policy sync --workers 2 --delay trace:{trace.txt}", 2, "trace.txt"),
        ("bench ps --policy sync --workers 2 --delay weibull:5ms", 2, "weibull"),
        ("bench scaling --model nope --nproc 1,2", 2, "nope"),
        ("bench scaling --nproc 1", 2, "--model"),
        ("bench scaling --model mlp --nproc 1 --batch 0", 2, "an integer of at least 1"),
        ("bench scaling --model mlp --nproc 1,2 --parallel.pipeline 4", 2, "parallel.pipeline = 4"),
        (["bench", "scaling", "--model", "sparse_lr", "--nproc", "2", "--model.features", HUGE], 2, f"model.features = {HUGE}"),
        (["bench", "step", "--model", "mlp", "--batch", HUGE], 2, f"data.batch_size = {HUGE}"),
        (["bench", "step", "--model", "sparse_lr", "--model.features", HUGE], 2, f"model.features = {HUGE}"),
    ],
    "plan, simulate, partition": [
        ("plan --profile {huge.json} --devices 2 --bandwidth 1gbit", 2, "1e999"),
        ("plan --profile {torn.json} --devices 2 --bandwidth 1gbit", 2, "truncated"),
        ("plan --profile {comma.json} --devices 2 --bandwidth 1gbit", 2, "comma.json:1: not valid JSON"),
        ("plan --profile {words.json} --devices 2 --bandwidth 1gbit", 2, "expected a number"),
        ("plan --profile {list.json} --devices 2 --bandwidth 1gbit", 2, "list.json"),
        ("plan --profile {edges.json} --devices 2 --bandwidth 1gbit", 2, "edge [0, 9]"),
        ("plan --profile {none.json} --devices 2 --bandwidth 1gbit", 2, "none.json"),
        ("plan --profile {good.json} --cluster {cluster.toml}", 2, "cluster.toml:1"),
        ("plan --profile {good.json} --devices 2 --bandwidth 1gbit -o {none}/p.json", 2, "p.json"),
        (["plan", "--profile", "{good.json}", "--devices", HUGE, "--bandwidth", "1gbit"], 2, "--devices"),
        ("simulate --plan {plan_torn.json}", 2, "plan_torn.json:1: not valid JSON"),
        ("simulate --plan {plan_huge.json}", 2, "1e999"),
        ("simulate --schedule 1f2b --stages 2 --microbatches 2 --forward 1 --backward 1", 2, "1f2b"),
        ("simulate --schedule 1f1b --stages 0 --microbatches 2 --forward 1 --backward 1", 2, "--stages 0"),
        ("simulate --schedule 1f1b --stages 3 --microbatches 2 --forward 1,2 --backward 1", 2, "3"),
        ("simulate --schedule 1f1b --stages 2 --microbatches 2 --forward 1e999 --backward 1", 2, "--forward 1e999"),
        (["simulate", "--schedule", "gpipe", "--stages", "100000", "--microbatches", "9000000", "--forward", "1", "--backward", "1"], 2, "actions"),
        ("partition {torn.json} --parts 2", 2, "torn.json:1: not valid JSON"),
        ("partition {good.json} --parts 0", 2, "0"),
        ("partition {good.json} --parts 2 --weight mass", 2, "mass"),
        ("partition {good.json} --parts 2 --balance 0.5", 2, "0.5"),
        ("topo show {cluster.toml}", 2, "cluster.toml:1"),
        ("topo show --preset dgx9", 2, "dgx9"),
        ("topo show {none.toml}", 2, "none.toml"),
        ("topo predict --op all_reduce --bytes x --preset dgx1", 2, "--bytes x"),
        (["topo", "show", "--preset", "dgx1", "--machines", HUGE], 2, "--machines"),
    ],
    "report, why, run, verify, profile, lab, config": [
        ("report {run_torn}", 2, "run_torn/summary.json"),
        ("report {run_number}", 2, "run_number/summary.json"),
        ("report {run_words}", 2, "\"steps\" is a string"),
        ("report {run_good} --baseline {none}", 2, "summary.json"),
        ("report {none}", 2, "not a run folder"),
        ("why {flight_torn}", 2, "rank-0.json is not a flight record"),
        ("why {flight_list}", 2, "rank-0.json is not a flight record"),
        ("why {flight_number}", 2, "rank-0.json is not a flight record"),
        ("why {flight_empty}", 2, "no flight records"),
        ("why {none}", 2, "is not a folder"),
        ("ps top {none}", 2, "no job runs there"),
        ("ps top {hosts}", 2, "not a job's contact file"),
        ("ps top {run_good} --interval 0", 2, "above 0"),
        ("ps top {run_good} --once --interval 2", 2, "--once shows one state"),
        ("ps leave {run_good}", 2, "SERVER"),
        ("ps leave {run_good} first", 2, "first"),
        ("ps leave {run_good} 1", 2, "no job runs there"),
        ("run", 2, "PROGRAM"),
        ("run --nproc 2 {none}", 2, "none"),
        ("run --nproc 2 {program.txt}", 2, "program.txt"),
        ("run --nproc many true", 2, "many"),
        ("run --nporc 2 true", 2, "Did you mean --nproc?"),
        ("run --hostfile {hosts} true", 2, "hosts:1"),
        ("run --nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:1 --secret-file {secret} true", 2, "secret"),
        (["verify", TINY, "--layouts", ";"], 2, "--layouts"),
        (["verify", TINY, "--layouts", "dota=2"], 2, "dota"),
        (["verify", TINY, "--layouts", "data=x"], 2, "x"),
        (["verify", TINY, "--layouts", "pipeline=9"], 2, "the model has 2 blocks"),
        (["verify", TINY, "--layouts", "data=2", "--dtype", "fp8"], 2, "fp8"),
        (["verify", TINY], 2, "--layouts is required"),
        (["profile", TINY, "--repeats", "0"], 2, "--repeats"),
        (["profile", "{bare.toml}"], 2, "Strings need quotes"),
        (["profile", TINY, "--data.batch_size", HUGE], 2, f"data.batch_size = {HUGE}"),
        (["lab", "stragglers", TINY, "--workers", "2", "--k", "7"], 2, "7"),
        (["lab", "stragglers", TINY, "--policies", "sync,fast"], 2, "fast"),
        (["lab", "stragglers", TINY, "--delay", "exp:soon"], 2, "soon"),
        (["lab", "stragglers", "{none.toml}"], 2, "none.toml"),
        (["lab", "sparse", "{none.txt}"], 2, "none.txt"),
        (["lab", "sparse", "--max-delay", "0,-1"], 2, "-1"),
        (["lab", "downpour", TINY, "--methods", "sgd,fast"], 2, "fast"),
        (["lab", "downpour", TINY, "--target-accuracy", "95"], 2, "95"),
        (["config", "show", "{torn.toml}"], 2, "torn.toml:1"),
        (["config", "show", TINY, "--train.optimiser", "sgd"], 2, "Did you mean `train.optimizer`?"),
    ],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("wrong")
    for name, content in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def problems_of(yoke, folder, row):
    words, code, says = row
    words = words.split() if isinstance(words, str) else words
    words = [f"{folder}/{word[1:].replace('}', '')}" if word.startswith("{") else word for word in words]
    words = [word.replace("trace:{trace.txt}", f"trace:{folder}/trace.txt") for word in words]
    result = yoke(*words, code=None, timeout=120)
    problems = []
    if result.code != code:
        problems.append(f"exit {result.code}, not {code}")
    if says not in result.err:
        problems.append(f"does not say {says!r}")
    if result.out:
        problems.append(f"stdout: {result.out[:200]!r}")
    for never in ("json.exception", "terminate called", "c10::", "the job failed", "[rank", "Exception raised"):
        if never in result.err:
            problems.append(f"says {never!r}")
    if len(result.err.strip().splitlines()) > 3:
        problems.append("is longer than three lines")
    return [f"yoke {' '.join(words)}: {'; '.join(problems)}\n    {result.err[:600]}"] if problems else []


@pytest.mark.parametrize("group", ROWS)
def test_wrong_requests_are_refused_before_anything_starts(yoke, folder, group):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        problems = sum(pool.map(lambda row: problems_of(yoke, folder, row), ROWS[group]), [])
    assert not problems, f"{len(problems)} of {len(ROWS[group])}\n" + "\n".join(problems)


def test_the_table_covers_every_command():
    rows = [row for group in ROWS.values() for row in group]
    assert len(rows) >= 60
    words = [row[0] if isinstance(row[0], str) else " ".join(row[0]) for row in rows]
    for command in ("train", "eval", "model info", "model export", "bench step", "bench kernels", "bench scaling", "bench collectives", "bench messenger",
                    "bench ps", "data tokens", "generate", "ckpt verify", "ckpt export", "ckpt import", "config show", "doctor", "report", "run", "env", "topo show",
                    "topo predict", "why", "profile", "plan", "simulate", "partition", "verify", "lab stragglers", "lab downpour",
                    "bench average", "collab start", "collab join", "collab watch", "ps top", "ps leave"):
        assert any(line.startswith(command) for line in words), command
