#include <fmt/core.h>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/plan/schedules/schedule.h"

namespace yoke::plan {
namespace {

constexpr struct {
  ScheduleKind kind;
  const char* name;
} kKinds[] = {
    {ScheduleKind::kNaive, "naive"}, {ScheduleKind::kGpipe, "gpipe"},
    {ScheduleKind::k1F1B, "1f1b"},   {ScheduleKind::kPipedream, "pipedream"},
    {ScheduleKind::k2BW, "2bw"},     {ScheduleKind::kInterleaved, "interleaved"},
    {ScheduleKind::kZbH1, "zb-h1"},
};
constexpr const char* kOps[] = {"F", "B", "W", "send", "recv", "send_grad", "recv_grad", "update"};

std::string text_of(const ScheduleAction& action, int chunks) {
  std::string text = to_string(action.op) + std::to_string(action.microbatch);
  if (chunks > 1) text += fmt::format(".{}", action.chunk);
  if (action.peer >= 0) return text + fmt::format(">{}", action.peer);
  return text + fmt::format("@{}", action.version);
}

}  // namespace

const char* to_string(ScheduleKind kind) {
  return kKinds[static_cast<size_t>(kind)].name;
}

const char* to_string(ScheduleOp op) {
  return kOps[static_cast<size_t>(op)];
}

ScheduleKind parse_schedule_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& entry : kKinds) {
    if (name == entry.name) return entry.kind;
    names.push_back(entry.name);
  }
  throw ConfigError("schedule `{}` is unknown. Accepted: {}.", name, join(names, " "));
}

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (const ScheduleWorker& worker : schedule.workers) {
    text += fmt::format("stage {}.{}:", worker.stage, worker.replica);
    for (const ScheduleAction& action : worker.actions)
      text += " " + text_of(action, schedule.request.chunks);
    text += "\n";
  }
  return text;
}

}  // namespace yoke::plan
