// Pushes and pulls of sorted keys to a sparse table: one worker and one server, as threads, one request in
// flight. Prints "KEYS PUSH PULL" in microseconds, medians. bench/compare_sparse.py runs it beside ps-lite.
//
//   c++ -std=c++20 -O2 -Isrc -I.deps/include bench/sparse_tables.cpp build/libyoke_core.a -lfmt -lz -lcrypto
//   -o /tmp/sparse_tables && /tmp/sparse_tables shm cache 1 1000 1000000
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"
#include "yoke/ps/sparse/client.h"

namespace {

using namespace yoke;
using namespace yoke::ps;

// For a second, at least five times.
template <class Work>
double median_microseconds(Work work) {
  std::vector<double> seconds;
  for (double end = now_seconds() + 1; seconds.size() < 5 || now_seconds() < end;) {
    Stopwatch watch;
    work();
    seconds.push_back(watch.seconds());
  }
  auto middle = seconds.begin() + static_cast<long>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return 1e6 * *middle;
}

void measure(sparse::Client& client, size_t count) {
  std::vector<sparse::Key> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = i * (sparse::kMostKeys / count);
  std::vector<float> values(count, 1), seen(count);
  auto bytes = std::as_bytes(std::span(values));
  auto into = std::as_writable_bytes(std::span(seen));
  client.wait(client.push(0, keys, bytes));
  double push = median_microseconds([&] { client.wait(client.push(0, keys, bytes)); });
  double pull = median_microseconds([&] { client.wait(client.pull(0, keys, into)); });
  fmt::print("{} {:.2f} {:.2f}\n", count, push, pull);
  std::fflush(stdout);
}

}  // namespace

int main(int words, char** word) {
  if (words < 4) return fmt::print("usage: sparse_tables shm|tcp cache|keys KEYS...\n"), 2;
  ServerOptions options;
  options.make_updater = make_adder();
  options.make_rule = [](int) { return sparse::make_rule({}); };
  std::unique_ptr<Server> server;
  LocalGroup group(2, word[1]);
  server = std::make_unique<Server>(group.messenger(1), options);
  {
    sparse::Client client(group.messenger(0), {.key_cache = std::strcmp(word[2], "cache") == 0});
    for (int i = 3; i < words; ++i) measure(client, std::stoul(word[i]));
  }
  server->run();
  group.close(0);
  group.close(1);
  return 0;
}
