// The variables identify() looks at, remembered with what became of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/identity.h"

namespace yoke::cluster {

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  // The value; empty ones count as not set.
  std::optional<std::string> text(const std::string& name);
  // A whole number in [low, high]. Anything else leaves a sentence in `problem` (the first one stays).
  std::optional<int> number(const std::string& name, int low, int high, std::string& problem);

  void used(const std::string& name, const std::string& why);
  void ignored(const std::string& name, const std::string& why);

  // Everything seen, in the order of looking; what nobody used gets `otherwise` as its reason.
  std::vector<SeenVariable> take(const std::string& otherwise);

 private:
  SeenVariable* find(const std::string& name);

  Lookup lookup_;
  std::vector<SeenVariable> seen_;
};

}  // namespace yoke::cluster
