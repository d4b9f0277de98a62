// The variables that identify() examines, and what each was used for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "yoke/cluster/identity.h"

namespace yoke::cluster {

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  // The value; empty counts as unset.
  std::optional<std::string> text(const std::string& name);
  // An integer in [low, high]. Otherwise writes a sentence to `problem`, unless there is one already.
  std::optional<int> number(const std::string& name, int low, int high, std::string& problem);

  void used(const std::string& name, const std::string& why);
  void ignored(const std::string& name, const std::string& why);

  // All variables in the order of examination; unused ones get `otherwise` as the reason.
  std::vector<SeenVariable> take(const std::string& otherwise);

 private:
  SeenVariable* find(const std::string& name);

  Lookup lookup_;
  std::vector<SeenVariable> seen_;
};

}  // namespace yoke::cluster
