// Small host messages with which two ranks agree on device transfers. Part of the module only.
#pragma once

#include <deque>
#include <optional>

#include "yoke/comm/backend.h"

namespace yoke::comm::nccl {

// One direction between this rank and a peer, under its own tag: an ordered queue of values of type T.
// Non-blocking.
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

  // Enqueues a value; flush() sends it.
  void put(const T& value) { queue_.push_back(value); }

  // Sends as many values as the transport accepts now.
  void flush() {
    while (!queue_.empty() && step(&queue_.front())) queue_.pop_front();
  }

  // The next value that has arrived, if any.
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
  Transfer transfer_;  // initial state of each transfer
  std::optional<Transfer> under_way_;
  std::deque<T> queue_;
  T arriving_{};
};

}  // namespace yoke::comm::nccl
