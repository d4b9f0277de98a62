// How a worker of parameter servers enters a run and leaves it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "yoke/base/deadline.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/parallel/sync/servers/ps_strategy.h"
#include "yoke/parallel/sync/servers/server_ranks.h"

namespace yoke::parallel {
namespace {

// Where the run started in the data, for workers that are started again into it.
constexpr const char* kStartKey = "train/start";
constexpr double kStartPatience = 60;

RunStart parse_start(const std::string& text) {
  const char* what = "where the run started";
  nlohmann::json told = parse_json(text, what);
  for (const char* field : {"step", "epoch", "sample"})
    if (!told.is_object() || !told.contains(field) || !told[field].is_number_integer())
      throw CommError("{}: worker 0 gave no \"{}\". Start the job again.", what, field);
  return {told["step"], told["epoch"], told["sample"]};
}

// Everybody learns which worker is stuck; the launcher ends it.
void accuse(cluster::World& job, const ps::ReplicaRanks& ranks, const ps::LateWorker& late) {
  cluster::FailureReport report;
  report.rank = ranks.first_of(late.worker());
  report.kind = "deadline";
  report.what = late.what();
  report.next = "Next: look at that process (`ps`, a debugger attached, the machine's load and memory)";
  job.session().fail(report);
}

}  // namespace

DataShare PsStrategy::share() const {
  DataShare share = compute_->share();
  share.part = setup_.messenger->rank();
  share.parts = setup_.workers_at_start;
  return share;
}

comm::Communicator* PsStrategy::team() const {
  return in_parts() && is_first() ? compute_->team() : nullptr;
}

std::optional<Communication> PsStrategy::communication() const {
  Communication all = talk_;
  if (std::optional<Communication> inside = compute_->communication()) {
    all.seconds += inside->seconds;
    all.exposed += inside->exposed;
    all.buckets = inside->buckets;
  }
  return all;
}

Traffic PsStrategy::traffic() const {
  Traffic all = compute_->traffic();
  all.data = learner_->bytes_pushed() + (rows_ ? rows_->counts().bytes_sent : 0);
  return all;
}

// Steps are updates of the servers.
double PsStrategy::steps_per_batch() const {
  auto k = static_cast<double>(plan::effective_k(setup_.policy));
  const int parts = setup_.ps.max_workers > 0 ? 1 : setup_.workers;  // of a batch of the loader
  return parts / k / static_cast<double>(setup_.ps.n_push);
}

bool PsStrategy::rejoined() const {
  return setup_.job != nullptr && setup_.job->life() > 0;
}

RunStart PsStrategy::locate(const RunStart& restored) {
  if (!in_job()) return restored;
  cluster::Session& session = setup_.job->session();
  const Deadline deadline = Deadline::after(kStartPatience);
  if (rejoined()) return parse_start(session.get(kStartKey, deadline));
  nlohmann::json told = {{"step", restored.step}, {"epoch", restored.epoch}, {"sample", restored.sample}};
  if (is_first() && learner_->leads()) session.put(kStartKey, told.dump(), deadline);
  return restored;
}

// A signal to a worker that has joined is meant for it alone.
void PsStrategy::ask_to_leave(int signal) {
  asked_stop_ = signal;
  try {
    learner_->ask_to_leave();
    log::info("leaving after this step; the others continue");
  } catch (const CommError& error) {
    log::warn("{}; it continues. Press Ctrl-C again to end it at once", error.what());
  }
}

void PsStrategy::pull_all_rows() {
  if (rows_ && begun_) rows_->pull_all(over_ ? learner_->end().version : learner_->work().version);
}

void PsStrategy::drain() {
  compute_->drain();
  finish_pull();
  take_fetched(/*must=*/true);
  pull_all_rows();
}

// Not the watched model: no update voids an evaluation.
std::vector<torch::Tensor> PsStrategy::forward(const std::vector<torch::Tensor>& inputs) {
  if (in_parts()) return compute_->forward(inputs);
  finish_pull();
  take_fetched(/*must=*/true);
  pull_all_rows();
  std::vector<torch::Tensor> placed;
  for (const torch::Tensor& input : inputs) placed.push_back(options_.place(input));
  return model_.forward(placed);
}

void PsStrategy::failed(const std::exception& error) {
  const auto* late = dynamic_cast<const ps::LateWorker*>(&error);
  if (late != nullptr && in_job()) accuse(*setup_.job, setup_.ranks, *late);
}

ps::WorkerEnd PsStrategy::own_end(int64_t peak_memory) const {
  ps::WorkerEnd end{.peak_memory = peak_memory};
  if (!rows_) return end;
  end.has_tables = 1;
  end.tables = rows_->counts();
  return end;
}

// Of the scheduler and all servers; what the workers have moved in sparse tables, and what filters have
// saved, by worker. Those that were lost have told nothing.
std::string PsStrategy::report(const std::vector<ps::WorkerEnd>& ends) {
  nlohmann::json document = parse_json(learner_->report(), "ps.json");
  try {
    document["server_times"] = ps::to_json(learner_->server_times());
  } catch (const CommError& error) {
    log::warn("ps.json has no times of the servers: {}", error.what());
  }
  if (rows_) document["sparse"] = ps::to_json(ends);
  return document.dump();
}

// Worker 0 waits for the others to leave; a worker that does not is the end's problem.
RunEnd PsStrategy::leave(int64_t peak_memory, std::vector<int64_t> own) {
  RunEnd end;
  if (is_first() && begun_) {
    std::vector<ps::WorkerEnd> ends(static_cast<size_t>(setup_.workers));
    try {
      ends = learner_->await_end();
    } catch (const ps::LateWorker& late) {
      end.problem = std::make_shared<ps::LateWorker>(late);
    }
    ends.front() = own_end(peak_memory);
    std::vector<int64_t> memory;
    for (const ps::WorkerEnd& one : ends) memory.push_back(one.peak_memory);
    while (memory.size() > static_cast<size_t>(setup_.workers_at_start) && memory.back() == 0)
      memory.pop_back();  // places of nobody
    end.peak_memory = memory_by_rank(own, memory);
    end.reports.push_back({"ps.json", report(ends) + "\n"});
  }
  learner_->goodbye(own_end(peak_memory));
  return end;
}

// The ranks of a replica leave together, and only when the servers know of it: they would take it for lost.
RunEnd PsStrategy::finish(int64_t peak_memory) {
  finish_pull();
  take_fetched(/*must=*/true);
  if (!in_parts()) {
    RunEnd end = leave(peak_memory, {peak_memory});
    if (setup_.server != nullptr && !end.problem) setup_.server->finish();
    return end;
  }
  RunEnd inside = compute_->finish(peak_memory);
  leaving_->store(true);
  sum_over_ranks(0);
  RunEnd end;
  if (learner_->leads())
    end = leave(*std::max_element(inside.peak_memory.begin(), inside.peak_memory.end()), inside.peak_memory);
  end.reports.insert(end.reports.end(), inside.reports.begin(), inside.reports.end());
  sum_over_ranks(0);
  return end;
}

}  // namespace yoke::parallel
