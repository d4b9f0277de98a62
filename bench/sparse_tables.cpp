// Our side of bench/compare_ps_lite.py: pushes and pulls of sorted keys to a sparse table, one worker and one
// server as threads. bench/build_ps_lite builds it.
//
//   ours shm|tcp cache|keys same|varied KEYS...    "KEYS PUSH PULL": microseconds of a request, medians
//   ours shm|tcp cache|keys load KEYS              "KEYS SECONDS", then "CPU SECONDS" of the server's threads
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "yoke/base/clock.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"
#include "yoke/ps/sparse/client.h"

namespace {

using namespace yoke;
using namespace yoke::ps;
using Keys = std::vector<sparse::Key>;

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

// Each key of a list is one of two candidates, at random.
std::vector<Keys> lists_of(size_t lists, size_t count) {
  std::mt19937_64 bits(1);
  const sparse::Key stride = sparse::kMostKeys / count;
  std::vector<Keys> all(lists, Keys(count));
  for (Keys& keys : all)
    for (size_t k = 0; k < count; ++k) keys[k] = k * stride + (bits() & 1);
  return all;
}

void requests(sparse::Client& client, size_t lists, size_t count) {
  const std::vector<Keys> all = lists_of(lists, count);
  std::vector<float> values(count, 1), seen(count);
  auto bytes = std::as_bytes(std::span(values));
  auto into = std::as_writable_bytes(std::span(seen));
  for (const Keys& keys : all) client.wait(client.push(0, keys, bytes));
  size_t turn = 0;
  double push = median_microseconds([&] { client.wait(client.push(0, all[turn++ % lists], bytes)); });
  double pull = median_microseconds([&] { client.wait(client.pull(0, all[turn++ % lists], into)); });
  fmt::print("{} {:.2f} {:.2f}\n", count, push, pull);
}

// A push and a pull in turns for three seconds, eight in flight.
void load(sparse::Client& client, size_t count) {
  const std::vector<Keys> all = lists_of(4, count);
  std::array<std::vector<float>, 8> seen;
  seen.fill(std::vector<float>(count));
  std::vector<float> values(count, 1);
  std::deque<sparse::Client::Timestamp> flying;
  size_t done = 0;
  Stopwatch watch;
  while (watch.seconds() < 3) {
    const Keys& keys = all[done / 2 % all.size()];
    flying.push_back(done % 2 == 0 ? client.push(0, keys, std::as_bytes(std::span(values)))
                                   : client.pull(0, keys, std::as_writable_bytes(std::span(seen[done % 8]))));
    if (++done < 8) continue;
    client.wait(flying.front());
    flying.pop_front();
  }
  for (auto one : flying) client.wait(one);
  fmt::print("{} {:.3f}\n", done * count, watch.seconds());
}

}  // namespace

int main(int words, char** word) {
  if (words < 5) return fmt::print("usage: ours shm|tcp cache|keys same|varied|load KEYS...\n"), 2;
  const std::string what = word[3];
  ServerOptions options;
  options.make_updater = make_adder();
  options.make_rule = [](int) { return sparse::make_rule({}); };
  std::unique_ptr<Server> server;
  LocalGroup group(2, word[1]);
  server = std::make_unique<Server>(group.messenger(1), options);
  {
    sparse::Client client(group.messenger(0), {.key_cache = std::string(word[2]) == "cache"});
    for (int i = 4; i < words; ++i) {
      if (what == "load")
        load(client, std::stoul(word[i]));
      else
        requests(client, what == "same" ? 1 : 4, std::stoul(word[i]));
      std::fflush(stdout);
    }
  }
  server->run();
  fmt::print("CPU {:.3f}\n", server->numbers().cpu_seconds);
  group.close(0);
  group.close(1);
  return 0;
}
