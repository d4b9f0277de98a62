#include "cli/torch/train_epochs.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/torch/train_parts.h"
#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity.h"

namespace yoke::cli {
namespace {

constexpr int kMostFruitless = 8;
constexpr double kExchange = 60;  // seconds
constexpr double kLock = 10;
constexpr double kSignalSpread = 0.25;

}  // namespace

// Measures the pause until the first step of an epoch is finished.
class Epochs::FirstStep : public metrics::Sink {
 public:
  explicit FirstStep(Epochs& epochs) : epochs_(epochs) {}
  void write(const metrics::Record&) override {}
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
      ranks_at_start_(cluster::identify_from_environment().world_size) {}

int Epochs::run(const std::function<int()>& train) {
  if (!elastic_) return train();
  for (;;) {
    std::string why;
    continues_ = false;
    try {
      member_.connect(join_request(config_));
      if (member_.job().epoch() > 0) agree();
      const int code = train();
      if (!continues_) return code;
    } catch (const Error& error) {
      // A rank lost while the others connect is a failed rendezvous.
      if (error.code() != ExitCode::kPeerFailed && error.code() != ExitCode::kRendezvous) throw;
      why = error.what();
      if (++fruitless_ > kMostFruitless)
        throw CommError("{} epochs in a row ended before a step was finished; the last: {}", kMostFruitless,
                        error.what());
    }
    note_end();
    if (leaves_) return 0;
    member_.regroup(why);
  }
}

void Epochs::agree() {
  const int64_t before = kept_ ? kept_->rest.at("step").get<int64_t>() : -1;
  engine::Agreement agreed = engine::agree_on_state(kept_, *member_.world());
  const cluster::Epoch& epoch = member_.job().session().epoch();
  const bool repeats = unfinished_ > 0 && agreed.step == before;
  if (repeats) ++summary_.repeated;
  summary_.changes.push_back({epoch.number, agreed.step, member_.workers(), 0, 0, epoch.cause});
  if (!member_.first()) return;
  log::info("epoch {}: {} ranks continue {}{}{}", epoch.number, member_.workers(),
            agreed.source < 0 ? "from the last checkpoint, or the start"
                              : fmt::format("after step {}", agreed.step),
            repeats ? fmt::format("; step {} is repeated", agreed.step + 1) : "",
            agreed.moved ? fmt::format("; rank {} sent its state", agreed.source) : "");
}

int64_t Epochs::global_batch() const {
  return elastic_ && config_.elastic.batch == "global" ? config_.data.batch_size * ranks_at_start_ : 0;
}

Resume Epochs::take_resume() {
  Resume resume;
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
                                   const engine::Progress& done) const {
  const bool global = elastic_ && config_.elastic.batch == "global";
  engine::LoopPlan plan = cli::loop_plan(config_, worker, loader, done, global ? ranks_at_start_ : 0);
  if (!elastic_) return plan;
  const bool linear = config_.elastic.batch == "per_rank" && !config_.train.schedule.scale_lr;
  if (linear)
    plan.learning_rate = [rate = plan.learning_rate,
                          factor = static_cast<double>(plan.replicas) / static_cast<double>(ranks_at_start_)](
                             int64_t step) { return factor * rate(step); };
  plan.wanted_stop = [this] {
    const int signal = engine::requested_stop();
    if (signal != 0) return signal;
    return member_.job().session().change_wanted() ? engine::kRegroup : 0;
  };
  // A signal to some of the ranks takes these out of the job; one to all of them stops it. The latter does
  // not reach all ranks in the same step: those without one wait a moment for it.
  plan.agreed_stop = [this](int) {
    std::vector<std::string> all = signals_of_all("stop");
    if (std::ranges::any_of(all, [](const auto& one) { return one != "0"; })) {
      Deadline grace = Deadline::after(kSignalSpread);
      while (engine::requested_stop() == 0 && !grace.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      all = signals_of_all("stop, a moment later");
    }
    const bool everybody = std::ranges::none_of(all, [](const auto& one) { return one == "0"; });
    return everybody ? std::max(1, engine::requested_stop()) : engine::kRegroup;
  };
  return plan;
}

std::vector<std::string> Epochs::signals_of_all(const std::string& meeting) const {
  const std::string own = std::to_string(engine::requested_stop());
  if (member_.job().alone()) return {own};
  return member_.job().session().exchange(meeting, own, Deadline::after(kExchange));
}

void Epochs::attach_to(engine::Engine& engine, engine::Worker& worker, const data::Loader& loader,
                       Resume& resume) {
  if (!signals_) signals_.emplace();
  if (!elastic_) return;
  if (kept_) resume.checkpoint->state = {};  // the worker has its values
  auto keeper = std::make_unique<engine::StepKeeper>(worker, loader, engine);
  keeper_ = keeper.get();
  engine_ = &engine;
  kept_.reset();
  engine.attach(std::move(keeper));
  engine.attach(std::make_unique<FirstStep>(*this));
}

void Epochs::note_end() {
  if (stopped_at_ == 0) stopped_at_ = now_seconds();
}

void Epochs::keep() {
  note_end();
  kept_ = keeper_->state(configuration_.schema.to_toml());
  const engine::Finished& at = engine_->finished();
  unfinished_ = at.started > at.step ? at.started : 0;
}

bool Epochs::continue_after(const engine::Outcome& outcome) {
  if (!elastic_ || outcome.stopped_by_signal != engine::kRegroup) return false;
  keep();
  continues_ = true;
  leaves_ = engine::requested_stop() != 0;
  if (leaves_)
    log::info("rank {} leaves after step {}, as asked; the others continue", member_.rank(),
              engine_->finished().step);
  return true;
}

void Epochs::put(metrics::Summary& summary) const {
  if (!elastic_) return;
  metrics::ElasticSummary elastic = summary_;
  const cluster::Epoch& epoch = member_.job().session().epoch();
  elastic.epochs = epoch.number + 1;
  elastic.losses = epoch.losses;
  elastic.joins = epoch.joins;
  summary.elastic = elastic;
}

}  // namespace yoke::cli
