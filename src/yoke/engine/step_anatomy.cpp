#include "yoke/engine/step_anatomy.h"

#include "yoke/compute/device.h"
#include "yoke/engine/machine_speed.h"
#include "yoke/engine/out_of_memory.h"

namespace yoke::engine {
namespace {

constexpr int kTraces = 3;

double seconds_of(const PassTrace& pass) {
  return pass.points.empty() ? 0 : pass.points.back().seconds;
}

StepAnatomy dissect(Worker& worker, const WorkerOptions& options) {
  StepAnatomy out;
  out.flops_per_sample = worker.model.step_flops_per_sample;
  out.held = held_memory(worker);
  for (const models::Block& block : worker.model.blocks) out.block_names.push_back(block.name);
  StepProbe probe(worker, options);
  out.blocks = probe.block_costs(options.batch_size);
  out.forward_calls = compute::forward_calls(worker.segments);
  out.activation_bytes = compute::peak_bytes(worker.segments, out.blocks);
  probe.trace(worker.segments, options.batch_size);  // libraries allocate their workspaces
  out.pass = probe.trace(worker.segments, options.batch_size);
  for (int i = 1; i < kTraces; ++i) {
    PassTrace again = probe.trace(worker.segments, options.batch_size);
    if (seconds_of(again) < seconds_of(out.pass)) out.pass = std::move(again);
  }
  out.gradients = probe.gradient_sizes(options.batch_size);
  if (!compute::recompute_budget(options.compute.recompute))
    out.needs = step_needs(probe, worker, options.compute.recompute);
  compute::release_freed_memory(worker.device);
  out.free_bytes = static_cast<double>(compute::memory_room(worker.device).free);
  out.matmul_flops = matmul_flops(worker.device, worker.precision);
  out.copy_bytes_per_s = copy_bandwidth(worker.device);
  return out;
}

}  // namespace

StepAnatomy dissect_step(const WorkerOptions& options) {
  auto worker = make_worker(options);
  try {
    return dissect(*worker, options);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw OutOfMemory(describe_out_of_memory(error, "in a step", *worker, options));
  }
}

}  // namespace yoke::engine
