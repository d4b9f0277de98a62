// What a parameter server does for L-BFGS: it holds a shard of the vectors, and on the first server it runs
// the coordinator.
//
// Everything a peer sends is checked before it changes any state; CommError refuses it and names the sender.
// handle() runs on the messenger's thread and never blocks for a peer; the coordinator's thread uses the
// shard of the first server, too.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "yoke/comm/messenger.h"
#include "yoke/ps/sandblaster/coordinator.h"
#include "yoke/ps/sandblaster/vector_shard.h"

namespace yoke::ps::sandblaster {

class VectorService {
 public:
  // Empty options: every message is refused. The messenger's rank is `workers` + number of the server.
  VectorService(comm::Messenger& messenger, int workers, int servers,
                std::optional<SandblasterOptions> options);

  static bool handles(uint16_t kind) { return kind >= kOpenVectors && kind <= kCommand; }
  // Largest payload of a message of this kind.
  size_t most_bytes(uint16_t kind) const;
  // `idle`: seconds since the first worker was last heard of.
  void handle(int from, const comm::Message& request, const comm::Messenger::Answer& answer, double idle);
  void worker_lost(int worker);
  // Ends the coordinator; call it before the messenger ends.
  void stop();

  size_t bytes_held() const;

 private:
  int own_index() const { return messenger_.rank() - workers_; }
  void open(int from, const comm::Message& request);
  void assign(int from, const comm::Message& request);
  void pull(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void push(int from, const comm::Message& request, const comm::Messenger::Answer& answer);
  void assign_numbers(int from, const comm::Message& request);
  void fetch_numbers(const comm::Messenger::Answer& answer);
  void count(const comm::Messenger::Answer& answer);
  Coordinator& coordinator(int from);
  double run_own(const CommandHead& command);
  double run_everywhere(const CommandHead& command);

  comm::Messenger& messenger_;
  const int workers_, servers_;
  const std::optional<SandblasterOptions> options_;
  std::optional<OpenHead> opened_;
  Sharding sharding_;
  size_t largest_range_ = 0;  // bytes
  mutable std::mutex mutex_;
  VectorShard shard_;  // guarded by mutex_
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace yoke::ps::sandblaster
