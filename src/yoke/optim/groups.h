// Groups of parameters (train.groups): learning rate, weight decay and freezing by patterns of names.
#pragma once

#include <string>
#include <vector>

#include "yoke/config/tables.h"

namespace yoke::optim {

struct ParameterGroup {
  std::string match;         // pattern of names: * any characters, ? one, [ab] one of them
  double lr = 1;             // factor of the learning rate
  double weight_decay = -1;  // -1: train.weight_decay
  bool freeze = false;
};

inline void describe(config::Fields& f, ParameterGroup& o) {
  f.text("match", o.match, "pattern of parameter names: * stands for any characters, ? for one");
  f.number("lr", o.lr, "factor of the learning rate");
  f.number("weight_decay", o.weight_decay, "instead of train.weight_decay; -1: that one", -1);
  f.boolean("freeze", o.freeze, "not trained at all");
}

// What that means for one parameter.
struct ParameterSettings {
  double lr = 1;            // factor
  double weight_decay = 0;  // final
  bool freeze = false;
  bool matrix = true;  // two dimensions or more: lars and lamb scale its step
};

inline std::vector<ParameterGroup> read_groups(const std::string& text, std::string& problem) {
  std::vector<ParameterGroup> groups = config::read_tables<ParameterGroup>(text, problem);
  for (const ParameterGroup& one : groups) {
    if (!problem.empty()) break;
    if (one.match.empty()) problem = "in each table a pattern of names, such as match = \"*.bias\"";
    if (one.weight_decay < 0 && one.weight_decay != -1) problem = "for weight_decay at least 0, or -1";
  }
  return groups;
}

// "", or what train.groups accepts.
inline std::string check_groups(const std::string& text) {
  std::string problem;
  read_groups(text, problem);
  return problem;
}

}  // namespace yoke::optim
