// Copies gradients from a GPU to the host while the GPU goes on. From a CPU they are copied at once.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <memory>
#include <optional>

namespace yoke::parallel {

class HostCopies {
 public:
  explicit HostCopies(torch::Device device);

  // Starts to copy; a Mark made later tells when `to` is filled. `to`: on the host, pinned where the copy is
  // to be asynchronous. `from`, whose computation need not have ended, stays as it is until then.
  void copy(torch::Tensor& to, const torch::Tensor& from);

  class Mark {
   public:
    bool is_done() const { return event_ == nullptr || event_->query(); }
    void wait() const {
      if (event_ != nullptr) event_->synchronize();
    }

   private:
    friend class HostCopies;
    std::shared_ptr<c10::Event> event_;  // null: done
  };
  // Done once everything copied so far has arrived, and what the device was told to compute before has ended.
  Mark mark();

 private:
  void follow_device();

  torch::Device device_;
  std::optional<c10::Stream> stream_;  // beside that of the computation; none: CPU
};

}  // namespace yoke::parallel
