// Bytes held and bytes sent against the formulas of ZeRO (Rajbhandari et al. 2020).
#include <gtest/gtest.h>

#include "yoke/compute/memory_meter.h"
#include "yoke/parallel/placement/sharded/sharded_units.h"
#include "yoke/parallel/sync/sharded/sharded_runs_for_tests.h"
#include "yoke/parallel/sync/sharded/zero_strategy.h"

namespace yoke::parallel::sharded_testing {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kUnit = (128 * 128 + 128) * 4;  // bytes of a layer of wide_mlp()

// Many blocks of one size, few activations.
Layout wide_mlp() {
  Layout run;
  run.model.sizes = std::vector<int64_t>(13, 128);
  run.type = torch::kFloat32;
  run.ranks = kRanks;
  run.shard = gathering();
  return run;
}

int64_t bytes_of(const std::vector<optim::NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

// What one rank holds at most during a step: tensors that LibTorch allocated, counted from the built model
// on, and memory of the communicator.
struct Peak {
  int64_t tensors = 0;
  int64_t shards = 0, in_flight = 0;
  int64_t all() const { return tensors + shards + in_flight; }
};

Peak peak_of_fully(const Layout& run) {
  Peak peak;
  comm::run_ranks(run.ranks, [&](comm::Communicator& comm) {
    models::Model model = build(run);
    FullyShard shard(model, comm, run.shard);
    compute::MemoryMeter meter;
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.enabled = false});
    FullyShardedStrategy strategy(model, *optimizer, scaler, device_options(run, model), shard);
    for (int step = 0; step < 3; ++step) take_step(strategy, model, run, step, comm.rank(), run.ranks);
    if (comm.rank() == 0) peak = {meter.peak_bytes(), shard.memory().shards, shard.memory().in_flight};
  });
  return peak;
}

// Parameters are whole here, and buckets lie in memory of the communicator.
int64_t peak_of_zero(const Layout& run, int64_t stage) {
  int64_t peak = 0;
  comm::run_ranks(run.ranks, [&](comm::Communicator& comm) {
    models::Model model = build(run);
    DdpOptions options;
    options.share_parameters = false;
    options.bucket_bytes = options.first_bucket_bytes = 1 << 16;
    Shards shards(*model.module, comm, options);
    compute::MemoryMeter meter;
    auto optimizer = optim::make(adamw(), shards.owned());
    optim::GradScaler scaler({.enabled = false});
    ZeroStrategy strategy(model, *optimizer, scaler, device_options(run, model), comm, options, shards,
                          stage);
    for (int step = 0; step < 3; ++step) take_step(strategy, model, run, step, comm.rank(), run.ranks);
    strategy.drain();
    int64_t whole = bytes_of(shards.parameters());
    if (comm.rank() == 0) peak = meter.peak_bytes() + whole + (stage == 1 ? whole : 0);
  });
  return peak;
}

TEST(FullyShardedMemory, APeakIsAPartOfEverythingAndTheUnitsInFlight) {
  Layout run = wide_mlp();
  int64_t parameters = bytes_of(distinct_parameters(*build(run).module));
  // A part of parameters, gradients and two moments; units in use and ahead; gradients of two that are
  // reduced and of the one in backward; activations of the 13 layers, twice.
  int64_t state = 4 * parameters / kRanks;
  int64_t activations = kBatch / kRanks * 128 * 4 * 2 * 13;
  int64_t expected = state + (2 + 3) * kUnit + activations;
  Peak peak = peak_of_fully(run);
  EXPECT_NEAR(static_cast<double>(peak.all()), static_cast<double>(expected),
              0.1 * static_cast<double>(expected))
      << peak.tensors << " tensors, " << peak.shards << " shards, " << peak.in_flight << " in flight; "
      << parameters << " parameters, " << kUnit << " a unit";
  EXPECT_EQ(peak.in_flight, 5 * kUnit);
}

TEST(FullyShardedMemory, EachStageNeedsLessThanTheOneBefore) {
  Layout run = wide_mlp();
  int64_t one = peak_of_zero(run, 1), two = peak_of_zero(run, 2), three = peak_of_fully(run).all();
  EXPECT_LT(two, one);
  EXPECT_LT(three, two);
}

// Ranks that share memory gather nothing, and have nothing of others in memory of their own.
TEST(FullyShardedMemory, RanksThatShareMemoryCopyNoParameters) {
  Layout run = wide_mlp();
  run.shard.share = true;
  Peak peak = peak_of_fully(run);
  EXPECT_EQ(peak.in_flight, 3 * kUnit);
}

struct Traffic {
  int64_t operations = 0;
  int64_t bytes_sent = 0;
};

Traffic traffic_of_step(const Layout& run) {
  Traffic traffic;
  comm::run_ranks(run.ranks, [&](comm::Communicator& comm) {
    models::Model model = build(run);
    FullyShard shard(model, comm, run.shard);
    auto optimizer = optim::make(adamw(), shard.named_parameters());
    optim::GradScaler scaler({.enabled = false});
    FullyShardedStrategy strategy(model, *optimizer, scaler, device_options(run, model), shard);
    for (int step = 0; step < 2; ++step) take_step(strategy, model, run, step, comm.rank(), run.ranks);
    comm::Counters before = comm.counters();
    take_step(strategy, model, run, 2, comm.rank(), run.ranks);
    comm::Counters after = comm.counters();
    if (comm.rank() == 0)
      traffic = {after.operations - before.operations, after.bytes_sent - before.bytes_sent};
  });
  return traffic;
}

// Two gathers and one reduction of every unit, (N - 1) / N of its bytes each. The last unit of forward, and
// the one before, which backward is expected to use next, stay.
TEST(FullyShardedMemory, AStepSendsThreeTimesTheParameters) {
  Layout run = wide_mlp();
  for (int ranks : {2, 4}) {
    run.ranks = ranks;
    run.shard = gathering();
    int64_t units = 12, sent = kUnit * (ranks - 1) / ranks;
    Traffic traffic = traffic_of_step(run);
    EXPECT_EQ(traffic.operations, 3 * units - 2);
    EXPECT_EQ(traffic.bytes_sent, (3 * units - 2) * sent);
    run.shard.reshard_after_forward = false;
    EXPECT_EQ(traffic_of_step(run).bytes_sent, 2 * units * sent);
    run.shard = {};
    EXPECT_EQ(traffic_of_step(run).bytes_sent, units * sent) << "gradients only: parameters are shared";
    EXPECT_EQ(traffic_of_step(run).operations, units + 1) << "reductions, and a barrier";
  }
}

}  // namespace
}  // namespace yoke::parallel::sharded_testing
