// Heads of the messages of L-BFGS on parameter servers.
//
// A step has two phases: the loss and gradient where it starts (kFirst), and its iterations (kRest). A phase
// begins when the first worker requests work in it, so that nothing changes while that worker evaluates or
// saves. An evaluation is one computation of loss and gradient, over all portions of the batch.
#pragma once

#include <cstdint>

#include "yoke/ps/messages.h"

namespace yoke::ps::sandblaster {

inline constexpr int64_t kMostPortions = 1 << 24;

enum Phase : int32_t { kFirst, kRest };

struct AskHead {
  int64_t step = 0;  // from 1
  int32_t phase = kFirst;
  int32_t signal = 0;      // not 0: the run shall stop
  int64_t samples = 0;     // of the batch
  double lr = 0;           // kRest
  int64_t evaluation = 0;  // of the portion that was computed; 0: none
  int64_t portion = 0;     // that was computed
  double loss = 0;         // of that portion, weighted: all portions sum up to that of the batch
};

enum Verdict : int32_t {
  kCompute,    // a portion
  kPhaseOver,  // nothing more to compute in this phase
  kFailed,     // the payload says why
};

struct AskReply {
  int32_t verdict = kCompute;
  int32_t signal = 0;
  int64_t evaluation = 0;
  int64_t portion = 0;
  int64_t portions = 1;
  int64_t over = 0;      // 1: the run ends with this step
  double loss = 0;       // where the current step starts, once known
  double grad_norm = 0;  // likewise
};

struct VectorHead {
  int64_t range = 0;
  int64_t vector = 0;
};
struct VectorReply {
  int64_t evaluation = 0;  // current on this server
};

struct PortionHead {
  int64_t range = 0;
  int64_t evaluation = 0;
  int64_t portion = 0;
};
struct PortionReply {
  int64_t taken = 0;  // 0: it came before, or its evaluation is over
};

enum class Operation : int64_t {
  kDot,     // sum of a * b
  kMaxAbs,  // of a
  kSumAbs,  // of a
  kScale,   // a = factor * b
  kAdd,     // a += factor * b
  kBegin,   // gradients of evaluation `a` with `b` portions can be pushed
  kEnd,     // their sum becomes kGradient
};

struct CommandHead {
  Operation operation = Operation::kDot;
  int64_t a = 0;
  int64_t b = 0;
  double factor = 0;
};
struct CommandReply {
  double value = 0;
};

}  // namespace yoke::ps::sandblaster
