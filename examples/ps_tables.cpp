// A sparse table with a rule of your own: the servers keep the largest value that anybody has pushed for a
// key.
//   build/yoke run --nproc 3 build/example_ps_tables
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"
#include "yoke/ps/sparse/client.h"
#include "yoke/ps/tasks.h"

namespace {

using namespace yoke;
using ps::sparse::Key;

constexpr Key kSpace = Key{1} << 40;  // memory grows with the keys that are used, not with this
constexpr int kBatches = 8, kKeys = 100;
constexpr double kSeconds = 30;

// Runs on the servers, for the keys of a push. A key that is new has zeros.
void keep_largest(const ps::sparse::RuleStep&, const ps::sparse::RowBlock& rows) {
  auto* held = static_cast<float*>(rows.values);
  const auto* pushed = static_cast<const float*>(rows.gradient);
  for (int64_t i = 0; i < rows.count(); ++i) held[i] = std::max(held[i], pushed[i]);
}

void serve(std::unique_ptr<comm::Messenger> messenger, int workers) {
  ps::ServerOptions options;
  options.workers = workers;
  options.make_updater = ps::make_adder();
  options.make_rule = [](int) { return ps::sparse::make_function(keep_largest); };
  ps::Server server(*messenger, options);
  server.run();
  messenger.reset();  // its thread calls the server
}

// Pushes batches, at most three of them in flight, and returns the sum of what the servers then hold.
double work(comm::Messenger& messenger, int worker, int workers) {
  ps::sparse::Client client(messenger, {.workers = workers, .servers = 1, .tables = {{.keys = kSpace}}});
  std::vector<Key> keys;
  for (int i = 0; i < kKeys; ++i) keys.push_back(kSpace / kKeys * i);
  std::vector<std::vector<float>> batches;
  for (int batch = 0; batch < kBatches; ++batch)
    batches.emplace_back(kKeys, static_cast<float>(batch * workers + worker));
  ps::Tasks tasks;
  for (int batch = 0; batch < kBatches; ++batch)
    tasks.submit(
        [&, batch](auto finish) { client.push(0, keys, std::as_bytes(std::span(batches[batch])), finish); },
        ps::Tasks::bounded_delay(batch, 2));
  tasks.wait_all(Deadline::after(kSeconds));
  std::vector<float> held(kKeys);
  client.wait(client.pull(0, keys, std::as_writable_bytes(std::span(held))));
  double sum = 0;
  for (float value : held) sum += value;
  return sum;
}

}  // namespace

int main() {
  try {
    cluster::World world(cluster::identify_from_environment(), {});
    auto messenger = ps::connect(world);
    const int workers = world.size() - 1;
    if (world.rank() == workers)
      serve(std::move(messenger), workers);
    else
      fmt::print("worker {} of {}: the servers hold {} keys with a sum of {}\n", world.rank(), workers, kKeys,
                 work(*messenger, world.rank(), workers));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
