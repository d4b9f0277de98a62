#include "yoke/engine/worker.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yoke/compute/conv_path.h"
#include "yoke/compute/determinism.h"
#include "yoke/engine/parameter_hash.h"
#include "yoke/engine/synthetic_batches.h"

namespace yoke::engine {
namespace {

std::string hash_after_two_steps(const WorkerOptions& options) {
  auto worker = make_worker(options);
  for (const data::Batch& batch : synthetic_batches(*worker, options.batch_size)) {
    worker->strategy->acquire();
    worker->strategy->compute(batch.inputs, batch.target, {});
    worker->strategy->commit({0.05, false});
  }
  return parameter_hash(*worker->model.module);
}

TEST(DeterministicWorker, MeasuresNothingAndIgnoresWhatWasMeasured) {
  compute::ConvChoices& choices = compute::ConvChoices::global();
  choices.clear();
  WorkerOptions options;
  options.model.name = "lenet";
  options.compute.threads = 1;
  options.compute.deterministic = true;
  options.batch_size = 8;
  std::string first = hash_after_two_steps(options);
  EXPECT_TRUE(choices.to_json()["choices"].empty());

  // Another run has measured, and found the ways that round differently to be faster.
  options.compute.deterministic = false;
  std::string measured = hash_after_two_steps(options);
  nlohmann::json slow = choices.to_json();
  ASSERT_FALSE(slow["choices"].empty());
  for (auto& [key, way] : slow["choices"].items()) way = "channels_last";
  choices.import_json(slow);
  EXPECT_NE(hash_after_two_steps(options), first) << "the test shows nothing";
  options.compute.deterministic = true;
  EXPECT_EQ(hash_after_two_steps(options), first);
  choices.clear();
  compute::set_deterministic(false);
}

}  // namespace
}  // namespace yoke::engine
