#include "yoke/ps/tasks.h"

#include <algorithm>
#include <chrono>

#include "yoke/base/error.h"

namespace yoke::ps {
namespace {

constexpr int kMostThreads = 256;
constexpr size_t kNamed = 4;  // tasks in an error text

}  // namespace

Tasks::Tasks(int threads) {
  if (threads < 1 || threads > kMostThreads)
    throw ConfigError("tasks on {} threads: use 1 to {}.", threads, kMostThreads);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Tasks::~Tasks() {
  {
    std::unique_lock lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return in_flight_ == 0; });
  }
  for (std::thread& thread : threads_) thread.join();
}

Tasks::Id Tasks::submit(Work work, After after) {
  std::lock_guard lock(mutex_);
  const Id id = next_;
  for (Id other : after.these)
    if (other < 0 || other >= id)
      throw ConfigError("task {} cannot run after task {}: it may follow tasks submitted before it.", id,
                        other);
  if (after.all_below > id)
    throw ConfigError("task {} cannot run after all tasks below {}.", id, after.all_below);
  open_[id] = {std::move(work), std::move(after)};
  ++next_;
  changed_.notify_all();
  return id;
}

bool Tasks::is_ready(const Task& task) const {
  if (open_.begin()->first < task.after.all_below) return false;
  return std::none_of(task.after.these.begin(), task.after.these.end(),
                      [&](Id id) { return open_.count(id) != 0; });
}

std::string Tasks::failure_before(const Task& task) const {
  for (const auto& [id, error] : failed_)
    if (id < task.after.all_below ||
        std::find(task.after.these.begin(), task.after.these.end(), id) != task.after.these.end())
      return fmt::format("it runs after task {}, which failed: {}", id, error);
  return "";
}

void Tasks::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto found = open_.end();
    changed_.wait(lock, [&] {
      found = std::find_if(open_.begin(), open_.end(),
                           [&](auto& one) { return !one.second.started && is_ready(one.second); });
      return leaving_ || found != open_.end();
    });
    if (leaving_) return;
    const Id id = found->first;
    if (std::string failure = failure_before(found->second); !failure.empty()) {
      end(id, failure);
      continue;
    }
    found->second.started = true;
    most_in_flight_ = std::max(most_in_flight_, ++in_flight_);
    Work work = std::move(found->second.work);
    lock.unlock();
    try {
      work([this, id](const std::string& error) { finished(id, error); });
    } catch (const std::exception& error) {
      finished(id, error.what());
    }
    work = nullptr;
    lock.lock();
  }
}

void Tasks::end(Id id, const std::string& error) {
  if (!error.empty()) failed_[id] = error;
  open_.erase(id);
  changed_.notify_all();
}

void Tasks::finished(Id id, const std::string& error) {
  std::lock_guard lock(mutex_);
  auto found = open_.find(id);
  if (found == open_.end() || !found->second.started) return;  // it finished before
  --in_flight_;
  end(id, error);
}

std::string Tasks::unfinished() const {
  std::string names;
  size_t count = 0;
  for (const auto& [id, task] : open_) {
    if (++count > kNamed) break;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", id, task.started ? "runs" : "waits");
  }
  return names + (open_.size() > kNamed ? fmt::format(" and {} more", open_.size() - kNamed) : "");
}

void Tasks::wait(Id id, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (id < 0 || id >= next_) throw ConfigError("task {} was not submitted; there are {}.", id, next_);
  if (!changed_.wait_for(lock, std::chrono::duration<double>(deadline.left()),
                         [&] { return open_.count(id) == 0; }))
    throw CommError("task {} did not finish in time. Not finished: {}", id, unfinished());
  if (auto failed = failed_.find(id); failed != failed_.end())
    throw CommError("task {}: {}", id, failed->second);
}

void Tasks::wait_all(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, std::chrono::duration<double>(deadline.left()), [&] { return open_.empty(); }))
    throw CommError("{} tasks did not finish in time: {}", open_.size(), unfinished());
  if (!failed_.empty()) throw CommError("task {}: {}", failed_.begin()->first, failed_.begin()->second);
}

bool Tasks::is_finished(Id id) const {
  std::lock_guard lock(mutex_);
  return id >= 0 && id < next_ && open_.count(id) == 0;
}

int64_t Tasks::most_in_flight() const {
  std::lock_guard lock(mutex_);
  return most_in_flight_;
}

}  // namespace yoke::ps
