// Your own values on parameter servers: workers push, the last rank adds them up.
//   build/yoke run --nproc 3 build/example_ps_client
#include <fmt/core.h>

#include <vector>

#include "yoke/base/error.h"
#include "yoke/ps/client.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"

int main() {
  using namespace yoke;
  try {
    cluster::World world(cluster::identify_from_environment(), {});
    auto messenger = ps::connect(world);
    const int workers = world.size() - 1;
    if (world.rank() == workers) {
      ps::ServerOptions options;
      options.workers = workers;
      options.make_updater = ps::make_adder();  // or an optimizer, or a function of yours
      ps::Server server(*messenger, options);
      server.run();
      messenger.reset();  // its thread calls the server
      return 0;
    }
    ps::Client client(*messenger, {.workers = workers, .servers = 1, .keys = 1000});
    std::vector<float> ones(1000, 1), seen(1000);
    auto pushed = client.push(0, std::span(ones));  // returns at once, with a timestamp
    client.wait(pushed);
    client.wait(client.pull(0, std::span(seen)));
    fmt::print("worker {} of {}: {} has arrived so far\n", world.rank(), workers, seen[0]);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
