#include "yoke/engine/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>

#include "yoke/base/error.h"

namespace yoke::engine {
namespace {

// A rank that writes slowly is waited for; a dead one is reported immediately.
constexpr double kPatience = 3600;

}  // namespace

checkpoint::Team team_of(cluster::World& job) {
  std::vector<int> everybody(static_cast<size_t>(job.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  return team_of(job, everybody);
}

checkpoint::Team team_of(cluster::World& job, const std::vector<int>& ranks) {
  const auto own = std::ranges::find(ranks, job.rank()) - ranks.begin();
  YOKE_CHECK(own < std::ssize(ranks), "rank {} is not in its team of {}", job.rank(), ranks.size());
  checkpoint::Team team{static_cast<int>(own), static_cast<int>(ranks.size()), {}};
  if (ranks.size() == 1) return team;
  team.exchange = [&job, ranks, meetings = std::make_shared<std::atomic<int64_t>>(0)](
                      const std::string& about, const std::string& text) {
    return job.session().exchange(fmt::format("team/{}/{}", meetings->fetch_add(1), about), text,
                                  Deadline::after(kPatience), ranks);
  };
  return team;
}

}  // namespace yoke::engine
