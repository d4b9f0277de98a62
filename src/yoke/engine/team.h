// Ranks of a job as the team that writes its checkpoints.
#pragma once

#include <vector>

#include "yoke/checkpoint/team.h"
#include "yoke/cluster/world.h"

namespace yoke::engine {

// Texts are exchanged through the job's coordinator: independent of the backend, from any thread, while the
// ranks train. `job` must outlive the team. A world of one is a team of one.
checkpoint::Team team_of(cluster::World& job);
// Some ranks of the job, this one among them.
checkpoint::Team team_of(cluster::World& job, const std::vector<int>& ranks);

}  // namespace yoke::engine
