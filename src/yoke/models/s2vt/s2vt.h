// S2VT (Venugopalan et al. 2015): video captioning with two stacked LSTMs.
//
// Inputs: frames [B, frames, features] and the preceding words, int64 [B, words] (the first is the begin
// mark); output: logits [B, words, vocabulary]; target: the words, int64 [B, words].
//
// While encoding, LSTM 1 reads embedded frames and LSTM 2 reads LSTM 1's output and zeros; while decoding,
// LSTM 1 reads zeros and LSTM 2 reads LSTM 1's output and the preceding word. In training all words are
// known, so each LSTM runs over both phases at once.
#pragma once

#include "yoke/models/model.h"

namespace yoke::models {

// Uses width (512), vocabulary (3000), frames (16), features (1024), words (12).
Model make_s2vt(const ModelOptions& options);

}  // namespace yoke::models
