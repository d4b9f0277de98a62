#include "yoke/ps/chain.h"

#include <utility>

#include "yoke/base/error.h"
#include "yoke/ps/succession.h"

namespace yoke::ps {

bool Chain::passes_on() const {
  return next_ != Succession::kNobody || is_filling();
}

int64_t Chain::append(std::vector<std::byte> entry) {
  ++last_;
  if (!passes_on()) return last_;
  auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(entry));
  if (is_filling()) {
    send_(filling_, last_, bytes, [] {});
    return last_;
  }
  open_.push_back({last_, std::move(bytes)});
  if (!held_) pass_on(open_.back());
  return last_;
}

void Chain::pass_on(const Open& open) {
  send_(next_, open.number, open.entry, [this, number = open.number] { acknowledged(number); });
}

void Chain::when_safe(int64_t number, Task task) {
  if (is_safe(number)) return task();
  YOKE_CHECK(number <= last_, "entry {} of {}", number, last_);
  open_[static_cast<size_t>(number - open_.front().number)].tasks.push_back(std::move(task));
}

void Chain::acknowledged(int64_t number) {
  if (is_safe(number)) return;  // sent twice
  open_[static_cast<size_t>(number - open_.front().number)].acknowledged = true;
  settle();
}

// Tasks may append entries.
void Chain::settle() {
  std::vector<Task> tasks;
  while (!open_.empty() && open_.front().acknowledged) {
    for (Task& task : open_.front().tasks) tasks.push_back(std::move(task));
    open_.pop_front();
  }
  for (Task& task : tasks) task();
}

void Chain::hold_for(int next) {
  next_ = next;
  filling_ = Succession::kNobody;
  held_ = true;
}

void Chain::fill(int server) {
  set_next(Succession::kNobody);
  filling_ = server;
}

void Chain::filled() {
  next_ = std::exchange(filling_, Succession::kNobody);
}

void Chain::start_after(int64_t number) {
  open_.clear();
  last_ = number;
  set_next(Succession::kNobody);
}

void Chain::set_next(int next) {
  filling_ = Succession::kNobody;
  if (next == next_ && !held_) return;
  next_ = next;
  held_ = false;
  if (next == Succession::kNobody) {
    for (Open& open : open_) open.acknowledged = true;
    return settle();
  }
  const std::deque<Open> open = open_;  // the next server may acknowledge at once
  for (const Open& one : open) pass_on(one);
}

}  // namespace yoke::ps
