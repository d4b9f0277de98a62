// The part of Server that describes it to programs outside of the job.
#include <algorithm>
#include <limits>

#include "yoke/base/clock.h"
#include "yoke/ps/server.h"

namespace yoke::ps {

ServerStatus Server::status() const {
  ServerStatus status;
  const Numbers numbers = this->numbers();
  status.id = own_index();
  status.ranges = static_cast<int64_t>(slots_.size());
  status.bytes = static_cast<int64_t>(numbers.bytes_held);
  status.keys = static_cast<int64_t>(numbers.tables.rows);
  status.pushed_bytes = numbers.pushed_bytes;
  status.pulled_bytes = numbers.payload_bytes - numbers.pushed_bytes;
  status.replica_bytes = numbers.replicated_bytes;
  status.clock = slots_.empty() ? 0 : std::numeric_limits<int64_t>::max();
  for (const Slot* slot : slots_) {
    status.clock = std::min(status.clock, slot->store.version());
    status.newest = std::max(status.newest, slot->store.version());
  }
  status.replicas = options_.replicas;
  for (const auto& share : shares_) {
    status.lag = std::max(status.lag, share->chain->unsafe());
    status.copying += share->copying ? 1 : 0;
    const bool whole = !share->copying && share->chain->passes_on();
    if (share->serves)
      status.replicas = std::min<int64_t>(status.replicas, whole ? succession_.copies(share->home) : 0);
    else
      status.copies += static_cast<int64_t>(share->slots.size());
  }
  if (const Scheduler* scheduler = this->scheduler()) {
    status.schedules = true;
    status.version = scheduler->version();
    status.workers = scheduler->worker_status();
  }
  return status;
}

ServerTime Server::time() {
  const ServerClock::Times times = clock_.times(now_seconds());
  const Numbers numbers = this->numbers();
  return {.receive = times.receive,
          .apply = times.apply,
          .wait = times.wait,
          .pushed_bytes = numbers.pushed_bytes,
          .pulled_bytes = numbers.payload_bytes - numbers.pushed_bytes,
          .table_bytes = numbers.tables.payload_bytes,
          .replicated_bytes = numbers.replicated_bytes};
}

void Server::ask_status(std::function<void(const ServerStatus&)> answer) {
  messenger_.run_soon([this, answer = std::move(answer)] { answer(status()); });
}

}  // namespace yoke::ps
