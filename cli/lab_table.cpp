// Every lab: its name, what it asks, how long it takes, and who runs it.
#include "cli/lab.h"
#include "cli/lab_arguments.h"
#include "cli/lab_averaging_command.h"
#include "cli/lab_batch.h"
#include "cli/lab_collectives.h"
#include "cli/lab_compare.h"
#include "cli/lab_downpour_command.h"
#include "cli/lab_memory.h"
#include "cli/lab_pipeline.h"
#include "cli/lab_precision.h"
#include "cli/lab_scaling.h"
#include "cli/lab_sparse_command.h"
#include "cli/lab_staleness.h"
#include "cli/lab_stall.h"
#include "cli/lab_stragglers.h"
#include "cli/lab_throughput.h"
#include "cli/lab_topology.h"

namespace yoke::cli {

const std::vector<LabRow>& labs() {
  static const std::vector<LabRow> rows = {
      {.name = "averaging",
       .question = "Periodic averaging instead of a sum in every step: what does it save on a slow link?",
       .time = "2 minutes",
       .example = "yoke lab averaging --methods ddp,local --bandwidth 1gbit",
       .add_options = [](CLI::App& app, CommandLine& line) { add_options(app, line.lab_averaging); },
       .trains = true,
       .run = run_lab_averaging},
      {.name = "batch",
       .question = "Which learning rate suits which batch size, and when does a larger batch stop paying?",
       .time = "2 minutes",
       .example = "yoke lab batch --batches 2,8,32,128 --lr 0.05",
       .options = kBatchOptions,
       .run = run_lab_batch},
      {.name = "collectives",
       .question = "Ring, tree, star or direct: which collective is fastest, for how many bytes and ranks?",
       .time = "1 minute",
       .example = "yoke lab collectives --nproc 2,4 --preset h100 --machines 4",
       .options = kCollectivesOptions,
       .run = run_lab_collectives},
      {.name = "compare",
       .question = "One model, one cluster with a slow worker: which strategy reaches an accuracy first?",
       .time = "3 minutes",
       .example = "yoke lab compare --workers 4 --bandwidth 1gbit --slow 2",
       .options = kCompareOptions,
       .run = run_lab_compare},
      {.name = "downpour",
       .question = "SGD, Downpour or Sandblaster L-BFGS: which reaches an accuracy first?",
       .time = "1 minute",
       .example = "yoke lab downpour --workers 4 --epochs 8",
       .add_options = [](CLI::App& app, CommandLine& line) { add_options(app, line.lab_downpour); },
       .trains = true,
       .run = run_lab_downpour},
      {.name = "memory",
       .question = "What does a step hold in memory, and what do recomputation and ZeRO leave of it?",
       .time = "2 minutes",
       .example = "yoke lab memory --model gpt2 --layers 12 --ranks 4",
       .options = kMemoryOptions,
       .run = run_lab_memory},
      {.name = "pipeline",
       .question = "Which pipeline schedule idles least, what does it keep, and which is accurate first?",
       .time = "1 minute",
       .example = "yoke lab pipeline --stages 4 --microbatches 8",
       .options = kPipelineOptions,
       .run = run_lab_pipeline},
      {.name = "precision",
       .question = "fp32, tf32, fp16 or bf16: what do they cost in time and memory, and what do they lose?",
       .time = "4 minutes",
       .example = "yoke lab precision --precisions fp32,bf16 --steps 60",
       .options = kPrecisionOptions,
       .run = run_lab_precision},
      {.name = "scaling",
       .question = "How does speed grow with the workers, and where does the time go?",
       .time = "2 minutes",
       .example = "yoke lab scaling --model mlp --ways ddp,zero2,pipeline,tensor --nproc 1,2",
       .options = kScalingOptions,
       .run = run_lab_scaling},
      {.name = "sparse",
       .question = "Sparse logistic regression over parameter servers: how much delay pays?",
       .time = "1 minute",
       .example = "yoke lab sparse --examples 20000 --keys 100000 --max-delay 0,4 --delay exp:1ms",
       .add_options = [](CLI::App& app, CommandLine& line) { add_options(app, line.lab_sparse); },
       .run = run_lab_sparse},
      {.name = "staleness",
       .question = "How stale are asynchronous gradients, and what does staleness cost?",
       .time = "5 s",
       .example = "yoke lab staleness --workers 8 --k 4",
       .options = kStalenessOptions,
       .run = run_lab_staleness},
      {.name = "stall",
       .question = "What share of its time does a faster device lose to communication?",
       .time = "20 s",
       .example = "yoke lab stall --preset dgx1 --network 10gbit",
       .options = kStallOptions,
       .run = run_lab_stall},
      {.name = "stragglers",
       .question = "Slow workers: which rule of parameter servers loses least, and for which K?",
       .time = "5 s; --trained 2 minutes",
       .example = "yoke lab stragglers --trained",
       .add_options = [](CLI::App& app, CommandLine& line) { add_options(app, line.lab); },
       .trains = true,
       .run = run_lab_stragglers},
      {.name = "throughput",
       .question = "How does speed grow with the batch, and what limits it: computing or memory?",
       .time = "2 minutes",
       .example = "yoke lab throughput --models lenet,vgg_small --precisions fp32,bf16",
       .options = kThroughputOptions,
       .run = run_lab_throughput},
      {.name = "topology",
       .question = "How are the devices of a machine linked, and which rings run through them?",
       .time = "2 s",
       .example = "yoke lab topology --presets dgx1,h100",
       .options = kTopologyOptions,
       .run = run_lab_topology},
  };
  return rows;
}

}  // namespace yoke::cli
