// Small messages in host memory by which two ranks agree on their transfers. Part of the module only.
#pragma once

#include <deque>
#include <optional>

#include "yoke/comm/backend.h"

namespace yoke::comm::nccl {

// One direction between this rank and a peer, under a tag of its own: values of type T, in order, without
// waiting.
template <class T>
class Announcements {
 public:
  Announcements(Backend& control, int peer, int tag, bool sends) : control_(control) {
    transfer_.is_send = sends;
    transfer_.peer = peer;
    transfer_.tag = tag;
    transfer_.bytes = sizeof(T);
    transfer_.descriptor.op = sends ? kSendOp : kReceiveOp;
    transfer_.descriptor.type = DataType::kUint8;
    transfer_.descriptor.count = sizeof(T);
    transfer_.descriptor.root = tag;
    transfer_.descriptor.set_name("announcement");
    transfer_.fingerprint = transfer_.descriptor.fingerprint();
  }

  void put(const T& value) { queue_.push_back(value); }

  // Sends what there is room for.
  void flush() {
    while (!queue_.empty() && step(&queue_.front())) queue_.pop_front();
  }

  // The next one that has come.
  std::optional<T> take() {
    if (!step(&arriving_)) return std::nullopt;
    return arriving_;
  }

 private:
  bool step(T* value) {
    if (!under_way_) {
      under_way_ = transfer_;
      under_way_->data = reinterpret_cast<std::byte*>(value);
    }
    if (!control_.advance(*under_way_)) return false;
    under_way_.reset();
    return true;
  }

  Backend& control_;
  Transfer transfer_;  // as each of them begins
  std::optional<Transfer> under_way_;
  std::deque<T> queue_;
  T arriving_{};
};

}  // namespace yoke::comm::nccl
