// The ranks of a job as the team that writes its checkpoints.
#pragma once

#include "yoke/checkpoint/team.h"
#include "yoke/cluster/world.h"

namespace yoke::engine {

// Texts travel through the job's coordinator: whatever backend the ranks compute with, and from any thread,
// while the ranks train on. `job` must outlive the team. A world of one is a team of one.
checkpoint::Team team_of(cluster::World& job);

}  // namespace yoke::engine
