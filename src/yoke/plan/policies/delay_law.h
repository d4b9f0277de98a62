// Artificial delays of workers: the same grammar and the same random numbers in real runs and in the
// simulator.
//
//   none                       no delay
//   const:2x                   the minibatch takes twice as long (1x or more)
//   exp:MEAN                   adds an exponential time
//   shifted_exp:SHIFT,MEAN     adds SHIFT plus an exponential time
//   pareto:SCALE,SHAPE         adds a Pareto time, P(X > x) = (SCALE/x)^SHAPE; SHAPE > 1: finite mean
//   trace:FILE                 adds the times in FILE, one per line, repeatedly; `#` starts a comment
//
// Times have a unit: 5ms, 2s; in a trace a bare number is in seconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "yoke/base/random.h"

namespace yoke::plan {

struct DelayLaw {
  enum class Kind : uint8_t { kNone, kConst, kExp, kShiftedExp, kPareto, kTrace };

  Kind kind = Kind::kNone;
  // const: the factor; exp, shifted_exp: mean of the exponential; pareto: scale; seconds.
  double scale = 0;
  double shift = 0;                                  // shifted_exp, seconds
  double shape = 0;                                  // pareto
  std::string file;                                  // trace
  std::shared_ptr<const std::vector<double>> trace;  // seconds, not empty

  // Mean of next() for a minibatch that takes `compute` seconds.
  double mean(double compute) const;
};

// Throws ConfigError naming the invalid part and what is accepted; reads the trace.
DelayLaw parse_delay_law(const std::string& text);

// Of a link: likewise, without const, which multiplies a computation.
DelayLaw parse_link_law(const std::string& text);

// parse_delay_law() restores the same law.
std::string to_string(const DelayLaw& law);

// "3,5": a flag for each of `workers` workers, all of them if `text` is empty. Throws ConfigError naming
// `what` (the option).
std::vector<bool> parse_slow_workers(const std::string& what, const std::string& text, int workers);

// The delays of one worker, one per minibatch. Each worker has its own stream, which depends only on the seed
// and its number; in a trace workers start at different positions.
class DelayStream {
 public:
  DelayStream(const DelayLaw& law, uint64_t seed, int worker);

  // Seconds to add to a minibatch that takes `compute` seconds.
  double next(double compute);

 private:
  DelayLaw law_;
  Random random_;
  size_t position_ = 0;  // in the trace
};

// The delays of a worker's link: random numbers of their own, beside those of its computation.
DelayStream link_delays(const DelayLaw& law, uint64_t seed, int worker);

}  // namespace yoke::plan
