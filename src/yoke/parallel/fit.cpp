#include "yoke/parallel/fit.h"

#include <algorithm>
#include <numeric>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/models/outline/outline.h"
#include "yoke/parallel/average_checks.h"
#include "yoke/parallel/membership.h"
#include "yoke/parallel/placement/stage/layout.h"
#include "yoke/plan/partition/partition_file.h"

namespace yoke::parallel {
namespace {

const char* plural(int64_t count) {
  return count == 1 ? "" : "s";
}

// The model cut into stages, as the ranks would do it; costs do not matter here.
void check_cut(const PipelineOptions& options, const Shape& shape, int stages, int copies,
               const std::vector<int>& replicas) {
  auto blocks = static_cast<size_t>(models::outline_of(shape.model).blocks);
  make_layout(options, stages, copies, std::vector<double>(blocks, 1.0), shape.batch_size, replicas);
}

int parts_of_file(const ParallelOptions& parallel) {
  const int parts = plan::read_partition(parallel.partition).parts;
  if (parallel.pipeline > 1 && parallel.pipeline != parts)
    throw ConfigError("parallel.pipeline = {} with parallel.partition = \"{}\", which has {} parts.",
                      parallel.pipeline, parallel.partition, parts);
  return parts;
}

}  // namespace

int parts_of(const Choices& choices, int workers) {
  const ParallelOptions& parallel = choices.parallel;
  int64_t parts = parallel.pipeline;
  if (parallel.partition != "auto")
    parts = parts_of_file(parallel);
  else if (parts == 1)
    parts = std::max<int64_t>(1, workers / std::max<int64_t>(1, parallel.data));
  const Mesh mesh = fit_mesh(workers, parts, parallel.data, 1);
  if (mesh.pipeline < 2)
    throw ConfigError(
        "parallel.partition = \"{}\": one part on {} rank{}. Next: start more ranks with --nproc N, or set "
        "parallel.data = 1.",
        parallel.partition, workers, plural(workers));
  return mesh.pipeline;
}

Mesh mesh_of(const Choices& choices, int workers) {
  const ParallelOptions& axes = choices.parallel;
  if (in_one_process(choices)) return {.data = static_cast<int>(std::max<int64_t>(1, axes.data))};
  workers -= choices.spares;
  if (!axes.partition.empty() && workers > 1)
    return fit_mesh(workers, parts_of(choices, workers), axes.data, 1);
  const std::vector<int>& replicas = choices.stage_replicas;
  if (replicas.empty()) return fit_mesh(workers, axes.pipeline, axes.data, axes.tensor);
  // Replicas of a stage take micro-batches in turn: a copy of the pipeline has more ranks than stages.
  Mesh mesh = fit_mesh(workers, std::accumulate(replicas.begin(), replicas.end(), 0), axes.data, axes.tensor);
  mesh.pipeline = static_cast<int>(replicas.size());
  return mesh;
}

void check_plan(const Choices& choices, const Shape& shape, const plan::PipelinePlan& plan, int workers) {
  const std::string& file = choices.parallel.plan;
  std::vector<int> replicas;
  PipelineOptions options = choices.pipeline;
  options.stages.clear();
  for (const plan::PipelineStage& stage : plan.stages) {
    replicas.push_back(stage.replicas);
    options.stages += fmt::format("{}{}-{}", options.stages.empty() ? "" : ",", stage.first, stage.last);
  }
  int devices = std::accumulate(replicas.begin(), replicas.end(), 0);
  if (workers % devices != 0 || (choices.parallel.data > 0 && choices.parallel.data * devices != workers))
    throw ConfigError(
        "parallel.plan = \"{}\": the plan has {} device{}, but {} rank{} were started. Use --nproc {}.", file,
        devices, plural(devices), workers, plural(workers), devices);
  auto blocks = models::outline_of(shape.model).blocks;
  if (plan.stages.back().last + 1 != blocks)
    throw ConfigError(
        "parallel.plan = \"{}\": the plan has {} layers, but {} has {} blocks. Create it from a profile of "
        "this model: yoke profile --blocks.",
        file, plan.stages.back().last + 1, shape.model.name, blocks);
  if (replicas.size() > 1)
    check_cut(options, shape, static_cast<int>(replicas.size()), workers / devices, replicas);
}

void check_workers(const Choices& choices, const Shape& shape, int workers) {
  const std::string& plan = choices.parallel.plan;
  if (in_one_process(choices)) {
    if (workers > 1)
      throw ConfigError("parallel.sync = threads runs in one process, but there are {} ranks.", workers);
    return;
  }
  if (!choices.parallel.partition.empty()) return static_cast<void>(parts_of(choices, workers));
  if (plan == "auto") return;  // made when they have met
  if (!plan.empty()) return check_plan(choices, shape, plan::parse_plan(read_file(plan), plan), workers);
  const Mesh mesh = mesh_of(choices, workers);
  check_average_replicas(choices, mesh.data);
  if (mesh.pipeline > 1) check_cut(choices.pipeline, shape, mesh.pipeline, mesh.data, {});
}

}  // namespace yoke::parallel
