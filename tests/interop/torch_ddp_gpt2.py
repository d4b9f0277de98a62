"""One rank of PyTorch's own DistributedDataParallel on Hugging Face's GPT-2: the losses it sees, on stdout."""
import json
import os
import sys

import numpy
import torch
import torch.distributed as dist
import transformers
from safetensors.torch import load_file

weights, tokens_file, steps, batch, length = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
sizes = json.loads(sys.argv[6])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
config = transformers.GPT2Config(n_layer=sizes["layers"], n_head=sizes["heads"], n_embd=sizes["width"],
                                 vocab_size=sizes["vocabulary"], n_positions=sizes["positions"],
                                 resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = transformers.GPT2LMHeadModel(config)
model.transformer.load_state_dict(load_file(weights), strict=True)
model.tie_weights()
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
tokens = torch.from_numpy(numpy.fromfile(tokens_file, dtype=numpy.uint16).astype(numpy.int64))
losses = []
for step in range(steps):
    first = step * batch * size + rank * batch
    rows = torch.stack([tokens[i * length:i * length + length + 1] for i in range(first, first + batch)])
    optimizer.zero_grad()
    logits = ddp(rows[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(mean.item() / size)
if rank == 0:
    print(json.dumps(losses), flush=True)
dist.destroy_process_group()
os._exit(0)  # Gloo's threads have been seen to abort the interpreter on its way out
