// A mesh with one communicator per axis, for programs that combine strategies themselves.
//
//   yoke::DeviceMesh mesh(world.comm(), {.data = 2, .tensor = 2});
//   yoke::TensorParallel slices = yoke::parallelize(*net, mesh.axis("tensor"), plan);
//   yoke::DistributedDataParallel ddp(*net, mesh.axis("data"));
#pragma once

#include <array>
#include <memory>
#include <string>

#include "yoke/comm/communicator.h"
#include "yoke/parallel/mesh.h"

namespace yoke::parallel {

class DeviceMesh {
 public:
  // The axes must multiply to world.size(). Collective. `world` must outlive it. Throws ConfigError.
  DeviceMesh(comm::Communicator& world, const Mesh& mesh);

  // The communicator of the ranks that differ from this one only in that coordinate, in its order:
  // "pipeline", "data" or "tensor". Throws ConfigError for other names.
  comm::Communicator& axis(const std::string& name) const;

  const Mesh& mesh() const { return mesh_; }
  const Coordinates& here() const { return here_; }  // of this rank

 private:
  Mesh mesh_;
  Coordinates here_;
  std::array<std::unique_ptr<comm::Communicator>, 3> axes_;
};

}  // namespace yoke::parallel
