// The same pushes and pulls as bench/sparse_tables.cpp through ps-lite's own API and its default handler
// (a hash map), for bench/compare_sparse.py, which starts it as scheduler, server and worker.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "ps/ps.h"

using Clock = std::chrono::steady_clock;

// For a second, at least five times.
template <class Work>
double median_microseconds(Work work) {
  std::vector<double> all;
  for (auto end = Clock::now() + std::chrono::seconds(1); all.size() < 5 || Clock::now() < end;) {
    auto begin = Clock::now();
    work();
    all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
  return all[all.size() / 2];
}

int main(int words, char** word) {
  const std::string role = ps::Environment::Get()->find("DMLC_ROLE");
  ps::KVServer<float>* server = nullptr;
  if (role == "server") {
    server = new ps::KVServer<float>(0);
    server->set_request_handle(ps::KVServerDefaultHandle<float>());
  }
  ps::Start(0);
  if (role == "worker") {
    ps::KVWorker<float> worker(0, 0);
    const ps::Key space = ps::Key(1) << 63;
    for (int i = 1; i < words; ++i) {
      const size_t count = std::stoul(word[i]);
      ps::SArray<ps::Key> keys(count);
      ps::SArray<float> values(count, 1), seen(count);
      for (size_t k = 0; k < count; ++k) keys[k] = k * (space / count);
      worker.Wait(worker.ZPush(keys, values));
      double push = median_microseconds([&] { worker.Wait(worker.ZPush(keys, values)); });
      double pull = median_microseconds([&] { worker.Wait(worker.ZPull(keys, &seen)); });
      std::printf("%zu %.2f %.2f\n", count, push, pull);
      std::fflush(stdout);
    }
  }
  ps::Finalize(0, true);
  return 0;
}
