// Everything a peer of a collaborative run computes with.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_config.h"
#include "yoke/checkpoint/tensors.h"
#include "yoke/data/dataset.h"
#include "yoke/data/sampler.h"
#include "yoke/engine/worker.h"
#include "yoke/parallel/collab.h"

namespace yoke::cli {

// Samples of the run's order: epoch after epoch, each shuffled by the seed, all of it used.
class RunOrder {
 public:
  // `dataset` must outlive it.
  RunOrder(const data::Dataset& dataset, data::DataOptions options, int64_t seed);
  parallel::CollabReplicaOptions::Samples gather(int64_t first, int64_t count) const;

 private:
  const data::Dataset& dataset_;
  std::optional<data::Sampler> sampler_;
};

class CollabPeer {
 public:
  // `configuration` must outlive it. `init`: weights; empty: initialised. Throws ConfigError.
  explicit CollabPeer(Configuration& configuration, const std::string& init = "");

  const Configuration& configuration() const { return configuration_; }
  const RunConfig& config() const { return configuration_.values; }
  const engine::Worker& worker() const { return *worker_; }
  collab::Trainer& trainer() { return *trainer_; }
  const collab::Identity& identity() const { return identity_; }
  int64_t steps() const { return steps_; }  // of the run
  int64_t samples() const { return samples_->size(); }
  double learning_rate(int64_t step) const;

  // What all peers must have in common (collab/meeting.h).
  nlohmann::json run() const;
  collab::PeerOptions options() const;
  std::vector<checkpoint::NamedTensor> weights() const;
  // Everything that a peer needs to train on: parameters, buffers, optimizer. `epoch`: steps behind it.
  void save_state(const std::filesystem::path& file, int64_t epoch) const;
  // Returns its step. Throws ConfigError for a file of another model.
  int64_t load_state(const std::filesystem::path& file);

 private:
  Configuration& configuration_;
  collab::Identity identity_;
  std::unique_ptr<engine::Worker> worker_;
  std::unique_ptr<data::Dataset> samples_;
  std::optional<RunOrder> order_;
  std::unique_ptr<collab::Trainer> trainer_;
  int64_t steps_ = 0;
};

}  // namespace yoke::cli
