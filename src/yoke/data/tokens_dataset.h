// Text as 16-bit or 32-bit tokens (formats/tokens.h), divided into samples of equal length.
#pragma once

#include "yoke/data/dataset.h"

namespace yoke::data {

// Like open() in dataset.h. Sample i is tokens i*T .. i*T+T: the first T are the input, the last T the
// target. data.dir is a folder with train.bin and val.bin, or the training file itself. The file is
// memory-mapped. Tokens outside the vocabulary are detected here in the first 64 Mi tokens, in gather()
// anywhere.
std::unique_ptr<Dataset> open_tokens(const DataOptions& options, Split split, const SampleSpec& wanted,
                                     uint64_t seed);

}  // namespace yoke::data
