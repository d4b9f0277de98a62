// How long a request follows parameters that move from server to server: servers that each name the other
// must not keep it for ever.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>

#include "yoke/base/deadline.h"

namespace yoke::ps {

class Moves {
 public:
  explicit Moves(double timeout) : timeout_(timeout) {}

  // A server has answered that they are elsewhere. Whether to ask there: false `timeout` seconds after the
  // first such answer.
  bool follow() {
    if (!until_) until_ = Deadline::after(timeout_);
    return !until_->passed();
  }
  std::string problem() const { return fmt::format("its parameters have moved for {} s", timeout_); }

 private:
  double timeout_;
  std::optional<Deadline> until_;
};

}  // namespace yoke::ps
