#include "cli/torch/train_epochs.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/torch/train_parts.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/cluster/identity.h"
#include "yoke/config/changes.h"
#include "yoke/metrics/catch_up.h"
#include "yoke/parallel/elastic.h"
#include "yoke/parallel/fit.h"

namespace yoke::cli {
namespace {

constexpr int kMostFruitless = 8;
constexpr double kExchange = 60;  // seconds
constexpr double kLock = 10;
constexpr double kSignalSpread = 3;
constexpr size_t kMostRecent = 8;  // records

int64_t replicas_on(const RunConfig& config, int ranks) {
  return parallel::mesh_of(parallel::fit_to_ranks(config, config.data.batch_size, ranks), ranks).data;
}

}  // namespace

// Measures the pause until the first step of an epoch is finished, and remembers the last records.
class Epochs::FirstStep : public metrics::Sink {
 public:
  explicit FirstStep(Epochs& epochs) : epochs_(epochs) {}
  void write(const metrics::Record& record) override {
    std::vector<metrics::Record>& recent = epochs_.recent_;
    std::erase_if(recent, [&](const metrics::Record& one) { return one.step >= record.step; });
    recent = metrics::merge_records(std::move(recent), {record}, kMostRecent);
  }
  void tick(int64_t step, double) override {
    if (done_) return;
    done_ = true;
    epochs_.fruitless_ = 0;
    if (epochs_.stopped_at_ == 0) return;
    metrics::ElasticSummary::Change& change = epochs_.summary_.changes.back();
    change.pause = now_seconds() - epochs_.stopped_at_;
    change.at = wall_seconds();
    change.step = step - 1;
    epochs_.stopped_at_ = 0;
    if (epochs_.member_.first())
      log::info("epoch {}: step {} finished {:.2f} s after the last epoch ended", change.epoch, step,
                change.pause);
  }

 private:
  Epochs& epochs_;
  bool done_ = false;
};

Epochs::Epochs(Configuration& configuration, parallel::Membership& member)
    : configuration_(configuration),
      config_(configuration.values),
      member_(member),
      elastic_(member.job().elastic()),
      sharded_(elastic_ && parallel::divides_state(config_)),
      asked_(config_),
      replicas_at_start_(elastic_ ? replicas_on(config_, cluster::identify_from_environment().world_size)
                                  : 1),
      started_(wall_seconds()) {}

std::unique_ptr<metrics::Sink> Epochs::first_step() {
  return std::make_unique<FirstStep>(*this);
}

int Epochs::run(const std::function<int()>& train) {
  if (!elastic_) return train();
  for (;;) {
    std::string why;
    continues_ = false;
    try {
      static_cast<parallel::Choices&>(configuration_.values) = asked_;
      member_.connect(join_request(config_));
      if (member_.job().epoch() > 0) {
        meet();
        agree();
      }
      lay_out();
      const int code = train();
      if (!continues_) return code;
    } catch (const Error& error) {
      if (!regroups_after(error)) throw;
      why = error.what();
      if (++fruitless_ > kMostFruitless)
        throw CommError("{} epochs in a row ended before a step was finished; the last: {}", kMostFruitless,
                        error.what());
    }
    note_end();
    forget_transfer();
    if (leaves_) return 0;
    member_.regroup(why);
  }
}

// Of a pipeline, by the ranks of this epoch.
void Epochs::lay_out() {
  const int ranks = member_.workers();
  parallel::Choices fitted = parallel::fit_to_ranks(asked_, config_.data.batch_size, ranks);
  const bool staged = fitted.parallel.pipeline != 1 || asked_.parallel.pipeline != 1;
  static_cast<parallel::Choices&>(configuration_.values) = std::move(fitted);
  if (!member_.first() || !staged) return;
  log::info("epoch {}: {} on {} ranks{}{}", member_.job().epoch(),
            parallel::to_string(parallel::mesh_of(config_, ranks)), ranks,
            config_.spares == 0 ? "" : fmt::format(", {} of them spare", config_.spares),
            config_.parallel.pipeline == asked_.parallel.pipeline
                ? ""
                : fmt::format("; {} stages were asked for", asked_.parallel.pipeline));
}

// Ranks that join learn what the job was started with; those with another configuration leave again.
void Epochs::meet() {
  nlohmann::json own = {{"replicas", replicas_at_start_}, {"configuration", configuration_.schema.to_toml()}};
  for (const metrics::Record& record : recent_) own["records"].push_back(metrics::to_json(record).dump());
  const std::vector<std::string> of_all = texts_of_all("configuration", own.dump());
  share_records(of_all);
  const auto first = nlohmann::json::parse(of_all.front());
  replicas_at_start_ = first.at("replicas");
  const std::vector<std::string> changes =
      config::changed_keys(first.at("configuration"), configuration_.schema,
                           {"out", "checkpoint", "data.dir", "data.workers", "data.prefetch", "train.threads",
                            "elastic.min", "elastic.restarts"});
  const std::vector<std::string> all = texts_of_all("changes", join(changes));
  if (!changes.empty())
    throw ConfigError(
        "this rank cannot join: its configuration is not that of the running job: {}. Next: start "
        "it with the same recipe and options.",
        join(changes));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      throw CommError("rank {} wanted to join with another configuration: {}", rank, all[rank]);
}

// Not every rank that survived finished the last step that one of them did.
void Epochs::share_records(const std::vector<std::string>& of_all) {
  for (const std::string& text : of_all) {
    std::vector<metrics::Record> theirs;
    for (const auto& one : nlohmann::json::parse(text).value("records", nlohmann::json::array()))
      theirs.push_back(metrics::parse_record(one));
    recent_ = metrics::merge_records(std::move(recent_), theirs, kMostRecent);
  }
}

std::string Epochs::who_continues() const {
  return member_.workers() == 1 ? "1 rank continues" : fmt::format("{} ranks continue", member_.workers());
}

void Epochs::agree() {
  if (sharded_) return agree_on_shards();
  const int64_t before = kept_ ? kept_->rest.at("step").get<int64_t>() : -1;
  engine::Agreement agreed = engine::agree_on_state(kept_, *member_.world(), may_follow());
  transfer_ = std::move(agreed.transfer);
  followers_ = std::move(agreed.followers);
  kept_is_coming_ = follows();
  const cluster::Epoch& epoch = member_.job().session().epoch();
  const bool repeats = unfinished_ > 0 && agreed.step == before;
  if (repeats) ++summary_.repeated;
  summary_.changes.push_back({epoch.number, agreed.step, member_.workers(), 0, 0, epoch.cause});
  if (!member_.first()) return;
  log::info("epoch {}: {} {}{}{}", epoch.number, who_continues(),
            agreed.source < 0 ? "from the last checkpoint, or the start"
                              : fmt::format("after step {}", agreed.step),
            repeats ? fmt::format("; step {} is repeated", agreed.step + 1) : "",
            !agreed.moved        ? ""
            : followers_.empty() ? fmt::format("; rank {} sent its state", agreed.source)
                                 : fmt::format("; rank {} sends its state meanwhile", agreed.source));
}

// With parts of a fixed global batch, so that nobody has a larger one meanwhile; and where an update depends
// on gradients alone, and a forward pass on no other rank.
bool Epochs::may_follow() const {
  return config_.elastic.batch == "global" && config_.train.compute.device == "cpu" &&
         config_.train.compute.precision != "fp16" && config_.ddp.hook == "none" &&
         !config_.train.loop.sync_batchnorm;
}

bool Epochs::follows() const {
  return std::ranges::find(followers_, member_.rank()) != followers_.end();
}

void Epochs::follow(engine::Worker& worker) {
  if (!follows()) return;
  auto follower = std::make_unique<engine::Follower>(std::move(worker.strategy), worker, *transfer_);
  follower_ = follower.get();
  worker.strategy = std::move(follower);
}

// Ranks that have caught up get their part of every batch, from the next one on.
void Epochs::share_among_all() {
  const std::vector<std::string> all =
      texts_of_all("caught up", follower_ != nullptr && follower_->behind() ? "behind" : "");
  for (int rank : followers_)
    if (member_.first() && all[static_cast<size_t>(rank)].empty())
      log::info("epoch {}: rank {} has the state after step {}", member_.job().epoch(), rank,
                engine_->finished().step);
  std::erase_if(followers_, [&](int rank) { return all[static_cast<size_t>(rank)].empty(); });
  if (followers_.empty()) transfer_.reset();
  set_shares();
}

void Epochs::set_shares() {
  std::vector<double> shares;
  if (!followers_.empty()) shares.assign(static_cast<size_t>(member_.workers()), 1);
  for (int rank : followers_) shares[static_cast<size_t>(rank)] = 0;
  loader_->set_shares(shares);
}

void Epochs::forget_transfer() {
  if (std::exchange(kept_is_coming_, false)) kept_.reset();
  follower_ = nullptr;
  followers_.clear();
  transfer_.reset();
}

int64_t Epochs::global_batch() const {
  return elastic_ && config_.elastic.batch == "global" ? config_.data.batch_size * replicas_at_start_ : 0;
}

Resume Epochs::take_resume(const TrainArguments& arguments) {
  Resume resume;
  if (sharded_) return choice_.complete() ? resume_shards() : resume_checkpoint(arguments);
  if (!kept_) return resume;
  if (member_.first()) lock(resume);
  resume.in_memory = true;
  resume.checkpoint.emplace();
  resume.checkpoint->path = fmt::format("the state of epoch {}", member_.job().epoch());
  resume.checkpoint->step = kept_->rest.at("step");
  resume.checkpoint->state = *kept_;
  return resume;
}

// The last first rank may be stopped, and holds its lock until the launcher has ended it.
void Epochs::lock(Resume& resume) const {
  Deadline deadline = Deadline::after(kLock);
  for (;;) try {
      resume.lock.emplace(config_.out.dir);
      return;
    } catch (const ConfigError&) {
      if (deadline.passed()) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

engine::LoopPlan Epochs::loop_plan(const engine::Worker& worker, const data::Loader& loader,
                                   const engine::Progress& done) {
  const bool global = elastic_ && config_.elastic.batch == "global";
  engine::LoopPlan plan = cli::loop_plan(config_, worker, loader, done, global ? replicas_at_start_ : 0);
  if (!elastic_) return plan;
  const bool linear = config_.elastic.batch == "per_rank" && !config_.train.schedule.scale_lr;
  if (linear)
    plan.learning_rate = [rate = plan.learning_rate, factor = static_cast<double>(plan.replicas) /
                                                              static_cast<double>(replicas_at_start_)](
                             int64_t step) { return factor * rate(step); };
  plan.wanted_stop = [this] {
    const int signal = engine::requested_stop();
    if (signal != 0 && (!leaves_at_ || leaves_at_->passed())) return signal;
    if (member_.job().session().change_wanted()) return engine::kRegroup;
    return follows() && !follower_->behind() ? engine::kCaughtUp : 0;
  };
  plan.agreed_stop = [this](int largest, bool may_wait) { return agreed_stop(largest, may_wait); };
  return plan;
}

// A signal to some of the ranks takes these out of the job; one to all of them stops it. Schedulers signal
// machines one after the other, so a rank with a signal trains on for a while before it leaves.
int Epochs::agreed_stop(int largest, bool may_wait) {
  if (largest == engine::kCaughtUp) {
    share_among_all();
    return 0;
  }
  const int signal = engine::requested_stop();
  const bool waited = leaves_at_ && leaves_at_->passed();
  if (signal != 0 && !leaves_at_) leaves_at_ = Deadline::after(kSignalSpread);
  const std::string own = signal == 0 ? "stays" : waited ? "leaves" : "may leave";
  const std::vector<std::string> all = texts_of_all("stop", own);
  const auto any = [&](const char* word) { return std::ranges::find(all, word) != all.end(); };
  if (!any("stays")) return std::max(1, signal);
  return largest == engine::kRegroup || any("leaves") || !may_wait ? engine::kRegroup : 0;
}

std::vector<std::string> Epochs::texts_of_all(const std::string& meeting, const std::string& own) const {
  if (member_.job().alone()) return {own};
  return member_.job().session().exchange(meeting, own, Deadline::after(kExchange));
}

void Epochs::attach_to(engine::Engine& engine, engine::Worker& worker, data::Loader& loader, Resume& resume) {
  if (!signals_) signals_.emplace();
  if (!elastic_) return;
  if (sharded_) return keep_shards(engine, worker, loader);
  if (kept_) resume.checkpoint->state = {};  // the worker has its values
  auto keeper = std::make_unique<engine::StepKeeper>(worker, loader, engine);
  keeper_ = keeper.get();
  engine_ = &engine;
  loader_ = &loader;
  if (!followers_.empty()) set_shares();
  kept_.reset();
  kept_is_coming_ = false;
  engine.attach(std::move(keeper));
  engine.attach(first_step());
}

void Epochs::note_end() {
  if (stopped_at_ == 0) stopped_at_ = now_seconds();
}

void Epochs::keep() {
  note_end();
  if (sharded_) {
    if (shard_keeper_ == nullptr) return;
    count_copies();
    held_ = std::exchange(shard_keeper_, nullptr)->holdings();
    return;
  }
  if (follower_ == nullptr || !follower_->behind()) kept_ = keeper_->state(configuration_.schema.to_toml());
  const engine::Finished& at = engine_->finished();
  unfinished_ = at.started > at.step ? at.started : 0;
}

bool Epochs::continue_after(const engine::Outcome& outcome) {
  if (!elastic_ || outcome.stopped_by_signal != engine::kRegroup) return false;
  leaves_ = leaves_at_.has_value();  // not with a signal of which the others do not know yet
  if (sharded_) hand_over_shards();
  keep();
  continues_ = true;
  if (leaves_)
    log::info("rank {} leaves after step {}, as asked; the others continue", member_.rank(),
              engine_->finished().step);
  return true;
}

void Epochs::put(metrics::Summary& summary) {
  if (!elastic_) return;
  count_copies();
  metrics::ElasticSummary elastic = summary_;
  const cluster::Epoch& epoch = member_.job().session().epoch();
  elastic.epochs = epoch.number + 1;
  elastic.losses = epoch.losses;
  elastic.joins = epoch.joins;
  summary.elastic = elastic;
}

}  // namespace yoke::cli
