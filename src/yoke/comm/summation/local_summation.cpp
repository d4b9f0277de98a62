#include "yoke/comm/summation/local_summation.h"

#include <unistd.h>

#include <numeric>

#include "yoke/comm/queue/queued_communicator.h"
#include "yoke/comm/summation/summation.h"
#include "yoke/comm/tcp/tcp.h"

namespace yoke::comm {
namespace {

std::unique_ptr<Communicator> make_rank(const TcpSetup& setup, double timeout) {
  GroupInfo group;
  group.name = "summation";
  group.rank = setup.rank;
  group.size = setup.size;
  group.id = setup.group;
  group.timeout = timeout;
  group.ranks.resize(static_cast<size_t>(setup.size));
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  JobLink job;
  job.failure = setup.failure;
  job.recorder = std::make_shared<FlightRecorder>(setup.rank, setup.size, "local", ::getpid());
  return make_queued(make_tcp_backend(setup), std::move(group), std::move(job));
}

}  // namespace

LocalSummation::LocalSummation(const Options& options)
    : options_(options), errors_(static_cast<size_t>(options.spares)) {
  TcpSetup setup;
  setup.size = options.workers + options.spares;
  setup.spares = options.spares;
  setup.part_bytes = options.part_bytes;
  setup.group = 1;
  setup.ticket.job_id = "threads";
  setup.failure = std::make_shared<cluster::Failure>();
  for (int rank = 0; rank < setup.size; ++rank) {
    acceptors_.push_back(std::make_unique<net::Acceptor>(net::parse_address("127.0.0.1:0"), setup.ticket));
    setup.members.push_back({rank, "this machine", "", 0, acceptors_.back()->address().text(), ""});
  }
  for (setup.rank = 0; setup.rank < setup.size; ++setup.rank) {
    setup.acceptor = acceptors_[static_cast<size_t>(setup.rank)].get();
    everyone_.push_back(make_rank(setup, options.timeout));
  }
  for (int spare = 0; spare < options.spares; ++spare)
    threads_.emplace_back([this, spare] {
      try {
        sum_for_workers(*everyone_[static_cast<size_t>(options_.workers + spare)]);
      } catch (...) {
        errors_[static_cast<size_t>(spare)] = std::current_exception();
      }
    });
}

LocalSummation::~LocalSummation() {
  if (!threads_.empty()) everyone_.front()->abandon("its workers have ended");
}

std::unique_ptr<Communicator> LocalSummation::worker(int rank) {
  return make_summing(*everyone_[static_cast<size_t>(rank)], options_.spares, options_.least_gain);
}

void LocalSummation::finish() {
  threads_.clear();
  for (const std::exception_ptr& error : errors_)
    if (error) std::rethrow_exception(error);
}

}  // namespace yoke::comm
