#include "yoke/comm/join.h"

namespace yoke {

World join(const cluster::JoinOptions& options, const comm::ConnectOptions& connect) {
  World world;
  world.job_ = std::make_unique<cluster::World>(cluster::identify_from_environment(), options);
  world.comm_ = comm::connect(*world.job_, connect);
  return world;
}

}  // namespace yoke
