#include "yoke/engine/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <new>

#include "yoke/base/units.h"
#include "yoke/compute/device.h"
#include "yoke/engine/step_memory.h"

namespace yoke::engine {
namespace {

// The part of free memory that can be counted on: allocators round and lose some to gaps, and convolutions
// take workspaces that grow with the batch.
double usable(const torch::Device& device, int64_t free) {
  return (device.is_cuda() ? 0.9 : 0.85) * static_cast<double>(free);
}

// Recomputation is suggested if it saves at least this fraction.
constexpr double kWorthwhile = 0.05;

std::string bytes_text(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// A number and its unit after `words`; LibTorch writes "2.50 GiB" and "1024 bytes".
std::optional<int64_t> bytes_behind(const std::string& text, const std::string& words) {
  size_t at = text.find(words);
  if (at == std::string::npos) return std::nullopt;
  const char* begin = text.c_str() + at + words.size();
  char* end = nullptr;
  double value = std::strtod(begin, &end);
  if (end == begin) return std::nullopt;
  std::string unit = std::string(end).substr(0, 4);
  double factor = unit == " KiB" ? 1 << 10 : unit == " MiB" ? 1 << 20 : unit == " GiB" ? 1 << 30 : 1;
  return static_cast<int64_t>(value * factor);
}

// Multiples of eight suit the hardware; smaller numbers are used as is.
int64_t advised_batch(const StepNeeds& needs, double free, int64_t asked) {
  int64_t most = std::min(needs.largest_batch(free), asked - 1);
  return most > 16 ? most / 8 * 8 : most;
}

// `free`: bytes available for a step. The worker must not have a strategy that communicates.
std::string advice(Worker& worker, const WorkerOptions& options, double free) {
  StepProbe probe(worker, options);
  const bool recomputes = options.compute.recompute != "none";
  StepNeeds now = step_needs(probe, worker, recomputes ? "blocks" : "none");
  int64_t batch = advised_batch(now, free, options.batch_size);
  std::string hint =
      batch >= 1 ? fmt::format("data.batch_size = {} should fit", batch)
                 : "no batch fits: use a smaller model, or shard it (parallel.zero, parallel.pipeline)";
  if (!recomputes && worker.model.blocks.size() > 1) {
    StepNeeds again = step_needs(probe, worker, "blocks");
    int64_t more = std::min(again.largest_batch(free), options.batch_size);
    if (again.sample < (1 - kWorthwhile) * now.sample && more > batch)
      hint += fmt::format("; with train.recompute = \"blocks\" a sample takes {}, and a batch of {} fits",
                          format_bytes(again.sample), more);
  }
  return fmt::format("activations about {} per sample. Hint: {}.", format_bytes(now.sample), hint);
}

// Strategies of one rank may hold recorded steps with all their memory; others would communicate.
void drop_recorded_steps(Worker& worker, const WorkerOptions& options) {
  if (!options.has_peers() && worker.device.is_cuda()) worker.strategy.reset();
}

// Hooks of replicas and servers would communicate.
bool can_probe(const Worker& worker, const WorkerOptions& options) {
  return !(options.has_peers() && (worker.strategy || options.sync_batchnorm));
}

// The same model without peers and optimizer state.
std::unique_ptr<Worker> copy_without_peers(const WorkerOptions& options) {
  WorkerOptions alone = options.alone();
  alone.compute.recompute = "none";
  alone.optimizer = {};
  return make_worker(alone);
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return false;  // already explained, or from a peer
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string what = error.what();
  for (const char* words : {"can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED"})
    if (what.find(words) != std::string::npos) return true;
  return false;
}

std::optional<int64_t> requested_bytes(const std::string& text) {
  for (const char* words : {"Tried to allocate ", "tried to allocate ", "out of memory: cannot allocate "})
    if (auto bytes = bytes_behind(text, words)) return bytes;
  return std::nullopt;
}

std::string describe_out_of_memory(const std::exception& error, const std::string& doing, Worker& worker,
                                   const WorkerOptions& options) {
  std::optional<int64_t> asked = requested_bytes(error.what());
  drop_recorded_steps(worker, options);
  std::string message = fmt::format("out of memory on {} {}", worker.device.str(), doing);
  if (asked) message += fmt::format(": allocation of {} failed", bytes_text(*asked));
  if (!worker.model.module) return message + ". Hint: a smaller model (model.* keys).";
  try {
    for (torch::Tensor& parameter : worker.model.module->parameters()) parameter.mutable_grad().reset();
    compute::release_freed_memory(worker.device);
    HeldMemory held = held_memory(worker);
    compute::MemoryRoom room = compute::memory_room(worker.device);
    message +=
        fmt::format("; without the step {} of {} are free. Weights take {}, gradients {}, optimizer state {}",
                    bytes_text(room.free), bytes_text(room.total), bytes_text(held.weights),
                    bytes_text(held.gradients), bytes_text(held.optimizer));
    const bool whole = worker.optimizer && !options.holds_part();
    const double free = usable(worker.device, room.free);
    if (whole && can_probe(worker, options)) return message + ", " + advice(worker, options, free);
    if (whole) return message + ", " + advice(*copy_without_peers(options), options, free);
  } catch (const std::exception&) {
    // Not even small steps fit: use what is known.
  }
  return message +
         ". Hint: a smaller data.batch_size or model, train.recompute = \"blocks\", or parallel.zero = 2.";
}

}  // namespace yoke::engine
