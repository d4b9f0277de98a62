#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {
namespace {

// In the order of the enumerations.
constexpr const char* kCollectives[] = {"all_reduce", "reduce", "reduce_scatter", "all_gather", "all_to_all",
                                        "broadcast",  "gather", "scatter",        "barrier"};
constexpr const char* kAlgorithms[] = {"ring",   "tree",         "halving_doubling", "star",
                                       "direct", "hierarchical", "exchange",         "summation"};

template <class Name, size_t N>
Name parse(const char* what, const std::string& name, const char* const (&names)[N]) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<Name>(i);
  }
  throw ConfigError("{} '{}' is unknown. Accepted: {}.", what, name,
                    join(std::vector<std::string>(names, names + N), " "));
}

}  // namespace

const char* to_string(Collective op) {
  return kCollectives[static_cast<size_t>(op)];
}

Collective parse_collective(const std::string& name) {
  return parse<Collective>("operation", name, kCollectives);
}

const char* to_string(Algorithm algorithm) {
  return kAlgorithms[static_cast<size_t>(algorithm)];
}

Algorithm parse_algorithm(const std::string& name) {
  return parse<Algorithm>("algorithm", name, kAlgorithms);
}

}  // namespace yoke::plan
