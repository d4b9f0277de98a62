#include "yoke/parallel/device_mesh.h"

#include "yoke/base/error.h"

namespace yoke::parallel {

DeviceMesh::DeviceMesh(comm::Communicator& world, const Mesh& mesh)
    : mesh_(fit_mesh(world.size(), mesh.pipeline, mesh.data, mesh.tensor)), here_(mesh_.at(world.rank())) {
  for (size_t i = 0; i < axes_.size(); ++i) {
    const char* name = mesh_.axes()[i].name;
    const auto groups = groups_along(mesh_, name);
    for (size_t group = 0; group < groups.size(); ++group)
      for (int rank : groups[group])
        if (rank == world.rank()) axes_[i] = world.split(static_cast<int>(group), world.rank(), name);
  }
}

comm::Communicator& DeviceMesh::axis(const std::string& name) const {
  for (size_t i = 0; i < axes_.size(); ++i)
    if (name == mesh_.axes()[i].name) return *axes_[i];
  throw ConfigError("a mesh has the axes pipeline, data and tensor, but no '{}'.", name);
}

}  // namespace yoke::parallel
