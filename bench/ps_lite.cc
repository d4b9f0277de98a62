// ps-lite's side of bench/compare_ps_lite.py, through its own API and its default handler (a hash map): the
// same requests as bench/sparse_tables.cpp. The script starts it as scheduler, server and worker.
//
//   theirs same|varied KEYS...    "KEYS PUSH PULL": microseconds of a request, medians
//   theirs load KEYS              "KEYS SECONDS" from the worker, "CPU SECONDS" from the server
//   theirs dense BYTES            "BYTES PUSH PULL": one value of that size; the server adds it to its own
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "ps/ps.h"

using Clock = std::chrono::steady_clock;
using Keys = ps::SArray<ps::Key>;

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

// Each key of a list is one of two candidates, at random.
std::vector<Keys> lists_of(size_t lists, size_t count) {
  std::mt19937_64 bits(1);
  const ps::Key stride = (ps::Key(1) << 63) / count;
  std::vector<Keys> all;
  for (size_t i = 0; i < lists; ++i) {
    Keys keys(count);
    for (size_t k = 0; k < count; ++k) keys[k] = k * stride + (bits() & 1);
    all.push_back(keys);
  }
  return all;
}

void requests(ps::KVWorker<float>& worker, size_t lists, size_t count) {
  const std::vector<Keys> all = lists_of(lists, count);
  ps::SArray<float> values(count, 1), seen(count);
  for (const Keys& keys : all) worker.Wait(worker.ZPush(keys, values));
  size_t turn = 0;
  double push = median_microseconds([&] { worker.Wait(worker.ZPush(all[turn++ % lists], values)); });
  double pull = median_microseconds([&] { worker.Wait(worker.ZPull(all[turn++ % lists], &seen)); });
  std::printf("%zu %.2f %.2f\n", count, push, pull);
}

// A push and a pull in turns for three seconds, eight in flight.
void load(ps::KVWorker<float>& worker, size_t count) {
  const std::vector<Keys> all = lists_of(4, count);
  std::vector<ps::SArray<float>> seen(8, ps::SArray<float>(count));
  ps::SArray<float> values(count, 1);
  std::deque<int> flying;
  size_t done = 0;
  auto begin = Clock::now();
  while (Clock::now() < begin + std::chrono::seconds(3)) {
    const Keys& keys = all[done / 2 % all.size()];
    flying.push_back(done % 2 == 0 ? worker.ZPush(keys, values) : worker.ZPull(keys, &seen[done % 8]));
    if (++done < 8) continue;
    worker.Wait(flying.front());
    flying.pop_front();
  }
  for (int one : flying) worker.Wait(one);
  std::printf("%zu %.3f\n", done * count, std::chrono::duration<double>(Clock::now() - begin).count());
}

void dense(ps::KVWorker<float>& worker, size_t bytes) {
  const size_t count = bytes / sizeof(float);
  Keys keys(1, 0);
  ps::SArray<int> lengths(1, static_cast<int>(count));
  ps::SArray<float> values(count, 1), seen(count);
  auto push = [&] { worker.Wait(worker.ZPush(keys, values, lengths)); };
  push();
  double pushed = median_microseconds(push);
  double pulled = median_microseconds([&] { worker.Wait(worker.ZPull(keys, &seen, &lengths)); });
  std::printf("%zu %.2f %.2f\n", bytes, pushed, pulled);
}

void add_dense(const ps::KVMeta& meta, const ps::KVPairs<float>& pairs, ps::KVServer<float>* server) {
  static ps::SArray<float> sum;
  ps::KVPairs<float> answer;
  if (meta.push) {
    if (sum.empty()) sum.resize(pairs.vals.size(), 0);
    for (size_t i = 0; i < pairs.vals.size(); ++i) sum[i] += pairs.vals[i];
  } else {
    answer.keys = pairs.keys;
    answer.vals = sum;
    answer.lens = {static_cast<int>(sum.size())};
  }
  server->Response(meta, answer);
}

int main(int words, char** word) {
  const std::string role = ps::Environment::Get()->find("DMLC_ROLE"), what = word[1];
  ps::KVServer<float>* server = nullptr;
  if (role == "server") {
    server = new ps::KVServer<float>(0);
    if (what == "dense")
      server->set_request_handle(add_dense);
    else
      server->set_request_handle(ps::KVServerDefaultHandle<float>());
  }
  ps::Start(0);
  if (role == "worker") {
    ps::KVWorker<float> worker(0, 0);
    for (int i = 2; i < words; ++i) {
      const size_t size = std::stoul(word[i]);
      if (what == "load") load(worker, size);
      else if (what == "dense") dense(worker, size);
      else requests(worker, what == "same" ? 1 : 4, size);
      std::fflush(stdout);
    }
  }
  ps::Finalize(0, true);
  if (role == "server") {
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    std::printf("CPU %.3f\n", used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec));
  }
  return 0;
}
