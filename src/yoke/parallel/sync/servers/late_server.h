// A parameter server or a worker that joins a running job (`yoke ps join`).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "yoke/cluster/job_contact.h"
#include "yoke/cluster/world.h"
#include "yoke/comm/messenger.h"
#include "yoke/optim/options.h"
#include "yoke/parallel/choices.h"
#include "yoke/ps/places.h"

namespace yoke::parallel {

// What a server that runs answers to a rank that wants to join: JSON, with a refusal if they do not fit
// together, because of another program version or another configuration. `backend`: of its messages.
std::string answer_joiner(const Choices& choices, const optim::OptimizerOptions& optimizer,
                          const std::string& backend, const std::string& question);

// A rank that has joined.
struct LateRank {
  enum Kind { kServer, kWorker };
  int number = 0;  // among servers, or workers
  ps::Places places;
  std::unique_ptr<cluster::World> world;
  std::unique_ptr<comm::Messenger> messenger;
};

// Joins the job as its next server or worker. Throws ConfigError, CommError, Error with kRendezvous.
LateRank join_late(const Choices& choices, const optim::OptimizerOptions& optimizer, cluster::JobContact job,
                   LateRank::Kind kind);

// Joins the job as its next server and serves until all workers have left. Returns its number. `joined` is
// called with it once it is connected. Throws ConfigError, CommError, Error with kRendezvous.
int serve_late(const Choices& choices, const optim::OptimizerOptions& optimizer,
               const std::filesystem::path& out, cluster::JobContact job,
               const std::function<void(int server)>& joined);

}  // namespace yoke::parallel
