// Continues a sequence of tokens with a language model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "yoke/engine/sampling.h"
#include "yoke/models/model.h"

namespace yoke::engine {

struct GenerateOptions {
  SamplingOptions sampling;
  uint64_t seed = 1;
  int64_t tokens = 200;        // to add
  int64_t vocabulary = 0;      // choose among the first ones; 0: all of the model's
  std::optional<int64_t> end;  // stops after this token
};

// Calls `take` with each new token as soon as it is known; it returns false to stop. Requires gpt2 in
// evaluation mode and a prompt of at least one token in its vocabulary.
//
// The model sees as many tokens as it has positions: the last ones of a longer prompt. When they are full it
// continues from the last half of them, with keys and values computed anew.
void generate(const models::Model& model, std::vector<int64_t> prompt, const GenerateOptions& options,
              const std::function<bool(int64_t)>& take);

}  // namespace yoke::engine
