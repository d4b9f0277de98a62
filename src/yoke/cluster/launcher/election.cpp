// The coordinator's election through etcd.
//
// A lease makes it safe: the holder starts epochs only while its lease holds by its own clock, and everybody
// else can be elected only after etcd has let it expire. So two halves of a split network cannot both
// regroup.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/cluster/etcd.h"
#include "yoke/cluster/launcher/hosting.h"
#include "yoke/cluster/whereabouts.h"

namespace yoke::cluster {
namespace {

constexpr int kLease = 2;            // seconds; the least that etcd grants
constexpr double kTurn = 0.3;        // seconds between two looks
constexpr double kAnswer = 1.5;      // seconds for one request
constexpr double kFirstAnswer = 10;  // likewise, at the start
constexpr double kSayEvery = 10;

class Elected : public Hosting {
 public:
  Elected(const LaunchOptions& options, const JobPlace& place)
      : options_(options), place_(place), etcd_(etcd_members(options.etcd)) {
    turn(Deadline::after(kFirstAnswer));  // the user hears at once if etcd is not there
    thread_ = std::thread([this] { stand(); });
  }

  ~Elected() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
    coordinator_.reset();
    if (lease_ == 0) return;
    try {
      etcd_.revoke(lease_, Deadline::after(kAnswer));
    } catch (const Error&) {
      // It expires by itself.
    }
  }

  std::shared_ptr<Coordinator> coordinator() const override {
    std::lock_guard lock(mutex_);
    return coordinator_;
  }

 private:
  void stand() {
    double next_line = 0;
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::duration<double>(kTurn), [this] { return stop_; })) {
      lock.unlock();
      try {
        turn(Deadline::after(kAnswer));
      } catch (const std::exception& error) {
        // Training goes on; only a new epoch has to wait for etcd.
        if (now_seconds() >= next_line) log::warn("{}", error.what());
        next_line = now_seconds() + kSayEvery;
      }
      lock.lock();
    }
  }

  void turn(Deadline deadline) {
    if (lease_ == 0) return campaign(deadline);
    const double asked = now_seconds();
    if (!etcd_.keep(lease_, deadline)) return step_down();
    held_until_ = asked + kLease;
    publish(deadline);
  }

  void campaign(Deadline deadline) {
    const std::string key = coordinator_key(place_.ticket.job_id);
    if (etcd_.get(key, deadline)) return;
    CoordinatorOptions hosting = coordinator_options(options_);
    hosting.address.host =
        options_.local_addr.empty() ? net::local_address_towards(etcd_.member()) : options_.local_addr;
    hosting.may_start_epoch = [this] { return now_seconds() < held_until_; };
    auto candidate = std::make_shared<Coordinator>(hosting, place_.ticket);
    const double asked = now_seconds();
    const int64_t lease = etcd_.grant(kLease, deadline);
    if (etcd_.create(key, candidate->address().text(), lease, deadline).lease != lease) {
      etcd_.revoke(lease, deadline);
      return;
    }
    held_until_ = asked + kLease;
    lease_ = lease;
    log::info("machine {} hosts the coordinator at {}", options_.node_rank, candidate->address().text());
    std::lock_guard lock(mutex_);
    coordinator_ = std::move(candidate);
  }

  // Ranks that are connected return to whoever is elected next.
  void step_down() {
    log::warn("machine {} no longer hosts the coordinator: its lease in etcd has expired",
              options_.node_rank);
    lease_ = 0;
    std::shared_ptr<Coordinator> old;
    std::lock_guard lock(mutex_);
    old.swap(coordinator_);
  }

  // For people and tools: `etcdctl get --prefix /yoke`.
  void publish(Deadline deadline) {
    std::shared_ptr<Coordinator> hosted = coordinator();
    if (!hosted) return;
    std::string now = hosted->position().dump();
    if (now == published_) return;
    etcd_.put(epoch_key(place_.ticket.job_id), now, 0, deadline);
    published_ = now;
  }

  const LaunchOptions& options_;
  const JobPlace& place_;
  Etcd etcd_;
  int64_t lease_ = 0;  // 0: not elected
  std::atomic<double> held_until_{0};
  std::string published_;
  mutable std::mutex mutex_;  // guards stop_ and coordinator_
  std::condition_variable wake_;
  bool stop_ = false;
  std::shared_ptr<Coordinator> coordinator_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Hosting> host_if_elected(const LaunchOptions& options, const JobPlace& place) {
  return std::make_unique<Elected>(options, place);
}

}  // namespace yoke::cluster
