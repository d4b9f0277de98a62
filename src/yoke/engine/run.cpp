#include "yoke/engine/run.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>

#include "yoke/base/error.h"
#include "yoke/base/fault.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/base/random.h"
#include "yoke/checkpoint/random_state.h"
#include "yoke/checkpoint/weights.h"
#include "yoke/comm/tensors/tensors.h"
#include "yoke/engine/run_impl.h"
#include "yoke/engine/team.h"
#include "yoke/optim/finite.h"

namespace yoke {
namespace {

constexpr uint64_t kOtherRanks = 0x72616e6b73;  // "ranks"

// Exchanges of two runs of one job, and of a run's thread and its writer, must not be confused.
checkpoint::Team named_team(cluster::World& job, const std::string& name) {
  checkpoint::Team team = engine::team_of(job);
  if (team.exchange)
    team.exchange = [name, exchange = team.exchange](const std::string& about, const std::string& own) {
      return exchange(name + " " + about, own);
    };
  return team;
}

}  // namespace

Run::Impl::Impl(World& in, RunOptions with) : world(in), options(std::move(with)) {
  if (options.dir.empty()) throw ConfigError("yoke::Run: no folder. Set .dir in its options.");
  if (options.every_steps < 0 || options.keep < 1)
    throw ConfigError("yoke::Run: every_steps = {}, keep = {}: expected at least 0 and 1.",
                      options.every_steps, options.keep);
  const std::string name = fmt::format("run {}", world.job().next_communicator());
  team = named_team(world.job(), name);
  on_first("folder", [&]() -> nlohmann::json {
    lock.emplace(options.dir, "yoke::Run .dir");
    return nullptr;
  });
  if (options.signals) signals.emplace();
  if (!options.sharded && world.rank() != 0) return;
  checkpoint::CheckpointOptions writing{options.every_steps, options.keep, options.background};
  writer.emplace(options.dir / "checkpoints", writing, nullptr,
                 options.sharded ? named_team(world.job(), name + " writer") : checkpoint::Team{});
}

nlohmann::json Run::Impl::on_first(const std::string& what, const std::function<nlohmann::json()>& work) {
  if (world.size() == 1) return work();
  auto on_rank_0 = [&]() -> nlohmann::json { return world.rank() == 0 ? work() : nullptr; };
  return checkpoint::Meeting(team, steps).after(what, on_rank_0)[0];
}

void Run::Impl::add(const std::string& name, engine::Tracked one) {
  if (resumed)
    throw ConfigError("yoke::Run: track(\"{}\") after resume(). Track everything before it.", name);
  if (!tracked.emplace(name, std::move(one)).second)
    throw ConfigError("yoke::Run: track(\"{}\") twice. Use another name.", name);
}

checkpoint::State Run::Impl::state() {
  const int writers = options.sharded ? world.size() : 1;
  checkpoint::State part = engine::collect(tracked, options.sharded ? world.rank() : 0, writers);
  nlohmann::json own = {{"random", checkpoint::random_state(device)}};
  std::optional<std::string> bad = optim::first_non_finite(part.model);
  if (!bad) bad = optim::first_non_finite(part.optimizer);
  if (bad) own["non_finite"] = *bad;
  part.rest["step"] = steps;
  part.rest["ranks"] = nlohmann::json::array({own});
  if (world.size() > 1)
    part.rest["ranks"] = checkpoint::Meeting(team, steps).after("ranks", [&] { return own; });
  for (const nlohmann::json& rank : part.rest["ranks"])
    if (rank.contains("non_finite"))
      throw ConfigError(
          "step {}: {} holds numbers that are not finite, so this state is not saved. Resume from the last "
          "checkpoint with a lower learning rate or with yoke::optim::clip_grad_norm.",
          steps, rank["non_finite"].get<std::string>());
  return part;
}

void Run::Impl::save() {
  if (!resumed)
    throw ConfigError(
        "yoke::Run: resume() was not called. Call it before the loop; a fresh folder starts at 0.");
  if (saved == steps) return;
  checkpoint::State now = state();
  if (writer) writer->save(steps, now);
  saved = steps;
}

void Run::Impl::restore(const checkpoint::Loaded& loaded) {
  torch::NoGradGuard no_grad;
  const std::string where = loaded.path.string();
  engine::restore(tracked, loaded.state, where);
  try {
    steps = loaded.state.rest.at("step");
    const nlohmann::json& ranks = loaded.state.rest.at("ranks");
    if (static_cast<int>(ranks.size()) == world.size()) {
      checkpoint::set_random_state(ranks.at(static_cast<size_t>(world.rank())).at("random"), device);
    } else {
      // Numbers that depend on seed, step and rank only.
      torch::manual_seed(
          derive_seed(at::detail::getDefaultCPUGenerator().current_seed(), kOtherRanks,
                      static_cast<uint64_t>(steps) * 65536 + static_cast<uint64_t>(world.rank())));
      if (world.rank() == 0)
        log::info("{} is of {} ranks; resuming with {}", where, ranks.size(), world.size());
    }
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError("{}: not a checkpoint of a yoke::Run ({}). Start in another folder.", where,
                          json_problem(error));
  }
  saved = steps;
}

// The maximum over all ranks: one message of 8 bytes.
int Run::Impl::agreed_signal() {
  const int own = engine::requested_stop();
  if (world.size() == 1) return own;
  torch::Tensor told = torch::full({1}, own, torch::kInt64).to(device);
  comm::all_reduce(world.comm(), told, ReduceOp::kMax, "stop signal");
  return static_cast<int>(told.item<int64_t>());
}

Run::Run(World& world, RunOptions options) : impl_(std::make_unique<Impl>(world, std::move(options))) {}
Run::~Run() = default;

int64_t Run::resume() {
  Impl& run = *impl_;
  if (run.resumed) throw ConfigError("yoke::Run: resume() twice.");
  std::optional<checkpoint::Loaded> loaded;
  nlohmann::json path = run.on_first("resume", [&]() -> nlohmann::json {
    loaded = checkpoint::load_newest(run.options.dir);
    if (!loaded) return nullptr;
    for (const auto& other : loaded->passed_over)
      log::warn("passed over checkpoint {}: {}", other.path.string(), other.problem);
    return std::filesystem::absolute(loaded->path).string();
  });
  run.resumed = true;
  if (path.is_null()) return 0;
  auto take = [&]() -> nlohmann::json {
    if (!loaded) loaded = checkpoint::open(path.get<std::string>());
    run.restore(*loaded);
    return nullptr;
  };
  // A rank that cannot read the folder is an error on all of them.
  if (run.world.size() == 1)
    take();
  else
    checkpoint::Meeting(run.team, run.steps).after("restore", take);
  if (run.world.rank() == 0) log::info("resuming from {} (step {})", loaded->path.string(), run.steps);
  return run.steps;
}

void Run::step() {
  Impl& run = *impl_;
  if (!run.resumed) run.save();  // throws what is missing
  ++run.steps;
  fault::set_step(run.steps + 1);
  run.signal = run.agreed_signal();
  if (run.signal != 0) {
    finish();
    if (run.world.rank() == 0)
      log::info("stopped by {} after step {}; run it again to resume", strsignal(run.signal), run.steps);
  } else if (run.options.every_steps > 0 && run.steps % run.options.every_steps == 0) {
    run.save();
  }
}

void Run::save() {
  impl_->save();
}

void Run::finish() {
  impl_->save();
  if (impl_->writer) impl_->writer->wait();
  // No rank leaves before rank 0 has written.
  impl_->on_first("finish", []() -> nlohmann::json { return nullptr; });
}

int64_t Run::steps() const {
  return impl_->steps;
}
bool Run::stopped() const {
  return impl_->signal != 0;
}
int Run::signal() const {
  return impl_->signal;
}
int Run::exit_code() const {
  return impl_->signal != 0 ? 128 + impl_->signal : 0;
}

}  // namespace yoke
