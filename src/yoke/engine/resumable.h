// Something with a small state of its own that a Run saves and restores: a data position, counters.
#pragma once

#include <nlohmann/json.hpp>

namespace yoke {

class Resumable {
 public:
  virtual ~Resumable() = default;
  // The same on all ranks; that of rank 0 is saved.
  virtual nlohmann::json state() const = 0;
  // Restores the result of state(), possibly on another number of ranks. Throws an Error or a json exception
  // if it does not fit.
  virtual void restore(const nlohmann::json& state) = 0;
};

}  // namespace yoke
