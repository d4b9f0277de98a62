// Epochs of runs with divided state (parallel.zero, stages of a pipeline): no rank has a whole copy of it.
#include "cli/torch/train_epochs.h"

#include <chrono>
#include <filesystem>

#include "cli/torch/train_parts.h"
#include "yoke/base/clock.h"
#include "yoke/base/log.h"
#include "yoke/base/text.h"
#include "yoke/base/units.h"
#include "yoke/checkpoint/checkpoint.h"
#include "yoke/engine/shard_restore.h"
#include "yoke/engine/stop_signal.h"

namespace yoke::cli {
namespace {

// "the shards of ranks 1, 2", "stage 1".
std::string shards_text(const std::string& kind, const std::vector<int>& shards) {
  std::vector<std::string> words;
  for (int one : shards) words.push_back(std::to_string(one));
  const char* s = shards.size() == 1 ? "" : "s";
  return fmt::format("{}{}{} {}", kind == "rank" ? fmt::format("the shard{} of ", s) : "", kind, s,
                     join(words));
}

std::string rebuilt_text(const engine::ShardChoice& choice) {
  return fmt::format("; {} of epoch {} {}", shards_text(choice.kind, choice.rebuilt), choice.epoch,
                     choice.rebuilt.size() == 1 ? "is rebuilt from the copy of a neighbour"
                                                : "are rebuilt from copies of neighbours");
}

}  // namespace

void Epochs::agree_on_shards() {
  choice_ = engine::agree_on_shards(held_, *member_.world());
  const cluster::Epoch& epoch = member_.job().session().epoch();
  summary_.repeated += choice_.repeated();
  summary_.changes.push_back(
      {epoch.number, std::max<int64_t>(0, choice_.step), member_.workers(), 0, 0, epoch.cause});
  if (!member_.first()) return;
  if (!choice_.complete()) {
    log::info("epoch {}: {} from the last checkpoint, or the start", epoch.number, who_continues());
    return;
  }
  const int64_t again = choice_.repeated();
  log::info("epoch {}: {} after step {}{}{}", epoch.number, who_continues(), choice_.step,
            again > 0 ? fmt::format("; step {} is repeated", choice_.step + 1) : "",
            !choice_.rebuilt.empty() ? rebuilt_text(choice_)
            : choice_.kind == "rank" ? "; shards are cut anew"
                                     : "");
}

Resume Epochs::resume_shards() {
  Resume resume;
  if (member_.first()) lock(resume);
  auto facts = std::make_shared<engine::StepFacts>(engine::share_facts(held_, choice_, *member_.world()));
  resume.in_memory = true;
  resume.checkpoint.emplace();
  resume.checkpoint->path = fmt::format("the shards of epoch {}", choice_.epoch);
  resume.checkpoint->step = facts->step;
  resume.checkpoint->state.rest = facts->rest;
  resume.fill = [this, facts](engine::Worker& worker) {
    summary_.rebuilt_bytes += engine::restore_shards(held_, choice_, *facts, worker, *member_.world());
  };
  return resume;
}

// Shards are lost: all ranks go back. A run that has not finished a step starts as it did.
Resume Epochs::resume_checkpoint(const TrainArguments& arguments) {
  if (choice_.lost.empty() && choice_.newest <= 0) return {};
  TrainArguments back = arguments;
  back.resume = "auto";
  if (Resume free; member_.first()) lock(free);
  Resume resume = find_resume(back, config_, member_);
  const std::string cause = fmt::format(
      "step {} cannot be continued: nobody has {} (elastic.replicas = {})", choice_.newest,
      choice_.lost.empty() ? "any state" : shards_text(choice_.kind, choice_.lost), config_.elastic.replicas);
  if (!resume || (arguments.resume == "never" && !written_by_this_job(resume)))
    throw CheckpointError(
        "{}, and {} has no checkpoint of this run. Start again, with checkpoint.every_steps set{}.", cause,
        config_.out.dir, config_.elastic.replicas == 0 ? " or elastic.replicas = 1" : "");
  if (resume.checkpoint->step > choice_.newest)
    throw CheckpointError("{}, and the checkpoint {} is of another run, with more steps.", cause,
                          resume.checkpoint->path.string());
  const int64_t again = choice_.newest - resume.checkpoint->step;
  summary_.repeated += again;
  summary_.changes.back().step = resume.checkpoint->step;
  if (member_.first())
    log::warn("{}: all ranks go back to {}; {} steps are repeated", cause, resume.checkpoint->path.string(),
              again);
  return resume;
}

// The first rank, which joined before the others, decides.
bool Epochs::written_by_this_job(const Resume& resume) const {
  const auto written = std::filesystem::last_write_time(resume.checkpoint->path);
  const auto age = std::chrono::duration<double>(std::filesystem::file_time_type::clock::now() - written);
  const bool ours = wall_seconds() - age.count() >= started_;
  return texts_of_all("checkpoint", ours ? "1" : "0").front() == "1";
}

void Epochs::keep_shards(engine::Engine& engine, engine::Worker& worker, const data::Loader& loader) {
  engine::ShardKeeperOptions options{member_.job().epoch(), config_.elastic.replicas};
  for (const cluster::Member& member : member_.job().members()) options.machines.push_back(member.machine);
  auto keeper =
      std::make_unique<engine::ShardKeeper>(worker, loader, engine, *member_.world(), std::move(options));
  held_ = {};
  choice_ = {};
  shard_keeper_ = keeper.get();
  engine_ = &engine;
  if (member_.first() && keeper->memory_bytes() > 0)
    log::info(
        "every rank keeps a copy of what its neighbour holds (elastic.replicas = 1): about {} more memory, "
        "{} more to send in every step",
        format_bytes(static_cast<double>(keeper->memory_bytes())),
        format_bytes(static_cast<double>(keeper->copied_bytes())));
  engine.attach_before_update([keeper = keeper.get()] { keeper->before_update(); });
  engine.attach(std::move(keeper));
  engine.attach(first_step());
}

// Who leaves gives its shard to a rank that stays.
void Epochs::hand_over_shards() {
  keeping([&] {
    std::vector<bool> leaves;
    for (const std::string& one : texts_of_all("leave", leaves_ ? "1" : "0")) leaves.push_back(one != "0");
    shard_keeper_->hand_over(leaves);
  });
}

void Epochs::count_copies() {
  if (shard_keeper_ == nullptr) return;
  summary_.copied_bytes += shard_keeper_->copied_bytes();
  summary_.copy_memory = shard_keeper_->memory_bytes();
}

}  // namespace yoke::cli
