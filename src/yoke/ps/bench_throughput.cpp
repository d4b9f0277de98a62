#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/ps/bench.h"
#include "yoke/ps/client.h"
#include "yoke/ps/connect.h"
#include "yoke/ps/server.h"

namespace yoke::ps {
namespace {

// One worker: each reply triggers the next request, on the messenger's own thread.
class Load {
 public:
  Load(comm::Messenger& messenger, const ThroughputBench& bench)
      : values_(elements_of(bench)),
        seen_(static_cast<size_t>(bench.in_flight)),
        client_(messenger, options_of(bench)) {
    for (auto& one : seen_) one.resize(values_.size());
  }

  // Returns operations per second.
  double run(double seconds) {
    double begin = now_seconds();
    end_ = begin + seconds;
    under_way_ = seen_.size();
    for (size_t lane = 0; lane < seen_.size(); ++lane) send(lane);
    std::unique_lock lock(mutex_);
    if (!over_.wait_for(lock, std::chrono::duration<double>(60 + seconds), [&] { return under_way_ == 0; }))
      throw CommError("bench ps: timed out");
    if (!error_.empty()) throw CommError("bench ps: {}", error_);
    return static_cast<double>(done_) / (now_seconds() - begin);
  }

 private:
  static size_t elements_of(const ThroughputBench& bench) {
    return std::max<size_t>(1, bench.bytes / sizeof(float));
  }
  static ClientOptions options_of(const ThroughputBench& bench) {
    ClientOptions options;
    options.workers = bench.workers;
    options.servers = bench.servers;
    options.keys = static_cast<int64_t>(elements_of(bench));
    int64_t even = (static_cast<int64_t>(bench.bytes) + bench.servers - 1) / bench.servers;
    options.range_bytes = std::clamp<int64_t>(even, 4, options.range_bytes);
    options.timeout = 60;
    return options;
  }

  void send(size_t lane) {
    client_.push_pull(0, std::as_bytes(std::span(values_)), std::as_writable_bytes(std::span(seen_[lane])),
                      [this, lane](const std::string& error) { came(lane, error); });
  }
  void came(size_t lane, const std::string& error) {
    ++done_;
    if (error.empty() && now_seconds() < end_) return send(lane);
    std::lock_guard lock(mutex_);
    if (!error.empty()) error_ = error;
    if (--under_way_ == 0) over_.notify_all();
  }

  std::vector<float> values_;
  std::vector<std::vector<float>> seen_;  // one per request in flight
  double end_ = 0;
  int64_t done_ = 0;  // used by the messenger's thread only
  std::mutex mutex_;
  std::condition_variable over_;
  size_t under_way_ = 0;
  std::string error_;
  Client client_;  // destroyed first: nothing is in flight after that
};

}  // namespace

ThroughputResult bench_throughput(const ThroughputBench& bench) {
  std::vector<std::unique_ptr<Server>> servers;
  // Destroyed first: its threads call the servers
  LocalGroup group(bench.workers + bench.servers, bench.backend);
  for (int server = 0; server < bench.servers; ++server) {
    ServerOptions options;
    options.workers = bench.workers;
    options.servers = bench.servers;
    options.make_updater = make_adder();
    servers.push_back(std::make_unique<Server>(group.messenger(bench.workers + server), std::move(options)));
  }
  std::mutex mutex;
  double rate = 0;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int worker = 0; worker < bench.workers; ++worker) {
    threads.emplace_back([&, worker] {
      try {
        double own = Load(group.messenger(worker), bench).run(bench.seconds);
        std::lock_guard lock(mutex);
        rate += own;
      } catch (const std::exception&) {
        {
          std::lock_guard lock(mutex);
          if (!error) error = std::current_exception();
        }
        group.close(worker);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& server : servers) {
    try {
      server->run();
    } catch (const std::exception&) {  // an error of a worker takes precedence
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  ThroughputResult result;
  result.pushpull_per_s = rate;
  result.bandwidth = rate * 2 * static_cast<double>(bench.bytes);
  double cpu = 0, moved = 0;
  for (auto& server : servers) {
    cpu += server->numbers().cpu_seconds;
    moved += static_cast<double>(server->numbers().payload_bytes);
  }
  result.server_cpu_seconds_per_byte = moved > 0 ? cpu / moved : 0;
  return result;
}

}  // namespace yoke::ps
