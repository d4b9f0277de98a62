// How much slower a worker is made, or a simulated one is: the same grammar and the same random numbers in
// real runs and on the virtual clock.
//
//   none                       nothing
//   const:2x                   the minibatch takes twice as long (1x and more)
//   exp:MEAN                   plus an exponential time
//   shifted_exp:SHIFT,MEAN     plus SHIFT plus an exponential time
//   pareto:SCALE,SHAPE         plus a Pareto time, P(X > x) = (SCALE/x)^SHAPE; SHAPE above 1, or it has no
//   mean trace:FILE                 plus the times in FILE, one a line, over and over; `#` begins a comment
//
// Times have a unit: 5ms, 2s; in a trace a bare number is seconds.
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
  double scale = 0;  // const: the factor; exp, shifted_exp: mean of the exponential; pareto: scale; seconds
  double shift = 0;  // shifted_exp, seconds
  double shape = 0;  // pareto
  std::string file;  // trace
  std::shared_ptr<const std::vector<double>> trace;  // seconds, not empty

  // The mean of what next() gives for a minibatch that takes `compute` seconds.
  double mean(double compute) const;
};

// Throws ConfigError naming the part that is wrong and what is accepted; reads the trace.
DelayLaw parse_delay_law(const std::string& text);

// Reads back as the same law.
std::string to_string(const DelayLaw& law);

// "3,5": a flag for each of `workers` workers, all of them where `text` is empty. Throws ConfigError naming
// `what` (the option).
std::vector<bool> parse_slow_workers(const std::string& what, const std::string& text, int workers);

// The delays of one worker, one a minibatch. Workers have streams of their own, which depend on the seed,
// their number and nothing else; in a trace they begin at different places.
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

}  // namespace yoke::plan
