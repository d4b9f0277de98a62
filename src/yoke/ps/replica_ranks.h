// Which ranks of a job are one worker, where a replica of the model lies in parts on several of them.
#pragma once

#include <string>
#include <vector>

namespace yoke::ps {

// Workers come first, in the order of a mesh (pipeline, data, tensor): rank (stage, replica, slice) is
// (stage x replicas + replica) x slices + slice. Servers follow.
struct ReplicaRanks {
  int replicas = 1;  // workers, for a rule
  int stages = 1;
  int slices = 1;
  int servers = 0;  // at the start, where workers of one rank may join later: their ranks follow

  int parts() const { return stages * slices; }
  int ranks() const { return replicas * parts(); }
  int replica_of(int rank) const { return rank / slices % replicas; }
  int stage_of(int rank) const { return rank / (slices * replicas); }
  int slice_of(int rank) const { return rank % slices; }
  // Among the ranks of its replica, by stage and slice.
  int part_of(int rank) const { return stage_of(rank) * slices + slice_of(rank); }
  // The rank that speaks for its replica.
  int first_of(int replica) const { return replica < replicas ? replica * slices : replica + servers; }
  std::vector<int> ranks_of(int replica) const;
};

// "worker 1 (rank 1)", "worker 1 (ranks 1, 3)".
std::string worker_name(const ReplicaRanks& ranks, int replica);
// What a rank is called in messages: "worker 1", "worker 1, stage 0, slice 1".
std::string role_name(const ReplicaRanks& ranks, int rank);

}  // namespace yoke::ps
