#include "yoke/engine/team.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>

namespace yoke::engine {
namespace {

// A rank that writes slowly is waited for; one that died is known at once.
constexpr double kPatience = 3600;

}  // namespace

checkpoint::Team team_of(cluster::World& job) {
  checkpoint::Team team{job.rank(), job.size(), {}};
  if (job.alone()) return team;
  team.exchange = [&job, meetings = std::make_shared<std::atomic<int64_t>>(0)](const std::string& about,
                                                                               const std::string& own) {
    return job.session().exchange(fmt::format("team/{}/{}", meetings->fetch_add(1), about), own,
                                  Deadline::after(kPatience));
  };
  return team;
}

}  // namespace yoke::engine
